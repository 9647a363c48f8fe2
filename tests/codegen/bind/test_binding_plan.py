"""Scalars with and without a plan, and what belongs to the plan rather than to the graph."""

from __future__ import annotations

from typing import Any

import pytest
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
)

from cudnn_bindgen.codegen.model.graph import Scalar
from cudnn_bindgen.module_data import PlanParts

HALF_BITS = {"index": 3, "value": "3F000000"}
HALF = Scalar("FLOAT", b"\0\0\0\x3f")  # 0.5


def scale_graph(alpha: Document) -> Document:
    """``y = x * alpha`` with a scalar alpha of uid 2."""
    return document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, mode="MUL")],
        [tensor(1, "x"), alpha, tensor(3, "y")],
    )


def parts(raw: Document) -> PlanParts:
    [plan] = bind_document(raw).plans
    return plan


# What a file says of alpha, and what becomes of it without a plan, with one that binds it, and
# with one that does not.
KINDS = {
    "value and a name of the frontend's": (
        scalar(2, "tensor_1", HALF_BITS),
        ("constant", "constant", "constant"),
    ),
    "value and a port's name": (
        scalar(2, "m::IN_1", HALF_BITS),
        ("constant", "constant", "constant"),
    ),
    "value and a user's name": (
        scalar(2, "alpha", HALF_BITS),
        ("default", "default", "constant"),
    ),
    "no value": (scalar(2, "alpha"), ("required", "required", "constant")),
    "no value and no name": (scalar(2), ("required", "required", "constant")),
}


def kind(raw: Document) -> str:
    scalars = bind_document(raw).scalars
    if not scalars:
        return "constant"
    (alpha,) = scalars
    assert (alpha.uid, alpha.role, alpha.alignment, alpha.slot) == (2, "scalar", 1, 2)
    assert alpha.default in (None, HALF)
    return "default" if alpha.default else "required"


@pytest.mark.parametrize(("alpha", "expected"), KINDS.values(), ids=KINDS)
def test_three_kinds_of_scalar(alpha: Document, expected: tuple[str, str, str]) -> None:
    raw = scale_graph(alpha)
    bits = {"2": HALF_BITS} if alpha["pass_by_value"] else {}
    bound = plan_document(raw, pass_by_values=bits)
    unbound = plan_document(raw, variant_pack_uids=[1, 3])
    assert (kind(raw), kind(bound), kind(unbound)) == expected


def test_scalars_with_a_default_come_after_those_without() -> None:
    raw = document(
        [node("BATCHNORM", {"X": 1, "EPSILON": 2, "MOMENTUM": 3}, {"Y": 4})],
        [tensor(1), scalar(2, "eps", HALF_BITS), scalar(3, "momentum"), tensor(4)],
    )
    assert argument_names(bind_document(raw)) == ["x_ptr", "y_ptr", "momentum", "eps"]


def test_the_type_of_a_default_is_that_of_its_value() -> None:
    raw = scale_graph(scalar(2, "alpha", {"index": 4, "value": 0.1}, data_type=None))
    assert bind_document(raw).scalars[0].data_type == "DOUBLE"


def test_constants_are_the_plans_values_that_no_argument_gives() -> None:
    raw = plan_document(
        scale_graph(scalar(2, "alpha", HALF_BITS)),
        variant_pack_uids=[1, 2, 3, 50],
        pass_by_values={"2": HALF_BITS, "50": {"index": 3, "value": "FF800000"}},
    )
    assert argument_names(bind_document(raw)) == ["x_ptr", "y_ptr", "alpha"]
    assert parts(raw).constants == ((50, b"\0\0\x80\xff"),)
    assert parts(raw).uids == (1, 2, 3)


def test_a_baked_scalar_is_a_constant_of_the_plan() -> None:
    raw = plan_document(
        scale_graph(scalar(2, "tensor_1", HALF_BITS)), pass_by_values={"2": HALF_BITS}
    )
    assert argument_names(bind_document(raw)) == ["x_ptr", "y_ptr"]
    assert parts(raw).constants == ((2, HALF.data),)
    assert parts(raw).uids == (1, 3)


def test_a_scalar_without_a_value_that_the_plan_has_is_not_asked_for() -> None:
    raw = plan_document(scale_graph(scalar(2, "alpha")), pass_by_values={"2": HALF_BITS})
    assert argument_names(bind_document(raw)) == ["x_ptr", "y_ptr"]
    assert parts(raw).constants == ((2, HALF.data),)


def test_tensors_that_live_in_the_workspace_are_not_asked_for() -> None:
    structure = add_graph()
    structure["tensors"].append(tensor(7, "scratch", is_virtual=True))
    raw = plan_document(
        structure,
        variant_pack_uids=[1, 2, 3, 7, 60],
        workspace_modifications={"7": [1, 16, [48]], "60": [0, 0, [1.5, 2]]},
        fe_workspace_size=64,
    )
    assert argument_names(bind_document(raw)) == ["in_0_ptr", "in_1_ptr", "out_0_ptr"]
    assert parts(raw).workspace_parts == ((7, 1, 16, (48.0,)), (60, 0, 0, (1.5, 2.0)))
    assert parts(raw).workspace_size == 64


def test_a_replaced_operand_is_asked_for_and_kept_from_cudnn() -> None:
    raw = plan_document(
        add_graph(), variant_pack_uids=[1, 70, 3], variant_pack_replacements=[[2, [70, 64]]]
    )
    assert argument_names(bind_document(raw)) == ["in_0_ptr", "in_1_ptr", "out_0_ptr"]
    assert parts(raw).replacements == ((2, 70, 64),)
    assert parts(raw).dropped == (2,)
    assert parts(raw).uids == (1, 2, 3)


def test_a_source_that_cudnn_binds_too_is_not_dropped() -> None:
    raw = plan_document(
        add_graph(), variant_pack_uids=[1, 2, 70, 3], variant_pack_replacements=[[2, [70, 64]]]
    )
    assert parts(raw).dropped == ()


def test_a_tensor_that_replaces_another_is_not_asked_for() -> None:
    structure = add_graph()
    structure["tensors"].append(tensor(70, "view"))
    raw = plan_document(structure, variant_pack_replacements=[[2, [70, 0]]])
    assert argument_names(bind_document(raw)) == ["in_0_ptr", "in_1_ptr", "out_0_ptr"]


def test_what_the_plan_does_not_bind_is_not_asked_for_but_keeps_its_number() -> None:
    def raw(**fields: Any) -> Document:
        nodes = [node("POINTWISE", {"IN_0": 1, "IN_1": 10 + i}, {"OUT_0": 20 + i}) for i in (0, 1)]
        uids = [1, 10, 11, 20, 21]
        return plan_document(document(nodes, [tensor(uid) for uid in uids]), **fields)

    assert argument_names(bind_document(raw(variant_pack_uids=[1, 11, 20, 21]))) == [
        *("in_0_ptr", "in_1_2_ptr", "out_0_ptr", "out_0_2_ptr")
    ]


def test_plan_and_structure_share_arguments_and_fingerprint() -> None:
    with_plan, without = bind_document(plan_document(add_graph())), bind_document(add_graph())
    assert with_plan.arguments == without.arguments
    assert with_plan.fingerprint == without.fingerprint
    assert parts(plan_document(add_graph())).fingerprint == without.fingerprint
    assert without.plans == ()
