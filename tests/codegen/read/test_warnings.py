"""What is odd about a graph that can be bound nevertheless: a warning, a refusal with --strict."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import (
    READABLE,
    Document,
    add_graph,
    document,
    file_id,
    node,
    plan_document,
    scalar,
    tensor,
    tensors,
    to_json,
    to_ubjson,
)

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions

ORDER = "(its operands are bound in the order of their ports' names; look at the order)"


def unread(uid: int, **fields: object) -> Document:
    """RMS norm with a second output that is virtual and that nothing reads."""
    return document(
        [node("RMS_NORM", {"X": 1}, {"Y": 2, "INV_VARIANCE": uid})],
        [*tensors(1, 2), tensor(uid, is_virtual=True, **fields)],
    )


def relu(**inputs: int) -> Document:
    return document([node("RESHAPE", {"X": 1} | inputs, {"Y": 2})], tensors(1, 2, *inputs.values()))


WARNED: dict[str, tuple[Document, str]] = {
    "unknown tag": (
        document([node("NEW\n", {"A": 1}, {"Y": 2})], tensors(1, 2)),
        f"$.nodes[0].tag: expected a known node tag, got NEW\\n {ORDER}",
    ),
    "unknown input": (
        relu(NEW=9),
        f"$.nodes[0].inputs.NEW: expected a known port of RESHAPE, got NEW {ORDER}",
    ),
    "input that no identifier is": (
        relu(**{"a\u202eb": 9}),
        '$.nodes[0].inputs["a\\u202eb"]: expected a known port of RESHAPE, got a\\u202eb ' + ORDER,
    ),
    "unknown output": (
        document([node("RESHAPE", {"X": 1}, {"Y": 2, "Z": 3})], tensors(1, 2, 3)),
        f"$.nodes[0].outputs.Z: expected a known port of RESHAPE, got Z {ORDER}",
    ),
    "numbered port that is no number": (
        document([node("CONCATENATE", {"0": 1, "x": 3}, {"Y": 2})], tensors(1, 2, 3)),
        f"$.nodes[0].inputs.x: expected a known port of CONCATENATE, got x {ORDER}",
    ),
    "virtual output that nothing reads": (
        unread(3),
        "$.nodes[0].outputs.INV_VARIANCE: expected a tensor that a node reads, got virtual tensor "
        "3, which none does (call set_output(True) on it if you need its value)",
    ),
    "operand that the plan does not bind": (
        plan_document(add_graph(), variant_pack_uids=[1, 3]),
        "$.variant_pack_uids: expected every operand, got none with uid 2, $.tensors[1] "
        "(the plan does not read it, so that it is no argument)",
    ),
}


def read(raw: Document, *, strict: bool = False) -> Graph:
    encode = to_ubjson if "cudnn_backend_data" in raw else to_json
    return read_graph(encode(raw), "F", ReadOptions(strict=strict))


@pytest.mark.parametrize("name", WARNED)
def test_warnings(name: str) -> None:
    raw, message = WARNED[name]
    assert [str(warning) for warning in read(raw).warnings] == [message]
    with pytest.raises(GraphFormatError) as caught:
        read(raw, strict=True)
    assert str(caught.value) == f"F: {message}"


FINE: dict[str, Document] = {
    "known": add_graph(),
    "plan": plan_document(add_graph()),
    "numbered ports": document(
        [node("CONCATENATE", {"10": 1, "2": 3}, {"Y": 2})], tensors(1, 2, 3)
    ),
    "virtual output that a ragged offset is": document(
        [
            node("RESHAPE", {"X": 1}, {"Y": 3}),
            node("RESHAPE", {"X": 2}, {"Y": 4}),
        ],
        [tensor(1), tensor(2, ragged_offset_uid=3), tensor(3, is_virtual=True), tensor(4)],
    ),
    "virtual output of a plan": plan_document(unread(3)),
    "scalar that the plan has as a constant": plan_document(
        document(
            [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3})],
            [tensor(1), scalar(2, "c"), tensor(3)],
        ),
        variant_pack_uids=[1, 3],
    ),
    "operand that is replaced": plan_document(
        add_graph(), variant_pack_uids=[1, 3, 70], variant_pack_replacements=[[2, [70, 0]]]
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_no_warning(name: str) -> None:
    assert read(FINE[name], strict=True).warnings == ()


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_real_files_give_no_warning(path: Path) -> None:
    assert [str(warning) for warning in read_graph(path.read_bytes()).warnings] == []


def test_each_oddity_gives_its_own_warning() -> None:
    raw = document([node("A", {"P": 1}, {"Y": 2}), node("B", {"P": 2}, {"Y": 3})], tensors(1, 2, 3))
    assert [warning.path for warning in read(raw).warnings] == ["$.nodes[0].tag", "$.nodes[1].tag"]


def test_warnings_do_not_tell_graphs_apart() -> None:
    raw, _ = WARNED["unknown tag"]
    assert read(raw) == read(raw)
