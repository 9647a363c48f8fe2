"""What dumps of structure v1 have lost: refused where it shows, a warning where it may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.documents import Document, node, tensor, to_json, with_remedy
from support.documents_v1 import BY_NAME, old_add, old_document, old_scalar, old_tensor

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions

Edit = Callable[[Document], Any]
AGAIN = "(dump the graph again with nvidia-cudnn-frontend 1.27 or newer)"


def read(raw: Document, **options: Any) -> Graph:
    return read_graph(to_json(raw), "F", ReadOptions(**options))


def at(key: str, **fields: Any) -> Edit:
    return lambda raw: raw["tensors"][key].update(fields)


def ports(**fields: Any) -> Edit:
    return lambda raw: raw["nodes"][0].update(fields)


def both(*edits: Edit) -> Edit:
    return lambda raw: [edit(raw) for edit in edits]


def keyed(key: str, item: Document) -> Edit:
    return lambda raw: raw["tensors"].update({key: item})


def version(number: int) -> Edit:
    return lambda raw: raw.update(cudnn_frontend_version=number)


# Of a graph by frontend 1.26: y = a + b.
REFUSED: dict[str, tuple[Edit, str]] = {
    "port that names nothing": (
        ports(inputs={"IN_0": "a", "IN_1": "lost"}),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 'lost': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "uid that nothing has": (
        ports(inputs={"IN_0": "a", "IN_1": 7}),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 7: "
        f"the dump lost a tensor {AGAIN}",
    ),
    "uid of a tensor that has none assigned": (
        both(at("b", uid=7), ports(inputs={"IN_0": "a", "IN_1": 7})),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 7: "
        f"the dump lost a tensor {AGAIN}",
    ),
    "name like a uid": (
        both(keyed("4", old_tensor("b", 4)), ports(inputs={"IN_0": "4", "IN_1": 4})),
        "$.nodes[0].inputs.IN_0: expected the key of a tensor, got '4': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "key that is not its tensor's name": (
        at("b", name="c"),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 'b': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "an input and the output have one name": (
        both(version(BY_NAME), ports(inputs={"IN_0": "a", "IN_1": "y"})),
        "$.nodes[0].inputs.IN_1: expected an input from an earlier node, got 'y', "
        f"which $.nodes[0] writes: the dump lost a tensor {AGAIN}",
    ),
    "output written twice": (
        lambda raw: raw["nodes"].append(node("RELU", {"X": "a"}, {"Y": "y"})),
        "$.nodes[1].outputs.Y: expected a tensor that no other port writes, got 3, "
        "which $.nodes[0].outputs.OUT_0 writes too",
    ),
    "ragged offset by name": (
        at("a", ragged_offset_name="offsets", ragged_offset_uid=0),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got 'offsets': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "ragged offset by uid": (
        at("a", ragged_offset_name="offsets", ragged_offset_uid=107),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got 'offsets': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "ragged offset without a name": (
        at("a", ragged_offset_uid=0),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got '0': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "ragged offset of a name that another tensor has": (
        both(
            at("a", ragged_offset_name="b", ragged_offset_uid=0),
            keyed("9", old_tensor("offsets", 9)),
            at("b", name="offsets"),
            ports(inputs={"IN_0": "a", "IN_1": 9}),
        ),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got 'b': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "uid twice": (
        both(
            keyed("8", old_tensor("b", 8)),
            keyed("9", old_tensor("c", 8)),
            ports(inputs={"IN_0": "a", "IN_1": 8}),
        ),
        '$.tensors["8"].uid: expected a uid of its own, got 8, the uid of $.tensors["9"] too '
        "(set_uid() each tensor to another number, or none of them)",
    ),
    "uid -1": (
        both(keyed("-1", old_tensor("b", -1)), ports(inputs={"IN_0": "a", "IN_1": -1})),
        '$.tensors["-1"].uid: expected an assigned uid, got -1 '
        "(call graph.validate() before dumping the graph)",
    ),
    "rank": (
        at("b", stride=[1]),
        "$.tensors.b.stride: expected 2 entries as in dim, got 1 "
        "(set dim and stride of this tensor to the same rank)",
    ),
    "tensors as a list": (
        lambda raw: raw.update(tensors=[tensor(1)]),
        "$.tensors: expected object, got array",
    ),
    "port as a float": (
        ports(inputs={"IN_0": 1.5}),
        "$.nodes[0].inputs[...]: expected int | str, got float",
    ),
    "peer without a shape": (
        ports(peer_stats=[{"name": "p"}]),
        '$.nodes[0].peer_stats[0]: expected a field "dim", got none',
    ),
    "scalar of an older index": (
        both(
            version(10700),
            keyed("b", old_scalar("b", {"index": 0, "value": "3F800000"})),
        ),
        "$.tensors.b.pass_by_value.value: expected an INT32, got '3F800000'",
    ),
    "shape not inferred": (
        at("y", dim=[], stride=[]),
        "$.tensors.y.dim: expected the shape of an operand, got []: the graph was dumped before "
        "its shapes were inferred "
        "(call graph.validate() first, or set dim and stride of this tensor)",
    ),
}


def broken(name: str) -> bytes:
    raw = old_add()
    REFUSED[name][0](raw)
    return to_json(raw)


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_lost_or_broken_is_refused(name: str) -> None:
    with pytest.raises(GraphFormatError) as caught:
        read_graph(broken(name), "F")
    assert str(caught.value) == with_remedy(f"F: {REFUSED[name][1]}")
    assert caught.value.dialect == "structure v1"


ONE_NAME = (
    "$.nodes[0].inputs.IN_1: expected one tensor of each name, got 'a' at $.nodes[0].inputs.IN_0 "
    "too: of two tensors with that name the dump would have lost one "
    "(if it is not the same tensor, dump the graph again with nvidia-cudnn-frontend 1.27 or newer)"
)
NO_OFFSETS = (
    "$.nodes[0]: expected ragged offsets if the graph has any, got a dump of frontend 1.19 or "
    "older, which leaves them out "
    "(if it has some, dump the graph again with nvidia-cudnn-frontend 1.27 or newer)"
)
WARNED: dict[str, tuple[Document, str]] = {
    "one name at two ports": (
        old_document(
            [node("POINTWISE", {"IN_0": "a", "IN_1": "a"}, {"OUT_0": "y"})],
            [old_tensor("a"), old_tensor("y")],
        ),
        ONE_NAME,
    ),
    "padding mask": (
        old_document(
            [node("SDPA_FWD", {"Q": "q", "K": "k", "V": "v"}, {"O": "o"}, padding_mask=True)],
            [old_tensor(name) for name in "qkvo"],
            11900,
        ),
        NO_OFFSETS,
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_may_be_lost_without_a_trace_gives_a_warning(name: str) -> None:
    raw, message = WARNED[name]
    assert [str(warning) for warning in read(raw).warnings] == [message]
    with pytest.raises(GraphFormatError) as caught:
        read(raw, strict=True)
    assert str(caught.value) == f"F: {message}"


@pytest.mark.parametrize("number", [12000, 12600])
def test_no_warning_where_ragged_offsets_are_written(number: int) -> None:
    raw, _ = WARNED["padding mask"]
    assert read(raw | {"cudnn_frontend_version": number}).warnings == ()


def test_no_warning_for_one_uid_at_two_ports_or_a_result_read_twice() -> None:
    nodes = [
        node("POINTWISE", {"IN_0": 1, "IN_1": 1}, {"OUT_0": "t"}),
        node("POINTWISE", {"IN_0": "t", "IN_1": "t"}, {"OUT_0": "y"}),
    ]
    raw = old_document(
        nodes, [old_tensor("a", 1), old_tensor("t", is_virtual=True), old_tensor("y")]
    )
    assert read(raw).warnings == ()
