"""Which layout rule each operand gets, and which outputs may replace an input."""

from __future__ import annotations

import pytest
from support.documents import TESTS, document, node, tensor, to_json

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.read.graph import read_graph

DATA = TESTS / "data"


def read(path: str) -> Binding:
    return bind(read_graph((DATA / path).read_bytes()))


def layouts(binding: Binding) -> dict[str, tuple[str, int]]:
    return {a.name: (a.layout.kind, a.layout.free_axis) for a in binding.operands}


PLAIN = ("plain", -1)


def test_lowered_attention_over_ragged_sequences() -> None:
    found = layouts(read("plans/cudnn-9.19-sm90/sdpa_thd.plan"))
    assert {name: kind for name, kind in found.items() if kind != PLAIN} == {
        "q": ("ragged", 2),
        "k": ("ragged", 3),  # lowering exchanged its last axes
        "v": ("ragged", 2),
        "o": ("ragged", 2),
        "stats": ("ragged", 2),
    }


def test_dense_attention_before_and_after_lowering() -> None:
    lowered = layouts(read("plans/cudnn-9.19-sm90/sdpa_dense.plan"))
    assert {name for name, kind in lowered.items() if kind == ("swapped", -1)} == {"k"}
    as_built = layouts(read("structure-v2/sdpa_bwd.json"))
    assert {*as_built.values()} == {PLAIN}


def test_paged_attention() -> None:
    found = layouts(read("structure-v2/paged.json"))
    assert found["container_k"] == found["container_v"] == ("paged", 0)
    assert found["page_table_k"] == PLAIN


def attention(k: tuple[list[int], list[int]], tag: str = "SDPA") -> str:
    """The kind of K where Q is [1, 2, 16, 64]."""
    q = {"dim": [1, 2, 16, 64], "stride": [2048, 1024, 64, 1]}
    tensors = [tensor(uid, name, **q) for uid, name in ((1, "q"), (3, "v"), (4, "o"))]
    tensors.append(tensor(2, "k", dim=k[0], stride=k[1]))
    nodes = [node(tag, {"Q": 1, "K": 2, "V": 3}, {"O": 4})]
    binding = bind(read_graph(to_json(document(nodes, tensors))))
    return layouts(binding)["k"][0]


@pytest.mark.parametrize(
    ("dim", "stride", "kind"),
    [
        ([1, 2, 32, 64], [4096, 2048, 64, 1], "plain"),
        ([1, 2, 64, 32], [4096, 2048, 1, 64], "swapped"),
        # As many keys as a head is wide: the axis that lies densely is the head.
        ([1, 2, 64, 64], [8192, 4096, 64, 1], "plain"),
        ([1, 2, 64, 64], [8192, 4096, 1, 64], "swapped"),
    ],
)
def test_whether_lowering_exchanged_axes(dim: list[int], stride: list[int], kind: str) -> None:
    assert attention((dim, stride)) == kind


def test_an_order_of_its_own() -> None:
    tensors = [tensor(1, "x"), tensor(2, "y", reordering_type="F8_128x4")]
    binding = bind(
        read_graph(to_json(document([node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2})], tensors)))
    )
    assert layouts(binding) == {"x": PLAIN, "y": ("dense", -1)}


# Outputs in the place of an input


def shared(*nodes: dict[str, object], **dims: list[int]) -> set[tuple[str, str]]:
    """The pairs for tensors a, b, c (1, 2, 3), a virtual v (4), and outputs x, y (5, 6)."""
    names = {"a": 1, "b": 2, "c": 3, "v": 4, "x": 5, "y": 6}
    used = {
        uid
        for item in nodes
        for group in ("inputs", "outputs")
        for uid in item[group].values()  # type: ignore[attr-defined]
    }
    tensors = [
        tensor(uid, name, dim=dims.get(name, [4, 8]), stride=[8, 1], is_virtual=name == "v")
        for name, uid in names.items()
        if uid in used
    ]
    binding = bind(read_graph(to_json(document(list(nodes), tensors))))
    by_slot = [argument.name for argument in binding.arguments]
    return {(by_slot[output], by_slot[other]) for output, other in binding.shared}


def add(first: int, second: int, output: int) -> dict[str, object]:
    return node("POINTWISE", {"IN_0": first, "IN_1": second}, {"OUT_0": output})


def product(first: int, second: int, output: int) -> dict[str, object]:
    return node("MATMUL", {"A": first, "B": second}, {"C": output})


def test_pointwise_nodes_may_write_in_place() -> None:
    assert shared(add(1, 2, 5)) == {("x", "a"), ("x", "b")}
    assert shared(add(1, 2, 4), add(4, 3, 5)) == {("x", "a"), ("x", "b"), ("x", "c")}
    # In whatever order the file has them.
    assert shared(add(4, 3, 5), add(1, 2, 4)) == {("x", "a"), ("x", "b"), ("x", "c")}


def test_the_operands_of_a_product_stay() -> None:
    assert shared(product(1, 2, 4), add(4, 3, 5)) == {("x", "c")}
    assert shared(add(1, 2, 4), product(4, 3, 5)) == set()
    # Read by a pointwise node as well.
    assert shared(product(1, 2, 4), add(4, 1, 5)) == set()


def test_what_is_broadcast_stays() -> None:
    assert shared(add(1, 2, 5), b=[1, 8]) == {("x", "a")}


def test_what_leads_to_two_outputs_stays() -> None:
    assert shared(add(1, 2, 5), add(5, 3, 6)) == {("y", "c")}
    assert shared(add(1, 2, 5), add(1, 3, 6)) == {("x", "b"), ("y", "c")}


def test_running_statistics_may_be_updated_in_place() -> None:
    binding = read("frontends/1.32.0/batchnorm_peer_stats.json")
    ports = [argument.port for argument in binding.arguments]
    assert [(ports[output], ports[other]) for output, other in binding.shared] == [
        ("NEXT_RUNNING_MEAN", "PREV_RUNNING_MEAN"),
        ("NEXT_RUNNING_VAR", "PREV_RUNNING_VAR"),
    ]
