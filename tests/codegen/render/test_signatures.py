"""The forms of `run` that a stub has, as data and as text."""

from __future__ import annotations

import ast

import pytest
from support.documents import (
    Document,
    bind_document,
    document,
    node,
    scalar,
    tensor,
    tensors,
)

from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.codegen.render.signatures import run_signature


def stub(raw: Document) -> list[str]:
    """The forms of `run` in the stub, as Python prints them."""
    text = render(bind_document(raw), "module", "graph.json")["module.pyi"]
    return [
        ast.unparse(item).partition(":\n    ")[0]
        for item in ast.parse(text).body
        if isinstance(item, ast.FunctionDef) and item.name == "run"
    ]


REST = "workspace: Tensor | Address | None=None, stream: Stream | None=None, check: bool=True"


def test_one_output_is_returned_as_it_is() -> None:
    raw = document([node("MATMUL", {"A": 1, "B": 2}, {"C": 3})], tensors(1, 2, 3))
    assert stub(raw) == [
        f"@overload\ndef run(a: Tensor | Address, b: Tensor | Address, c: _Output1, *, {REST})"
        " -> _Output1",
        f"@overload\ndef run(a: _First, b: Tensor | Address, c: _Output1 | None=None, *, {REST})"
        " -> _Output1 | _First",
    ]


def test_several_outputs_are_a_tuple() -> None:
    raw = document([node("NORM", {"X": 1}, {"Y": 2, "Z": 3})], tensors(1, 2, 3))
    given, made = stub(raw)
    assert given.endswith(" -> tuple[_Output1, _Output2]")
    assert made.endswith(" -> tuple[_Output1 | _First, _Output2 | _First]")


def test_without_an_input_outputs_must_be_passed() -> None:
    raw = document([node("RNG", {}, {"Y": 1})], tensors(1))
    assert stub(raw) == [f"def run(y: _Output1, *, {REST}) -> _Output1"]
    assert not run_signature(bind_document(raw)).is_overloaded


def test_scalars_are_keywords_and_their_defaults_stay_in_the_module() -> None:
    raw = document(
        [node("NORM", {"X": 1, "EPSILON": 2, "SHIFT": 3, "COUNT": 4}, {"Y": 5})],
        [
            *tensors(1, 5),
            scalar(2, "eps"),
            scalar(3, "shift", {"index": 2, "value": "3F800000"}),
            scalar(4, "count", {"index": 0, "value": 7}),
        ],
    )
    scalars = "eps: FloatScalar, count: IntScalar=..., shift: FloatScalar=..."
    assert f"y: _Output1, *, {scalars}, {REST}" in stub(raw)[0]


@pytest.mark.parametrize("data_type", ["INT32", "INT64"])
def test_integers_take_integers(data_type: str) -> None:
    raw = document(
        [node("NORM", {"X": 1, "N": 2}, {"Y": 3})],
        [*tensors(1, 3), scalar(2, "n", data_type=data_type)],
    )
    assert "n: IntScalar" in stub(raw)[0]


def test_type_variables_have_names_that_no_operand_changes() -> None:
    names = ["_First", "Tensor", "_Output1", "Never", "overload"]
    inputs = {f"P{index}": index for index in range(len(names))}
    raw = document(
        [node("NEW", inputs, {"Y": 9})],
        [*(tensor(uid, name) for uid, name in enumerate(names)), tensor(9, "Address")],
    )
    given, _ = stub(raw)
    operands = ["first", "tensor", "output1", "never", "overload"]
    parameters = ", ".join(f"{name}: Tensor | Address" for name in operands)
    assert given == f"@overload\ndef run({parameters}, address_: _Output1, *, {REST}) -> _Output1"
