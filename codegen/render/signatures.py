"""Binding → how `run` may be called, for type checkers: what the stub says of it.

All outputs passed: what was passed is returned. Some or all left out: those are made by the
framework of a tensor that was passed, so the first input must be one, and gives the type.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.model.data_types import INTEGERS

# The words of runtime/annotations.py.
_OPERAND = "Tensor | Address"

# Type variables: of the first input, of each output.
_FIRST = "_First"
_OUTPUT = "_Output"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of `run` and its type; `is_optional`: it may be left out."""

    name: str
    annotation: str
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """One way to call `run`: operands in order, and the type of what stands for each output."""

    operands: tuple[Parameter, ...]
    results: tuple[str, ...]

    @property
    def result(self) -> str:
        """The type of what is returned, where there is one output; every graph has some."""
        return self.results[0]


@dataclass(frozen=True, slots=True)
class Signature:
    """All of `run`; a call is taken by the first form that it fits.

    `variables` are those of the outputs, in order; `annotations` what the parameters' types are
    written in. `operands` are those of `bind`, which returns what has an attribute for each.
    """

    operands: tuple[Parameter, ...]
    forms: tuple[Form, ...]
    scalars: tuple[Parameter, ...]
    variables: tuple[str, ...]
    annotations: tuple[str, ...]

    @property
    def is_overloaded(self) -> bool:
        """Whether there is more than one form."""
        return len(self.forms) > 1

    @property
    def returns_several(self) -> bool:
        """Whether a tuple is returned."""
        return len(self.variables) > 1

    @property
    def bound_result(self) -> str:
        """The type of what a bound call returns: one for each output, which may be set to any."""
        every = ["Any"] * len(self.variables)
        return f"tuple[{', '.join(every)}]" if self.returns_several else "Any"


def run_signature(binding: Binding) -> Signature:
    """Return how `run` may be called."""
    inputs = [argument.name for argument in binding.operands if argument.role == "input"]
    outputs = [argument.name for argument in binding.operands if argument.role == "output"]
    variables = tuple(f"{_OUTPUT}{number}" for number in range(1, len(outputs) + 1))
    typed_outputs = list(zip(outputs, variables, strict=True))
    given = Form(
        operands=(
            *(Parameter(name, _OPERAND) for name in inputs),
            *(Parameter(name, variable) for name, variable in typed_outputs),
        ),
        results=variables,
    )
    made = Form(
        operands=(
            *(Parameter(name, _FIRST) for name in inputs[:1]),
            *(Parameter(name, _OPERAND) for name in inputs[1:]),
            *(Parameter(name, variable, is_optional=True) for name, variable in typed_outputs),
        ),
        results=tuple(f"{variable} | {_FIRST}" for variable in variables),
    )
    scalars = tuple(map(_scalar, binding.scalars))
    return Signature(
        operands=(
            *(Parameter(name, _OPERAND) for name in inputs),
            *(Parameter(name, _OPERAND, is_optional=True) for name in outputs),
        ),
        forms=(given, made) if inputs else (given,),
        scalars=scalars,
        variables=variables,
        annotations=tuple(
            sorted({"Address", "Stream", "Tensor", *(scalar.annotation for scalar in scalars)})
        ),
    )


def _scalar(argument: Argument) -> Parameter:
    annotation = "IntScalar" if argument.data_type in INTEGERS else "FloatScalar"
    return Parameter(argument.argument, annotation, is_optional=argument.default is not None)
