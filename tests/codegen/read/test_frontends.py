"""Each graph means the same, whichever frontend dumped it.

The dumps of `tests/data/frontends` are what five frontends wrote of the same graphs
(docs/frontends.md); none of them is needed here.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from support.frontend_signatures import SIGNATURES, UIDS

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph

TESTS = Path(__file__).parents[2]
DATA = TESTS / "data" / "frontends"
MATRIX = runpy.run_path(str(TESTS.parent / "tools" / "frontends" / "matrix.py"))
VERSIONS = MATRIX["VERSIONS"]
GRAPHS = sorted({path.stem for path in DATA.glob("*/*.json")})
V1 = ("1.18.0", "1.23.0", "1.26.0")

# Dumps that lost a tensor and show it: refused.
LOSES = {
    ("1.18.0", "same_name_and_uids"): "two inputs and the output, all called x",
    ("1.23.0", "name_like_a_uid"): 'the tensor with uid 4 and the one called "4"',
    ("1.26.0", "name_like_a_uid"): 'the tensor with uid 4 and the one called "4"',
    ("1.23.0", "sdpa_ragged"): "the ragged offsets, which are named only",
    ("1.26.0", "sdpa_ragged"): "the ragged offsets, which are named only",
    ("1.23.0", "sdpa_ragged_uids"): "the ragged offsets, which are named only",
    ("1.26.0", "sdpa_ragged_uids"): "the ragged offsets, which are named only",
}
# Dumps that lost a tensor without a trace: read as the smaller graph that they describe.
LOSES_SILENTLY = {
    ("1.18.0", "sdpa_ragged"): "q_offsets_ptr kv_offsets_ptr",
    ("1.18.0", "sdpa_ragged_uids"): "q_offsets_ptr kv_offsets_ptr",
    ("1.18.0", "same_name_twice"): "x_2_ptr",
    ("1.23.0", "same_name_twice"): "x_2_ptr",
    ("1.26.0", "same_name_twice"): "x_2_ptr",
}
# Not validated (see matrix.py), and the shape of an output was left to validate().
UNSHAPED = ("1.18.0", "sdpa_unshaped_stats")

# Outputs without a stated stride: v1 frontends infer channels-last, which is the same memory here.
INFERS_STRIDE = {"layernorm_backward": ((128, 1, 128, 128), (128, 1, 1, 1))}

PRESENT = [
    (version, graph)
    for version in VERSIONS
    for graph in GRAPHS
    if (DATA / version / f"{graph}.json").exists()
]
WHOLE = [
    dump
    for dump in PRESENT
    if dump not in LOSES and dump not in LOSES_SILENTLY and dump != UNSHAPED
]


def read(version: str, name: str) -> Graph:
    path = DATA / version / f"{name}.json"
    return read_graph(path.read_bytes(), path.name)


def newest_of(name: str) -> str:
    return [version for version, graph in WHOLE if graph == name][-1]


def signature(version: str, name: str) -> list[tuple[object, ...]]:
    return [
        (
            argument.argument,
            argument.role,
            argument.data_type,
            argument.dim,
            argument.stride,
            argument.default,
        )
        for argument in bind(read(version, name)).arguments
    ]


def test_every_dump_is_there_or_excused() -> None:
    absent = {
        (version, graph)
        for version in VERSIONS
        for graph in GRAPHS
        if (version, graph) not in PRESENT
    }
    assert absent == MATRIX["LEFT_OUT"] | set(MATRIX["FAILS"])
    assert {path.name for path in DATA.iterdir()} == set(VERSIONS)


@pytest.mark.parametrize(("version", "name"), WHOLE)
def test_same_signature_as_newest(version: str, name: str) -> None:
    newest = newest_of(name)
    expected = signature(newest, name)
    if version in V1 and name in INFERS_STRIDE:
        old, new = INFERS_STRIDE[name]
        assert {row[4] for row in expected if row[1] == "output"} == {new}
        expected = [(*row[:4], old, row[5]) if row[1] == "output" else row for row in expected]
    assert signature(version, name) == expected


@pytest.mark.parametrize(("version", "name"), [dump for dump in WHOLE if dump[1] in SIGNATURES])
def test_signature(version: str, name: str) -> None:
    assert [row[:5] for row in signature(version, name)] == SIGNATURES[name]
    # A value is no default: the frontend names the tensor, so nobody could mean it (design.md).
    assert all(row[5] is None for row in signature(version, name))


def test_signatures_are_of_graphs_that_exist() -> None:
    assert set(SIGNATURES) | set(UIDS) <= set(GRAPHS)


@pytest.mark.parametrize(("version", "name"), [dump for dump in WHOLE if dump[1] in UIDS])
def test_uids_that_were_set(version: str, name: str) -> None:
    arguments = bind(read(version, name)).arguments
    found = {argument.argument: argument.uid for argument in arguments}
    assert UIDS[name].items() <= found.items()
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(("version", "name"), WHOLE)
def test_nodes(version: str, name: str) -> None:
    def tags(found: str) -> list[str]:
        # 1.18 has another tag for attention, in half precision and in FP8.
        same = {"SDPA_FWD": "SDPA", "SDPA_FP8_FWD": "SDPA"}
        return [same.get(node.tag, node.tag) for node in read(found, name).nodes]

    newest = newest_of(name)
    assert tags(version) == tags(newest)


@pytest.mark.parametrize(("version", "name"), LOSES)
def test_lost_tensors_are_refused(version: str, name: str) -> None:
    with pytest.raises(GraphFormatError) as caught:
        read(version, name)
    assert "1.27 or newer" in caught.value.hint
    # About what is lost, not about the whole format.
    assert caught.value.path != "$.json_version"


@pytest.mark.parametrize(("version", "name"), LOSES_SILENTLY)
def test_lost_without_a_trace(version: str, name: str) -> None:
    lost = LOSES_SILENTLY[version, name].split()
    whole = [row[0] for row in signature("1.32.0", name)]
    assert set(lost) < set(whole)
    assert [row[0] for row in signature(version, name)] == [n for n in whole if n not in lost]


def test_shape_that_was_not_inferred() -> None:
    with pytest.raises(GraphFormatError, match="before its shapes were inferred"):
        read(*UNSHAPED)


@pytest.mark.parametrize(
    ("version", "name"), [dump for dump in WHOLE if dump[1] == "scalar_with_value"]
)
def test_value_survives(version: str, name: str) -> None:
    (value,) = (tensor.value for tensor in read(version, name).tensors if tensor.value)
    assert (value.data_type, value.value) == ("FLOAT", 0.5)


@pytest.mark.parametrize("version", VERSIONS)
def test_peer_stats_are_optional_inputs(version: str) -> None:
    (node,) = read(version, "batchnorm_peer_stats").nodes
    assert [field for field, _ in node.extra] == ["peer_stats"] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_what_logs_hold(version: str) -> None:
    """What docs/frontends.md says of logs: a line for each time that a graph is lowered."""
    lines = (DATA / version / "three_graphs.log").read_text(encoding="utf-8").splitlines()
    dumps = [json.loads(line) for line in lines if line.startswith('{"context"')]
    nodes = [dump["nodes"][0]["name"] for dump in dumps]
    # Validating a graph again dumps it again, unless the frontend lowers only once.
    again = ["matmul"] if version in V1 else []
    assert nodes == ["matmul", *again, "sdpa", "conv", "conv"]
    assert all(len(dump["tensors"]) in (5, 6) for dump in dumps)
    number = [dump.get("gid", dump.get("graph_uid")) for dump in dumps]
    counted = {"1.18.0": [None] * 5, "1.23.0": [None] * 5, "1.26.0": [1, 1, 2, 3, 4]}
    assert number == counted.get(version, [1, 2, 3, 4])
