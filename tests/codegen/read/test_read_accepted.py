"""What real and legal files may have, however odd it looks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from support.documents import (
    READABLE,
    Document,
    add_graph,
    argument_names,
    bind_document,
    document,
    file_id,
    node,
    scalar,
    tensor,
    to_json,
)

from cudnn_bindgen.codegen.model.data_types import BITS, SCALAR_TYPES
from cudnn_bindgen.codegen.model.graph import Graph, Scalar, Tensor
from cudnn_bindgen.codegen.read.graph import read_graph

INT_MAX = 2**31 - 1


def read(raw: Document) -> Graph:
    return read_graph(to_json(raw))


def first_tensor(**fields: Any) -> Tensor:
    """Read a graph whose first tensor, uid 1, has these fields."""
    raw = add_graph()
    raw["tensors"][0].update(fields)
    return next(tensor for tensor in read(raw).tensors if tensor.uid == 1)


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_real_files_keep_what_the_model_promises(path: Path) -> None:
    graph = read_graph(path.read_bytes())
    uids = [tensor.uid for tensor in graph.tensors]
    assert uids == sorted(set(uids))
    assert graph.nodes
    for tensor_ in graph.tensors:
        if not tensor_.is_virtual:
            assert len(tensor_.dim) == len(tensor_.stride) > 0
            assert tensor_.data_type in BITS
    for node_ in graph.nodes:
        assert {uid for _, uid in node_.ports} <= set(uids)
    assert (graph.plan is not None) == (path.suffix == ".plan") == (graph.dialect == "plan")


@pytest.mark.parametrize("uid", [0, -2, -(2**63), 2**62, 2**63 - 1])
def test_uids(uid: int) -> None:
    raw = document([node("RELU", {"X": uid}, {"Y": 3})], [tensor(uid), tensor(3)])
    assert bind_document(raw).arguments[0].uid == uid


@pytest.mark.parametrize(
    ("dim", "stride"),
    [
        ([0, 4], [4, 1]),
        ([2, 4], [0, 1]),
        ([2, 4], [-4, -1]),
        ([2, 4], [INT_MAX, 1]),
        ([2, 4], [2**33, 1]),
        ([2**30, 2**31], [2**31, 1]),
        ([1] * 8, [1] * 8),
    ],
)
def test_shapes(dim: list[int], stride: list[int]) -> None:
    read_back = first_tensor(dim=dim, stride=stride)
    assert (read_back.dim, read_back.stride) == (tuple(dim), tuple(stride))


@pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b"\n" * 100, b"\xef\xbb\xbf \t\r\n"])
def test_what_editors_put_before_the_object(prefix: bytes) -> None:
    assert read_graph(prefix + to_json(add_graph())) == read(add_graph())


def test_null_stands_for_the_default() -> None:
    assert first_tensor(name=None).name == ""
    assert first_tensor(reordering_type=None).reordering_type == "NONE"
    raw = add_graph()
    raw["nodes"][0]["name"] = None
    assert read(raw).nodes[0].name == ""


def test_absent_fields_stand_for_the_default() -> None:
    raw = add_graph()
    raw["tensors"][0] = {"uid": 1, "dim": [2, 4], "stride": [4, 1], "data_type": None}
    assert read(raw).tensors[0] == Tensor(1, "", "BFLOAT16", (2, 4), (4, 1))


def test_a_data_type_of_null_is_inherited() -> None:
    raw = add_graph()
    raw["context"]["io_data_type"] = "FP8_E4M3"
    raw["tensors"][0]["data_type"] = None
    assert [tensor.data_type for tensor in read(raw).tensors] == ["FP8_E4M3"] + ["BFLOAT16"] * 2


def test_fields_of_a_later_frontend_are_ignored() -> None:
    raw = add_graph() | {"new": {"a": [1]}}
    raw["tensors"][0]["new"] = raw["context"]["new"] = 1
    assert read(raw) == read(add_graph())


def test_a_virtual_tensor_needs_no_shape_and_no_data_type() -> None:
    raw = document(
        [node("A", {"X": 1}, {"Y": 2}), node("B", {"X": 2}, {"Y": 3})],
        [tensor(1), tensor(2, is_virtual=True, dim=[], stride=[], data_type=None), tensor(3)],
    )
    raw["context"]["io_data_type"] = None
    assert argument_names(bind_document(raw)) == ["x_ptr", "y_ptr"]


SCALARS = [
    (0, -(2**63), Scalar("INT64", b"\0" * 7 + b"\x80"), -(2**63)),
    (0, 2**40, Scalar("INT64", b"\0\0\0\0\0\1\0\0"), 2**40),
    (1, -2, Scalar("INT32", b"\xfe\xff\xff\xff"), -2),
    (2, "3F800000", Scalar("HALF", b"\x00\x3c"), 1.0),
    (2, "33800000", Scalar("HALF", b"\x01\0"), 2.0**-24),
    (2, "FFC02000", Scalar("HALF", b"\x01\xfe"), math.nan),
    (2, "ff800000", Scalar("HALF", b"\x00\xfc"), -math.inf),
    (3, "3E000000", Scalar("FLOAT", b"\0\0\0\x3e"), 0.125),
    (3, "FF800000", Scalar("FLOAT", b"\0\0\x80\xff"), -math.inf),
    (3, "7FC00001", Scalar("FLOAT", b"\x01\0\xc0\x7f"), math.nan),
    (3, "80000000", Scalar("FLOAT", b"\0\0\0\x80"), -0.0),
    (4, 0.1, Scalar("DOUBLE", bytes.fromhex("9a9999999999b93f")), 0.1),
    (4, 1e300, Scalar("DOUBLE", bytes.fromhex("9c7500883ce4377e")), 1e300),
    (4, 3, Scalar("DOUBLE", b"\0" * 6 + b"\x08\x40"), 3.0),
    (5, "3F800000", Scalar("BFLOAT16", b"\x80\x3f"), 1.0),
    (5, "7FC00000", Scalar("BFLOAT16", b"\xc0\x7f"), math.nan),
]


@pytest.mark.parametrize(("index", "written", "expected", "number"), SCALARS)
def test_scalars_keep_their_bits(index: int, written: Any, expected: Scalar, number: float) -> None:
    value = first_tensor(
        is_pass_by_value=True,
        data_type=SCALAR_TYPES[index],
        dim=[1],
        stride=[1],
        pass_by_value={"index": index, "value": written},
    ).value
    assert value == expected
    assert repr(value.value) == repr(number)


def test_peer_stats_are_operands() -> None:
    raw = document(
        [node("BATCHNORM", {"X": 1}, {"Y": 2}, peer_stats=[tensor(7), tensor(8, "mine")])],
        [tensor(1), tensor(2)],
    )
    assert argument_names(bind_document(raw)) == ["x_ptr", "peer_stats_ptr", "mine_ptr", "y_ptr"]
    assert read(raw).nodes[0].extra == (("peer_stats", 7), ("peer_stats", 8))


def test_the_tensor_of_a_port_that_the_dump_lost_is_an_operand() -> None:
    raw = document(
        [node("REDUCTION", {"X": 1}, {"Y": 2})], [tensor(1), tensor(2), tensor(5), tensor(4)]
    )
    assert argument_names(bind_document(raw)) == ["x_ptr", "operand_ptr", "operand_2_ptr", "y_ptr"]
    assert [argument.uid for argument in bind_document(raw).arguments] == [1, 4, 5, 2]


def test_the_order_of_the_file_is_not_the_graphs() -> None:
    raw = add_graph()
    shuffled = raw | {"tensors": raw["tensors"][::-1]}
    shuffled["nodes"] = [dict(reversed(raw["nodes"][0].items()))]
    assert read(shuffled) == read(raw)


def test_an_alignment_is_read_and_16_when_absent() -> None:
    assert first_tensor().alignment == 16
    assert first_tensor(alignment=128).alignment == 128
    assert first_tensor(alignment=1).alignment == 1


def test_a_one_element_scalar_shape_is_kept() -> None:
    raw = document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3})],
        [tensor(1), scalar(2, "alpha", dim=[1, 1, 1], stride=[1, 1, 1]), tensor(3)],
    )
    assert read(raw).tensors[1].dim == (1, 1, 1)
