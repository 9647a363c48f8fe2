"""Values of constants of compile time are asked for, never guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.documents import Document, document, node, plan_document, scalar, tensor

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.graph import read_document
from cudnn_bindgen.frontend.planning.constants import Constants, parse_constants, resolve_constants
from cudnn_bindgen.frontend.planning.structure import read_structure

MADE_UP = "mul::IN_1"


def scaled(*scalars: Document) -> Document:
    """A product of a tensor and each of some scalars, in a chain."""
    nodes, operands = [], [tensor(1, "x"), *scalars]
    last = 1
    for index, item in enumerate(scalars):
        output = 50 + index
        name = "mul" if not index else f"mul{index}"
        inputs = {"IN_0": last, "IN_1": item["uid"]}
        nodes.append(node("POINTWISE", inputs, {"OUT_0": output}, name=name, mode="MUL"))
        operands.append(tensor(output, is_virtual=index < len(scalars) - 1))
        last = output
    return document(nodes, operands)


def resolved(raw: Document, *said: str, arguments: tuple[str, ...] = ()) -> dict[int, Any]:
    structure = read_structure(read_document(json.dumps(raw).encode()))
    return resolve_constants(structure, parse_constants(said, arguments))


def refused(raw: Document, *said: str, arguments: tuple[str, ...] = ()) -> str:
    with pytest.raises(PlanError) as caught:
        resolved(raw, *said, arguments=arguments)
    return str(caught.value)


def test_a_made_up_name_is_asked_for() -> None:
    raw = scaled(scalar(2, MADE_UP))
    assert refused(raw) == (
        f'$.tensors[1]: expected the value of "{MADE_UP}", got a scalar without one, which may be '
        f'a constant of compile time (pass --const "{MADE_UP}=VALUE", or --argument "{MADE_UP}" '
        "if callers pass it)"
    )
    assert resolved(raw, f"{MADE_UP}=0.5") == {2: 0.5}
    assert resolved(raw, arguments=(MADE_UP,)) == {}
    both = refused(raw, f"{MADE_UP}=0.5", arguments=(MADE_UP,))
    assert "expected --const or --argument, got both" in both


@pytest.mark.parametrize("name", ["alpha", "tensor_3", "mul::IN_0", "", "other::IN_1"])
def test_a_name_that_a_user_chose_is_an_argument(name: str) -> None:
    assert resolved(scaled(scalar(2, name))) == {}


def test_a_named_scalar_may_be_a_constant_all_the_same() -> None:
    assert resolved(scaled(scalar(2, "alpha")), "alpha=2") == {2: 2.0}


def test_a_value_in_the_file_is_never_asked_for() -> None:
    raw = scaled(scalar(2, MADE_UP, {"index": 3, "value": "3F000000"}))
    assert resolved(raw) == {}
    assert "expected a scalar without a value, got no such tensor" in refused(raw, f"{MADE_UP}=1")


def test_a_plan_file_tells_constants_from_arguments() -> None:
    raw = scaled(scalar(2, MADE_UP), scalar(3, "mul1::IN_1"), scalar(4, "named"))
    plan = plan_document(raw, variant_pack_uids=[1, 3, 52])
    # Uid 4 is not bound, whatever its name: a constant.
    assert refused(plan).startswith(
        f'$.tensors[1]: expected the value of "{MADE_UP}", got a constant of compile time, '
        "whose value the file does not have"
    )
    assert resolved(plan, f"{MADE_UP}=1", "named=2") == {2: 1.0, 4: 2.0}
    assert "expected a constant, got a scalar that callers pass" in refused(plan, "mul1::IN_1=1")


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        ("FLOAT", "0.1", 0.10000000149011612),
        ("FLOAT", "-inf", float("-inf")),
        ("FLOAT", "1e-45", 1.401298464324817e-45),
        ("DOUBLE", "0.1", 0.1),
        ("INT32", "-3", -3),
        ("INT64", "0x10", 16),
        ("INT64", str(2**62), 2**62),
    ],
)
def test_values_have_the_scalars_type(data_type: str, text: str, value: float) -> None:
    found = resolved(scaled(scalar(2, "a", data_type=data_type)), f"a={text}")[2]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        ("FLOAT", "half"),
        ("FLOAT", "1e39"),
        ("FLOAT", "9" * 5000),
        ("INT32", "0.5"),
        ("INT64", str(2**63)),
        ("INT64", "9" * 5000),
    ],
)
def test_values_that_are_none_of_its_type(data_type: str, text: str) -> None:
    message = refused(scaled(scalar(2, "a", data_type=data_type)), f"a={text}")
    assert message.startswith(f"--const a: expected a value of type {data_type}, got ")
    assert len(message) < 200


@pytest.mark.parametrize("text", ["", "a", "=1", "a=", "="])
def test_what_is_no_pair(text: str) -> None:
    with pytest.raises(PlanError, match="--const: expected NAME=VALUE, got"):
        parse_constants([text])


HOSTILE = ["a=b", "a b", 'say "x"', "two\nlines", "\u202e", "--const", "-1.5e3", "x" * 500]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    raw = scaled(scalar(2, name))
    assert resolved(raw, f"{name}=1.5") == {2: 1.5}
    message = refused(raw, f"{name}=word")
    assert message.isascii() and message.isprintable() and len(message) < 200


def test_a_name_that_several_have_is_told_by_its_uid() -> None:
    raw = scaled(scalar(2, "a"), scalar(-7, "a"), scalar(4, "5"), scalar(5, "b"))
    assert "expected one scalar of that name, got 2 (name it by its uid: -7, 2)" in refused(
        raw, "a=1"
    )
    assert resolved(raw, "2=1", "-7=2") == {2: 1.0, -7: 2.0}
    # A name goes first: uid 5 is "b".
    assert resolved(raw, "5=3") == {4: 3.0}
    assert "expected one value, got two" in refused(raw, "b=1", "b=2")


def test_what_the_graph_does_not_have() -> None:
    assert 'got no such tensor (the graph has "alpha")' in refused(
        scaled(scalar(2, "alpha")), "beta=1"
    )
    assert "got no such tensor" in refused(scaled(scalar(2, "alpha")), "x=1")
    assert "--argument beta" in refused(scaled(scalar(2, "alpha")), arguments=("beta",))
    assert "(the graph has none)" in refused(
        scaled(scalar(2, "alpha", {"index": 3, "value": "3F000000"})), "alpha=1"
    )


def test_nothing_said() -> None:
    assert parse_constants([]) == Constants()
