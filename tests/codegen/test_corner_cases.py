"""Odd but legal graphs, from the file to the text that is emitted: each has one right value."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.cython_tree import parse, shape
from support.documents import (
    Document,
    add_graph,
    argument_names,
    bind_document,
    document,
    node,
    plan_document,
    scalar,
    tensor,
    tensors,
)
from support.documents_v1 import old_document, old_tensor
from support.hostile_encoding import encode_ubjson

from codegen.render.test_render import constants
from codegen.render.test_render_hostile import HOSTILE
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.model.data_types import BITS, SCALAR_TYPES
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render

INT_MAX = 2**31 - 1
CHANGED = [
    *({"uid": uid} for uid in (0, -7, 2**62, -(2**63), 2**63 - 1)),
    *({"dim": dim} for dim in ([0, 4], [0, 0], [2**40, 1], [1, 1])),
    *({"stride": stride} for stride in ([0, 0], [-4, -1], [2**33, 1], [INT_MAX, 1], [4, 2**61])),
    *({"dim": [1] * rank, "stride": [1] * rank} for rank in (1, 3, 8, 20)),
    *({"alignment": size} for size in (1, 2, 8, 32, 2**20)),
    *({"data_type": data_type} for data_type in BITS),
    *({"reordering_type": name} for name in ("F8_128x4", "INT8x32", "F16x16", "later")),
    {"ragged_offset_uid": 2, "ragged_offset_multiplier": 2**62},
]


def emit(raw: Document) -> dict[str, str]:
    return render(bind_document(raw), "module", "source")


def operand(raw: Document, index: int = 0) -> tuple[Any, ...]:
    """One of OPERANDS: uid, argument, name, role, data type, dim, stride, alignment, default."""
    found: tuple[Any, ...] = constants(emit(raw)["module.pyx"])["OPERANDS"][index]
    return found


def with_first(**fields: Any) -> Document:
    """``y = a + b`` whose a has these fields."""
    raw = add_graph()
    raw["tensors"][0].update(fields)
    raw["nodes"][0]["inputs"]["IN_0"] = raw["tensors"][0]["uid"]
    return raw


@pytest.mark.parametrize("fields", CHANGED, ids=str)
def test_what_a_tensor_says_is_what_its_operand_says(fields: dict[str, Any]) -> None:
    expected = tensor(1) | fields
    found = operand(with_first(**fields))
    assert (found[0], found[4]) == (expected["uid"], expected["data_type"])
    assert (found[5], found[6]) == (tuple(expected["dim"]), tuple(expected["stride"]))
    elements = math.prod(expected["dim"])
    size = max(1, BITS[expected["data_type"]] // 8)
    stated = fields.get("alignment", 16)
    assert found[7] == (stated if elements > 1 else min(stated, size))


@pytest.mark.parametrize("fields", CHANGED, ids=str)
def test_no_number_changes_more_than_numbers(fields: dict[str, Any]) -> None:
    """The syntax tree is that of the clean graph, but for the minus of a negative number."""
    raw, clean = with_first(**fields), with_first()
    ranks = [len(raw["tensors"][0]["dim"]), 2]
    for document_, rank in zip((raw, clean), ranks, strict=True):
        assert rank == len(document_["tensors"][0]["stride"])
        # Not pointwise: whether an output may replace an input depends on their sizes.
        document_["nodes"][0]["tag"] = "NEW"
    clean["tensors"][0]["dim"] = clean["tensors"][0]["stride"] = [1] * ranks[0]
    if "ragged_offset_uid" in fields:
        clean["tensors"][0]["ragged_offset_uid"] = 2
    files, plain = emit(raw), emit(clean)
    for name in ("module.pyx", "module.pxd"):
        is_pxd = name.endswith("pxd")
        text = files[name]
        for number in (*raw["tensors"][0]["stride"], raw["tensors"][0]["uid"]):
            text = text.replace(str(number), str(abs(number))) if number < 0 else text
        assert shape(parse(text, is_pxd)) == shape(parse(plain[name], is_pxd))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("version", [11800, 12600])
def test_a_hostile_name_of_structure_v1_changes_literals_only(text: str, version: int) -> None:
    def emitted(name: str) -> str:
        raw = old_document(
            [node("RESHAPE", {"X": name}, {"Y": "result"})],
            [old_tensor(name), old_tensor("result")],
            version,
        )
        return emit(raw)["module.pyx"]

    assert shape(parse(emitted(text))) == shape(parse(emitted("plain")))
    assert constants(emitted(text))["OPERANDS"][0][2] == text


def test_names_that_are_alike_or_like_an_argument() -> None:
    assert argument_names(bind_document(add_graph(a="x", b="x", y="x"))) == [
        *("x_ptr", "x_2_ptr", "x_3_ptr")
    ]
    assert len(set(argument_names(bind_document(add_graph(a="in_1", b="stream", y="a"))))) == 3


@pytest.mark.parametrize(
    "name", ["", "class", "3d", "\u202eq", "'\"", "q\n", "x" * 10_000, "\u6ce8"]
)
def test_an_odd_name_gives_a_legal_argument_and_is_kept(name: str) -> None:
    raw = add_graph(a=name)
    argument = argument_names(bind_document(raw))[0]
    assert argument.isidentifier()
    assert argument.isascii()
    assert argument.endswith("_ptr")
    assert len(argument) < 60
    assert operand(raw)[2] == name


def test_a_bit_mask_has_packed_elements() -> None:
    """The mask of a dropout or a relu: one bit an element, addresses of whole bytes."""
    raw = document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, mode="CMP_GT")],
        [*tensors(1, 2), tensor(3, data_type="BOOLEAN", dim=[64, 64], stride=[64, 1])],
    )
    assert operand(raw, 2)[3:8] == ("output", "BOOLEAN", (64, 64), (64, 1), 16)


@pytest.mark.parametrize("data_type", ["FP8_E4M3", "FP8_E5M2", "FP8_E8M0", "FP4_E2M1"])
def test_block_scales(data_type: str) -> None:
    swizzled = tensor(2, "scales", data_type=data_type, reordering_type="F8_128x4")
    raw = document(
        [node("BLOCK_SCALE_DEQUANTIZE", {"X": 1, "scale": 2}, {"Y": 3})],
        [tensor(1, data_type="FP4_E2M1"), swizzled, tensor(3)],
    )
    assert argument_names(bind_document(raw)) == ["x_ptr", "scales_ptr", "y_ptr"]
    assert operand(raw, 1)[4] == data_type
    other = document(raw["nodes"], [raw["tensors"][0], swizzled | {"reordering_type": "NONE"}])
    other["tensors"].append(raw["tensors"][2])
    assert bind_document(other).fingerprint != bind_document(raw).fingerprint


def test_an_operand_without_a_type_has_that_of_the_graph() -> None:
    raw = with_first(data_type=None)
    assert operand(raw)[4] == "BFLOAT16"
    raw["context"]["io_data_type"] = "FP8_E5M2"
    assert operand(raw)[4] == "FP8_E5M2"


VALUES = [
    *((2, "7FC00000", math.nan), (2, "7F800000", math.inf), (2, "FF800000", -math.inf)),
    *((3, "7FC00000", math.nan), (3, "7F800000", math.inf), (3, "FF800000", -math.inf)),
    *((5, "7FC00000", math.nan), (5, "7F800000", math.inf), (5, "FF800000", -math.inf)),
    *((4, math.nan, math.nan), (4, math.inf, math.inf), (4, -math.inf, -math.inf)),
    *((0, -(2**63), -(2**63)), (0, 2**63 - 1, 2**63 - 1), (1, -(2**31), -(2**31)), (1, 7, 7)),
]


@pytest.mark.parametrize(("index", "written", "expected"), VALUES, ids=str)
def test_scalars_of_each_type(index: int, written: Any, expected: float) -> None:
    value = {"index": index, "value": written}
    graph = document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3})],
        [tensor(1), scalar(2, "alpha", value), tensor(3)],
    )
    # As a plan, in the frontend's own UBJSON: JSON has no NaN.
    binding = bind(read_graph(encode_ubjson(plan_document(graph))))
    found = constants(render(binding, "module", "source")["module.pyx"])["OPERANDS"][2]
    assert found[3:5] == ("scalar", SCALAR_TYPES[index])
    assert repr(found[8]) == repr(expected)


def test_a_chain_of_sixty_nodes_is_a_function_of_three_arguments() -> None:
    nodes = [node("POINTWISE", {"IN_0": i, "IN_1": 100}, {"OUT_0": i + 1}) for i in range(60)]
    items = [tensor(i, is_virtual=0 < i < 60) for i in [*range(61), 100]]
    text = emit(document(nodes, items))["module.pyx"]
    assert "def execute(in_0_ptr, in_1_ptr, out_0_ptr, workspace_ptr=0, stream=0):" in text
    assert sum(item["is_virtual"] for item in items) == 59


def test_a_result_that_another_node_reads_is_one_output() -> None:
    nodes = [node("RESHAPE", {"X": 1}, {"Y": 2}), node("RESHAPE", {"X": 2}, {"Y": 3})]
    raw = document(nodes, tensors(1, 2, 3))
    roles = [(found[0], found[3]) for found in (operand(raw, index) for index in range(3))]
    assert roles == [(1, "input"), (2, "output"), (3, "output")]


def test_a_tensor_at_two_ports_is_one_argument() -> None:
    raw = document([node("POINTWISE", {"IN_0": 1, "IN_1": 1}, {"OUT_0": 2})], tensors(1, 2))
    assert argument_names(bind_document(raw)) == ["in_0_ptr", "out_0_ptr"]


def test_ragged_offsets_that_tensors_share() -> None:
    shared = [tensor(uid, ragged_offset_uid=9) for uid in (2, 3)]
    raw = document(
        [node("SDPA", {"Q": 1, "K": 2, "V": 3}, {"O": 4})],
        [tensor(1, ragged_offset_uid=8), *shared, *tensors(4, 8, 9)],
    )
    assert argument_names(bind_document(raw)) == [
        *("q_ptr", "k_ptr", "v_ptr", "q_ragged_offset_ptr", "k_ragged_offset_ptr", "o_ptr")
    ]
