"""What axes are called: after the port of a node that gives them a meaning, else by number."""

from __future__ import annotations

import keyword
from pathlib import Path

import pytest
from support.documents import READABLE, Document, document, file_id, node, tensor, to_json

from cudnn_bindgen.codegen.model.axes import name_axes
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph

RANK = {
    1: {"dim": [4], "stride": [1]},
    3: {"dim": [2, 3, 4], "stride": [12, 4, 1]},
    4: {"dim": [2, 3, 4, 5], "stride": [60, 20, 5, 1]},
    5: {"dim": [2, 3, 4, 5, 6], "stride": [360, 120, 30, 6, 1]},
}


def names(tag: str, ports: str, rank: int) -> list[str]:
    """Return the axes at each port, the last of which is an output."""
    *inputs, output = ports.split()
    uids = {port: uid for uid, port in enumerate([*inputs, output], 1)}
    one = node(tag, {port: uids[port] for port in inputs}, {output: uids[output]})
    axes = name_axes(graph([one], dict.fromkeys(uids.values(), rank)))
    return [" ".join(axes[uid]) for uid in uids.values()]


def graph(nodes: list[Document], ranks: dict[int, int]) -> Graph:
    tensors = [tensor(uid, **RANK[rank]) for uid, rank in ranks.items()]
    return read_graph(to_json(document(nodes, tensors)))


@pytest.mark.parametrize(
    ("tag", "ports", "rank", "expected"),
    [
        ("MATMUL", "A B C", 3, ["b m k", "b k n", "b m n"]),
        ("MATMUL", "A B C", 4, ["b0 b1 m k", "b0 b1 k n", "b0 b1 m n"]),
        ("SDPA", "Q K V O", 4, ["b h s d"] * 4),
        ("CONV_FPROP", "X W Y", 4, ["n c h w", "k c r s", "n c h w"]),
        ("CONV_FPROP", "X W Y", 5, ["n c d h w", "k c t r s", "n c d h w"]),
        ("NEW", "X Y", 3, ["d0 d1 d2"] * 2),
        ("NEW", "X Y", 1, ["d0"] * 2),
        ("POINTWISE", "IN_0 OUT_0", 4, ["d0 d1 d2 d3"] * 2),
    ],
)
def test_axes_at_ports(tag: str, ports: str, rank: int, expected: list[str]) -> None:
    assert names(tag, ports, rank) == expected


def test_names_spread_over_elementwise_nodes_in_both_directions() -> None:
    nodes = [
        node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, mode="ADD"),
        node("MATMUL", {"A": 3, "B": 4}, {"C": 5}),
        node("POINTWISE", {"IN_0": 5, "IN_1": 6}, {"OUT_0": 7}, mode="ADD"),
    ]
    axes = name_axes(graph(nodes, {1: 3, 2: 1, 3: 3, 4: 3, 5: 3, 6: 3, 7: 3}))
    assert axes[1] == axes[3] == ("b", "m", "k")
    assert axes[2] == ("d0",), "of another rank"
    assert axes[6] == axes[7] == ("b", "m", "n")


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_axes_are_distinct_arguments(path: Path) -> None:
    read = read_graph(path.read_bytes())
    axes = name_axes(read)
    for one in read.tensors:
        assert len({*axes[one.uid]}) == len(axes[one.uid]) == len(one.dim)
        for name in axes[one.uid]:
            assert name.isidentifier()
            assert not keyword.iskeyword(name)
            assert name != "self"
