"""Which tensors the caller binds, in which order, under which names and rules."""

from __future__ import annotations

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
    plan_document,
    scalar,
    tensor,
    tensors,
)
from support.expected_arguments import EXPECTED

from cudnn_bindgen.codegen.bind.binding import Argument, bind
from cudnn_bindgen.codegen.read.graph import read_graph


def arguments_by_name(raw: Document) -> dict[str, Argument]:
    return {argument.argument: argument for argument in bind_document(raw).arguments}


def test_expectations_are_for_all_real_files() -> None:
    assert sorted(EXPECTED) == sorted(map(file_id, READABLE))


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_arguments_of_real_files(path: Path) -> None:
    arguments = bind(read_graph(path.read_bytes())).arguments
    assert [f"{a.argument} {a.uid} {a.role} {a.data_type} {a.alignment}" for a in arguments] == [
        line.strip() for line in EXPECTED[file_id(path)].strip().splitlines()
    ]
    assert [argument.slot for argument in arguments] == list(range(len(arguments)))


def test_arguments_come_in_port_order_whatever_the_uids_are() -> None:
    inputs = {"Seed": 1, "V": 2, "Bias": 3, "Q": 4, "K": 5, "Attn_scale": 6, "Offset": 7}
    raw = document(
        [node("SDPA", inputs, {"Stats": 8, "O": 9})],
        [tensor(uid) for uid in (1, 2, 3, 4, 5, 7, 8, 9)] + [scalar(6)],
    )
    assert argument_names(bind_document(raw)) == [
        *("q_ptr", "k_ptr", "v_ptr", "bias_ptr", "seed_ptr", "offset_ptr", "o_ptr", "stats_ptr"),
        "attn_scale",
    ]


def test_groups_of_several_nodes_are_required_optional_output_scalar() -> None:
    raw = document(
        [
            node("RMS_NORM", {"X": 1, "SCALE": 2, "EPSILON": 3, "BIAS": 4}, {"Y": 5}),
            node("MATMUL", {"A": 5, "B": 6, "M_override": 7}, {"C": 8}),
        ],
        [*tensors(1, 2, 4, 6, 7, 8), scalar(3), tensor(5, is_virtual=True)],
    )
    binding = bind_document(raw)
    assert argument_names(binding) == [
        *("x_ptr", "scale_ptr", "b_ptr", "bias_ptr", "m_override_ptr", "c_ptr", "epsilon")
    ]
    assert [a.role for a in binding.arguments] == ["input"] * 5 + ["output", "scalar"]
    assert binding.operands == binding.arguments[:-1]
    assert binding.scalars == binding.arguments[-1:]


def test_a_tensor_used_twice_is_one_argument() -> None:
    raw = document([node("POINTWISE", {"IN_0": 1, "IN_1": 1}, {"OUT_0": 2})], tensors(1, 2))
    assert argument_names(bind_document(raw)) == ["in_0_ptr", "out_0_ptr"]


def test_an_output_that_another_node_reads_is_one_output() -> None:
    raw = document(
        [node("A", {"X": 1}, {"Y": 2}), node("B", {"IN": 2, "X": 1}, {"OUT": 3})],
        tensors(1, 2, 3),
    )
    binding = bind_document(raw)
    assert argument_names(binding) == ["x_ptr", "y_ptr", "out_ptr"]
    assert [argument.role for argument in binding.arguments] == ["input", "output", "output"]


def test_a_tensor_written_in_place_is_one_output() -> None:
    raw = document([node("SCATTER", {"A": 1, "B": 2}, {"C": 2})], tensors(1, 2))
    binding = bind_document(raw)
    assert [(a.argument, a.role) for a in binding.arguments] == [
        ("a_ptr", "input"),
        ("b_ptr", "output"),
    ]


def test_sixty_nodes_with_virtual_tensors_between_them_have_three_arguments() -> None:
    nodes = [node("POINTWISE", {"IN_0": i, "IN_1": 100}, {"OUT_0": i + 1}) for i in range(60)]
    items = [tensor(i, is_virtual=0 < i < 60) for i in [*range(61), 100]]
    binding = bind_document(document(nodes, items))
    assert argument_names(binding) == ["in_0_ptr", "in_1_ptr", "out_0_ptr"]
    assert binding.nodes == ("POINTWISE",) * 60


