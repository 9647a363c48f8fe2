"""The plan half of a plan file: what must agree with the structure; files that are cut short."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.documents import PLANS, add_graph, plan_document, to_ubjson, with_remedy

from cudnn_bindgen.codegen.bind.plan_file import read_plans
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Replacement, Scalar, WorkspacePart
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.module_data import PlanParts

TRUNCATED = "(is the file truncated? write it again from graph.serialize())"
OTHER_CUDNN = "(was the plan written by another cuDNN major version, or cut off?)"
OTHER = "(plan and structure are of different graphs: write the file again with serialize())"
HALF_BITS = {"index": 2, "value": "3F800000"}


def refusal(data: bytes) -> str:
    with pytest.raises(GraphFormatError) as caught:
        read_graph(data, "F")
    return str(caught.value)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown uid": (
        {"variant_pack_uids": [1, 2, 3, 9]},
        "$.variant_pack_uids: expected uids of tensors, constants or workspace parts, got 9 "
        + OTHER,
    ),
    "uids of another type": (
        {"variant_pack_uids": [1, "2"]},
        "$.variant_pack_uids[1]: expected int, got str",
    ),
    "part outside": (
        {"workspace_modifications": {"7": [1, 16, [1.0]]}, "fe_workspace_size": 16},
        "$.workspace_modifications.7: expected a part inside the 16 bytes of fe_workspace_size, "
        "got bytes 16 to 17",
    ),
    "copied part outside": (
        {"workspace_modifications": {"7": [0, 0, [1.0, 2.0]]}, "fe_workspace_size": 4},
        "$.workspace_modifications.7: expected a part inside the 4 bytes of fe_workspace_size, "
        "got bytes 0 to 8",
    ),
    "address outside": (
        {"workspace_modifications": {"7": [2, 5, []]}, "fe_workspace_size": 4},
        "$.workspace_modifications.7: expected a part inside the 4 bytes of fe_workspace_size, "
        "got bytes 5 to 5",
    ),
    "size of a zeroed part": (
        {"workspace_modifications": {"7": [1, 0, [1.0, 2.0]]}, "fe_workspace_size": 16},
        "$.workspace_modifications.7: expected one size in bytes to set to zero",
    ),
    "negative size": (
        {"workspace_modifications": {"7": [1, 0, [-1.0]]}, "fe_workspace_size": 16},
        "$.workspace_modifications.7: expected one size in bytes to set to zero",
    ),
    "operation": (
        {"workspace_modifications": {"7": [3, 0, []]}},
        "$.workspace_modifications[...][0]: expected int <= 2",
    ),
    "part's uid": (
        {"workspace_modifications": {"q": [2, 0, []]}},
        "$.workspace_modifications.q: expected a uid as the key",
    ),
    "constant's uid": (
        {"pass_by_values": {"\u00b2": HALF_BITS}},
        "$.pass_by_values.\\xb2: expected a uid as the key",
    ),
    "uid over int64": (
        {"pass_by_values": {str(2**63): HALF_BITS}},
        f"$.pass_by_values.{2**63}: expected a uid as the key",
    ),
    "uid under int64": (
        {"pass_by_values": {str(-(2**63) - 1): HALF_BITS}},
        f"$.pass_by_values.{-(2**63) - 1}: expected a uid as the key",
    ),
    "endless uid": (
        {"pass_by_values": {"1" * 5000: HALF_BITS}},
        f"$.pass_by_values.{'1' * 280}...: expected a uid as the key",
    ),
    "uid twice": (
        {"pass_by_values": {"7": HALF_BITS, "07": HALF_BITS}},
        "$.pass_by_values.07: expected each uid once, got 7 twice",
    ),
    "constant's bits": (
        {"pass_by_values": {"7": {"index": 2, "value": "3C"}}},
        "$.pass_by_values.7.value: expected 8 hex digits, "
        "the bits of a FLOAT that a HALF can hold, got '3C'",
    ),
    "replacement of nothing": (
        {"variant_pack_replacements": [[9, [8, 0]]]},
        f"$.variant_pack_replacements: expected the uid of a tensor, got 9 {OTHER}",
    ),
    "output that it does not bind": (
        {"variant_pack_uids": [1, 2]},
        "$.variant_pack_uids: expected every output of the graph, got none with uid 3, "
        f"$.nodes[0].outputs.OUT_0 {OTHER}",
    ),
    "constant for an operand": (
        {"pass_by_values": {"1": HALF_BITS}},
        "$.pass_by_values.1: expected the uid of a scalar, got 1, a tensor in device memory "
        + OTHER,
    ),
    "operand in the workspace": (
        {"workspace_modifications": {"1": [2, 0, []]}},
        "$.workspace_modifications.1: expected a tensor of the frontend's own, got 1, $.tensors[0] "
        + OTHER,
    ),
    "constant in the workspace": (
        {
            "pass_by_values": {"7": HALF_BITS},
            "workspace_modifications": {"7": [2, 0, []]},
        },
        "$.workspace_modifications: expected one place for the address of 7, "
        "got pass_by_values too",
    ),
    "replacement by itself": (
        {"variant_pack_replacements": [[1, [1, 0]]]},
        "$.variant_pack_replacements: expected one place for the address of 1, "
        "got variant_pack_replacements too",
    ),
    "replaced twice": (
        {"variant_pack_replacements": [[1, [8, 0]], [2, [8, 0]]]},
        "$.variant_pack_replacements: expected one place for the address of 8, "
        "got variant_pack_replacements too",
    ),
    "replacement before the tensor": (
        {"variant_pack_replacements": [[1, [8, -1]]]},
        "$.variant_pack_replacements[0][1][1]: expected int >= 0",
    ),
    "size that no float is": (
        {"workspace_modifications": {"7": [1, 0, ["4580000"]]}},
        "$.workspace_modifications.7[2]: expected 8 hex digits, the bits of a FLOAT, got '4580000'",
    ),
    "value that no float has": (
        {"workspace_modifications": {"7": [0, 0, [1e300]]}, "fe_workspace_size": 4},
        "$.workspace_modifications.7[2]: expected a FLOAT, got 1e+300",
    ),
    "backend's version as a negative number": (
        {"cudnn_backend_data": '{"cudnnVersion": -1, "GPUProfile": {"deviceVer": 900}}'},
        f"$.cudnn_backend_data.cudnnVersion: expected int >= 0 {OTHER_CUDNN}",
    ),
    "alignment that no mask can check": (
        {"aligned_operands": {"1": [12, 2]}},
        "$.aligned_operands.1: expected a power of two, got 12",
    ),
    "backend's JSON": (
        {"cudnn_backend_data": "{"},
        f"$.cudnn_backend_data: expected the plan as JSON text, got broken JSON {OTHER_CUDNN}",
    ),
    "backend's version": (
        {"cudnn_backend_data": "{}"},
        '$.cudnn_backend_data: expected a field "cudnnVersion", got none ' + OTHER_CUDNN,
    ),
    "backend's GPU": (
        {"cudnn_backend_data": '{"cudnnVersion": 1, "GPUProfile": {"deviceVer": "x"}}'},
        f"$.cudnn_backend_data.GPUProfile.deviceVer: expected int, got str {OTHER_CUDNN}",
    ),
    "more knobs than engines have": (
        {
            "cudnn_backend_data": json.dumps(
                {
                    "cudnnVersion": 91900,
                    "GPUProfile": {"deviceVer": 900},
                    "engine": {"knobChoices": {str(index): index for index in range(1001)}},
                }
            )
        },
        "$.cudnn_backend_data.engine.knobChoices: expected object of length <= 1000 " + OTHER_CUDNN,
    ),
    "knob of no sort": (
        {
            "cudnn_backend_data": json.dumps(
                {
                    "cudnnVersion": 91900,
                    "GPUProfile": {"deviceVer": 900},
                    "engine": {"knobChoices": {"x" * 100_001: 1}},
                }
            )
        },
        "$.cudnn_backend_data.engine.knobChoices: expected names with 100000 characters in "
        "all, got 100001 " + OTHER_CUDNN,
    ),
    "backend is an object": (
        {"cudnn_backend_data": {}},
        "$.cudnn_backend_data: expected str, got object",
    ),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
def test_a_broken_plan_is_refused_with_place_and_reason(
    fields: dict[str, Any], message: str
) -> None:
    assert refusal(to_ubjson(plan_document(add_graph(), **fields))) == with_remedy(f"F: {message}")


@pytest.mark.parametrize("field", ["variant_pack_uids", "fe_workspace_size"])
def test_a_missing_field_is_named(field: str) -> None:
    raw = plan_document(add_graph())
    del raw[field]
    assert refusal(to_ubjson(raw)) == with_remedy(f'F: $: expected a field "{field}", got none')


@pytest.mark.parametrize("field", ["nodes", "tensors"])
def test_a_plan_without_structure_says_how_to_write_one_with_it(field: str) -> None:
    raw = plan_document(add_graph())
    del raw[field]
    assert refusal(to_ubjson(raw)) == (
        f'F: $: expected a field "{field}", got a plan without its structure '
        "(serialize the graph with its structure (serialize_structure=true))"
    )


def test_a_plan_cut_short_at_any_byte_is_refused() -> None:
    data = to_ubjson(plan_document(add_graph()))
    read_graph(data)
    for length in range(len(data)):
        assert refusal(data[:length]).startswith("F: expected a ")


def test_a_real_plan_cut_short_asks_whether_it_is() -> None:
    data = PLANS[0].read_bytes()
    for length in range(2, len(data), 997):
        assert refusal(data[:length]).endswith(TRUNCATED)


def test_any_byte_of_a_plan_changed_is_read_or_refused() -> None:
    data = to_ubjson(plan_document(add_graph()))
    refused = 0
    for index in range(len(data)):
        for byte in (0x00, 0x7F, 0x80, 0xFF, ord("["), ord("{"), ord("Z"), ord("L")):
            try:
                read_plans(data[:index] + bytes([byte]) + data[index + 1 :])
            except GraphFormatError:
                refused += 1
    assert refused > len(data)


def test_everything_of_a_plan_is_kept() -> None:
    backend = {
        "cudnnVersion": 92701,
        "GPUProfile": {"deviceVer": 1000, "more": 1},
        "engine": {"engineId": 8, "knobChoices": {"CUDNN_KNOB_TYPE_TILE": 3, "B": 1}},
    }
    text = json.dumps(backend)
    raw = plan_document(
        add_graph(),
        cudnn_backend_data=text,
        variant_pack_uids=[3, 1, 1, 50, 60, 70],
        pass_by_values={"50": {"index": 3, "value": "FF800000"}, "-4": HALF_BITS},
        workspace_modifications={"60": [0, 8, [1.5, -2]], "61": [1, 16, [16]], "62": [2, 32, []]},
        variant_pack_replacements=[[2, [70, 64]]],
        aligned_operands={"1": [32, 2], "2": [0, 2]},
        fe_workspace_size=32,
        behavior_notes=[["RUNTIME_COMPILATION", None], []],
    )
    graph = read_graph(to_ubjson(raw))
    assert graph.dialect == "plan"
    plan = graph.plan
    assert plan is not None
    assert (plan.text, plan.cudnn_version, plan.sm) == (text, 92701, 100)
    assert plan.engine == "engine 8 B=1 TILE=3"
    assert plan.variant_pack_uids == (1, 3, 50, 60, 70)
    assert plan.constants == (
        (-4, Scalar("HALF", b"\x00\x3c")),
        (50, Scalar("FLOAT", b"\x00\x00\x80\xff")),
    )
    assert plan.workspace_parts == (
        WorkspacePart(60, 0, 8, (1.5, -2.0)),
        WorkspacePart(61, 1, 16, (16.0,)),
        WorkspacePart(62, 2, 32, ()),
    )
    assert plan.replacements == (Replacement(2, 70, 64),)
    assert plan.aligned_operands == ((1, 32), (2, 0))
    assert plan.frontend_workspace_size == 32
    assert plan.behavior_notes == ("RUNTIME_COMPILATION",)


def test_what_older_frontends_leave_out_is_empty() -> None:
    raw = plan_document(add_graph())
    for field in ("aligned_operands", "behavior_notes", "pass_by_values"):
        del raw[field]
    plan = read_graph(to_ubjson(raw)).plan
    assert plan is not None
    assert (plan.aligned_operands, plan.behavior_notes, plan.constants) == ((), (), ())


def test_load_plan_refuses_a_structure_file() -> None:
    with pytest.raises(GraphFormatError) as caught:
        read_plans(json.dumps(add_graph()).encode())
    assert str(caught.value) == (
        "plan: expected a plan, got structure only "
        '(write the file with graph.serialize(), or load it with on_missing="plan")'
    )
    assert read_plans(json.dumps(add_graph()).encode(), may_be_none=True) == ()


def test_load_plan_reads_the_plan_of_a_file() -> None:
    [parts] = read_plans(to_ubjson(plan_document(add_graph())))
    [same] = read_plans(to_ubjson(plan_document(add_graph())), may_be_none=True)
    assert parts == same
    assert isinstance(parts, PlanParts)
