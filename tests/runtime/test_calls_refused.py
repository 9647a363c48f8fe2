"""Calls whose arguments are not those of the function: each error names what is missing or wrong.

Compiled functions and those of `cudnn_bindgen.load` say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.standin import Standin

pytestmark = pytest.mark.parametrize("policy", ["direct"], indirect=True)

NORM = {
    "execute(16, 32)": (
        "execute() missing 5 required arguments: bias_ptr (uid 3, input 'tensor_2'), "
        "y_ptr (uid 5, output 'ln::Y'), mean_ptr (uid 6, output 'ln::MEAN'), "
        "inv_variance_ptr (uid 7, output 'ln::INV_VARIANCE'), eps (uid 4, scalar 'eps')"
    ),
    "execute(16, 32, 48, 64, 80, 96, stream=0)": (
        "execute() missing 1 required argument: eps (uid 4, scalar 'eps')"
    ),
    "execute(16, 32, 48, 64, 80, eps=1.0, inv_variance_ptr=96, mean=1)": (
        "execute() got an unexpected keyword argument 'mean'; did you mean mean_ptr?"
    ),
    "execute(16, 32, 48, 64, 80, 96, 1.0, 0, 0, 5)": (
        "execute() takes from 7 to 9 positional arguments but 10 were given"
    ),
    "execute(16, 32, 48, 64, 80, 96, 1.0, x_ptr=16)": (
        "execute() got multiple values for argument 'x_ptr'"
    ),
    "execute(16, 32, 48, 64, 80, 96, 1.0, qqqqq=16)": (
        "execute() got an unexpected keyword argument 'qqqqq'"
    ),
    "run(16, bias=48, eps=1.0)": (
        "run() missing 1 required argument: scale (uid 2, input 'tensor_1')"
    ),
    "run(16, 32, 48, 64, 80, 96)": "run() missing 1 required argument: eps (uid 4, scalar 'eps')",
    "run(16, 32, 48, 64, 80, 96, 1.0)": (
        "run() takes from 3 to 6 positional arguments but 7 were given; "
        "eps, workspace, stream, check must be named"
    ),
    "run(16, 32, 48, eps=1.0, x=16)": "run() got multiple values for argument 'x'",
    "run(16, 32, 48, epsilon=1.0)": (
        "run() got an unexpected keyword argument 'epsilon'; did you mean eps?"
    ),
    "workspace_size(1)": "workspace_size() takes 0 positional arguments but 1 was given",
    "execute_uids({})": "x_ptr: expected an entry for uid 1, got none",
    "execute(16, 32, 48, 64, 80, 96, 1.0, stream='0')": (
        "stream: expected a cudaStream_t as int, got '0'"
    ),
}
SETTERS = {
    "set_a(1, 5)": "set_a() missing 1 required argument: k",
    "set_a(k=5)": "set_a() missing 2 required arguments: b, m",
    "set_a(1, 5, 4, 3)": (
        "set_a() takes 3 positional arguments but 4 were given; "
        "stride_b, stride_m, stride_k must be named"
    ),
    "set_a(1, 5, 4, stride_q=3)": (
        "set_a() got an unexpected keyword argument 'stride_q'; did you mean stride_m?"
    ),
    "set_a(1, 5, 4, b=3)": "set_a() got multiple values for argument 'b'",
    "set(5)": "set() takes 0 positional arguments but 1 was given; M, K, N must be named",
    "set(L=5)": "set() got an unexpected keyword argument 'L'",
}


def refusal(call: str, where: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        eval(f"where.{call}", {"where": where})
    return str(caught.value)


def test_what_a_call_lacks_is_named(load_case: Callable[[str], Any], standin: Standin) -> None:
    module = load_case("norm")
    assert {call: refusal(call, module) for call in NORM} == NORM
    assert standin.calls("cudnnBackendExecute") == 0


def test_what_a_setter_lacks_is_named(product: Any) -> None:
    ov = product.Overrides()
    assert {call: refusal(call, ov) for call in SETTERS} == SETTERS
    assert repr(ov) == "Overrides()"


def test_of_many_missing_arguments_the_first_are_named(load_case: Callable[[str], Any]) -> None:
    message = refusal("execute()", load_case("wide"))
    assert message.startswith(
        "execute() missing 101 required arguments: in1_ptr (uid 1, input 'in1')"
    )
    assert message.endswith("in12_ptr (uid 12, input 'in12'), 89 more")


def test_a_familys_key_and_operands_without_uids(load: Callable[[str], ModuleType]) -> None:
    rows = load("rows")
    assert refusal("execute(16, 32, 48, 1.5)", rows) == (
        "execute() missing 1 required argument: x_d0"
    )
    assert refusal("run(16)", rows).startswith(
        "run() missing 2 required arguments: w (input 'w'), "
    )


def test_type_errors_of_an_argument_itself_pass_through(load_case: Callable[[str], Any]) -> None:
    class Broken:
        def __float__(self) -> float:
            raise TypeError("not today")

    with pytest.raises(TypeError, match=r"^eps: expected a number, got an object of type Broken$"):
        load_case("norm").execute(16, 32, 48, 64, 80, 96, Broken())


def test_a_name_says_nothing_that_a_terminal_obeys(load: Callable[[str], ModuleType]) -> None:
    """Names come from graph files."""
    from cudnn_bindgen.runtime.call_errors import call_error

    graph = load("scalars")._binding.data[0]
    hostile = "\x1b[2J\u202e'" + "x" * 100
    operands = (graph.operands[0]._replace(name=hostile), *graph.operands[1:])
    error = call_error("run", ["x"], [False], 1, 0, [], graph._replace(operands=operands))
    assert str(error).isascii()
    assert str(error).isprintable()
    assert len(str(error)) < 120