def test_operands_with_the_same_port_are_numbered_whether_or_not_they_have_names() -> None:
    nodes = [node("POINTWISE", {"IN_0": i, "IN_1": 10 + i}, {"OUT_0": i + 1}) for i in range(3)]
    names = {11: "mine"}
    items = [tensor(i, is_virtual=0 < i < 3) for i in range(4)]
    items += [tensor(10 + i, names.get(10 + i, "")) for i in range(3)]
    binding = bind_document(document(nodes, items))
    assert argument_names(binding) == [
        *("in_0_ptr", "in_1_ptr", "mine_ptr", "in_1_3_ptr", "out_0_ptr")
    ]


@pytest.mark.parametrize("port", ["7", "7_x", "\u00b2", "class", "int", "", "\u6ce8", "X" * 60])
def test_any_port_of_an_unknown_tag_makes_a_legal_name(port: str) -> None:
    raw = document([node("NEW", {port: 1}, {"Y": 2})], tensors(1, 2))
    (name, _) = argument_names(bind_document(raw))
    assert name.isidentifier()
    assert name.isascii()


def test_ports_that_look_like_numbered_ports_keep_their_names() -> None:
    raw = document(
        [node("NEW", {"IN_1": 1, "in_1": 2, "in_1_2": 3}, {"Y": 4})],
        tensors(1, 2, 3, 4),
    )
    names = argument_names(bind_document(raw))
    assert len(set(names)) == 4
    assert {"in_1_ptr", "in_1_2_ptr"} < set(names)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    "name", ["other", "in_0", "in_1", "out_0", "workspace", "stream", "a", "::"]
)
def test_renaming_one_tensor_changes_no_other_argument(index: int, name: str) -> None:
    raw = add_graph()
    before = argument_names(bind_document(raw))
    raw["tensors"][index]["name"] = name
    after = argument_names(bind_document(raw))
    assert after[:index] + after[index + 1 :] == before[:index] + before[index + 1 :]
    assert len(set(after)) == 3


def ragged(uid: int, offset: int, name: str = "") -> Document:
    return tensor(uid, name, ragged_offset_uid=offset)


def test_a_ragged_offset_is_named_after_its_owner_and_shared_once() -> None:
    raw = document(
        [node("SDPA", {"Q": 1, "K": 2, "V": 3, "Bias": 4}, {"O": 5})],
        [ragged(1, 9), ragged(2, 8), ragged(3, 8), ragged(5, 9, "mine"), *tensors(4, 8, 9)],
    )
    binding = bind_document(raw)
    assert argument_names(binding) == [
        *("q_ptr", "k_ptr", "v_ptr", "bias_ptr", "q_ragged_offset_ptr", "k_ragged_offset_ptr"),
        "mine_ptr",
    ]
    assert [argument.role for argument in binding.arguments] == ["input"] * 6 + ["output"]


def test_a_ragged_offset_has_the_number_of_its_owner() -> None:
    raw = document(
        [node("RELU", {"X": 1}, {"Y": 2}), node("RELU", {"X": 3}, {"Y": 4})],
        [tensor(1, "a"), tensor(2), ragged(3, 5, "b"), tensor(4), tensor(5)],
    )
    assert argument_names(bind_document(raw)) == [
        *("a_ptr", "b_ptr", "x_2_ragged_offset_ptr", "y_ptr", "y_2_ptr")
    ]


def test_ragged_offsets_of_numbered_ports_and_of_virtual_tensors() -> None:
    raw = document(
        [node("CONCATENATE", {"0": 1, "1": 2}, {"Y": 3}), node("RELU", {"X": 3}, {"Y": 4})],
        [ragged(1, 5), ragged(3, 6) | {"is_virtual": True}, *tensors(2, 4, 5, 6)],
    )
    assert argument_names(bind_document(raw)) == [
        *("in_0_ptr", "in_1_ptr", "in_0_ragged_offset_ptr", "y_ragged_offset_ptr", "y_ptr")
    ]


def test_a_ragged_offset_that_a_node_writes_is_an_output() -> None:
    raw = document(
        [node("RELU", {"X": 1}, {"Y": 2}), node("SCAN", {"A": 3}, {"B": 5})],
        [ragged(1, 5), tensor(2), tensor(3), tensor(5)],
    )
    assert arguments_by_name(raw)["x_ragged_offset_ptr"].role == "output"


ALIGNED = [
    ("POINTWISE", "IN_0", {}, 16),
    ("POINTWISE", "IN_0", {"alignment": 64}, 64),
    ("POINTWISE", "IN_0", {"alignment": 1}, 1),
    ("POINTWISE", "IN_0", {"dim": [1, 1]}, 2),  # one element
    ("POINTWISE", "IN_0", {"dim": [1, 1], "alignment": 1}, 1),
    ("POINTWISE", "IN_0", {"dim": [0, 4]}, 2),
    ("POINTWISE", "IN_0", {"dim": [1, 1], "data_type": "FP4_E2M1"}, 1),
    ("SDPA", "SEQ_LEN_Q", {"data_type": "INT32"}, 4),
    ("SDPA", "SEQ_LEN_Q", {"data_type": "INT32", "alignment": 2}, 2),
    ("SDPA", "Page_table_K", {"data_type": "INT32"}, 4),
    ("SDPA", "Bias", {"data_type": "FLOAT"}, 16),
    ("SDPA_FP8_FWD", "Descale_Q", {"data_type": "FLOAT"}, 4),
    ("SDPA_MXFP8_FWD", "Descale_Q", {"data_type": "FP8_E8M0"}, 16),
]


@pytest.mark.parametrize(("tag", "port", "fields", "expected"), ALIGNED)
def test_alignment_that_is_asked_of_the_caller(
    tag: str, port: str, fields: dict[str, Any], expected: int
) -> None:
    raw = document([node(tag, {port: 1}, {"Y": 2})], [tensor(1, **fields), tensor(2)])
    assert bind_document(raw).arguments[0].alignment == expected


def test_a_ragged_offset_needs_the_alignment_of_an_element() -> None:
    raw = document(
        [node("RELU", {"X": 1}, {"Y": 2})],
        [ragged(1, 3), tensor(2), tensor(3, data_type="INT64", dim=[65], stride=[1])],
    )
    assert arguments_by_name(raw)["x_ragged_offset_ptr"].alignment == 8


@pytest.mark.parametrize(("listed", "expected"), [(32, 32), (1, 1), (0, 1)])
def test_what_the_plan_lists_is_what_is_asked(listed: int, expected: int) -> None:
    raw = plan_document(add_graph(), aligned_operands={"1": [listed, 2]})
    assert bind_document(raw).arguments[0].alignment == expected
    assert bind_document(raw).arguments[1].alignment == 16


def test_empty_graphs() -> None:
    raw = add_graph()
    assert not bind_document(raw).is_empty
    raw["tensors"][0]["dim"] = [0, 4]
    assert not bind_document(raw).is_empty  # an empty input may still leave work to do
    raw["tensors"][2]["dim"] = [2, 0]
    assert bind_document(raw).is_empty


def test_a_graph_with_one_output_that_has_elements_is_not_empty() -> None:
    raw = document([node("A", {"X": 1}, {"Y": 2, "Z": 3})], tensors(1, 2, 3))
    raw["tensors"][1]["dim"] = [0, 4]
    assert not bind_document(raw).is_empty


@pytest.mark.parametrize("flag", [True, False])
def test_the_override_flag_is_read(flag: bool) -> None:
    raw = add_graph()
    raw["context"]["is_override_shape_enabled"] = flag
    assert bind_document(raw).is_override_shape_enabled is flag
    del raw["context"]["is_override_shape_enabled"]
    assert bind_document(raw).is_override_shape_enabled is False
