"""Operator (+ Derivative) → {NAME_torch.py: text}: fills the template, decides nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.torch_autograd import BackwardCall, Derivative, Read
from cudnn_bindgen.codegen.bind.torch_operator import DTYPES, Operator, Output, Parameter
from cudnn_bindgen.codegen.render.module import fill_template
from cudnn_bindgen.codegen.render.view import describe_nodes, docstring_row
from cudnn_bindgen.codegen.text import literal, shorten, wrap_literal


def render_torch(
    operator: Operator, derivative: Derivative | None, binding: Binding, source: str
) -> dict[str, str]:
    """Render a module's operators.

    Parameters
    ----------
    operator, derivative
        What to emit; None where no gradients are computed.
    binding
        The module's binding.
    source
        Base name of the graph file.

    Returns
    -------
    dict
        ``{"NAME_torch.py": text}``, pure ASCII, the same bytes on every run and every machine.
    """
    fields = _fields(operator) | {
        "calls": [],
        "fingerprint": binding.fingerprint,
        "source": shorten(source, 60),
        "table": [docstring_row(row) for row in _table(operator)],
        "title": docstring_row(describe_nodes(binding), 60),
        "version": __version__,
    }
    if derivative is not None:
        fields |= _derivative_fields(operator, derivative)
    return {f"{operator.module}_torch.py": fill_template("torch.py.jinja", fields)}


def _fields(operator: Operator) -> dict[str, Any]:
    module, namespace = operator.module, operator.namespace
    count = len(operator.outputs)
    qualified = f"{namespace}::{module}"
    return {
        "first": operator.inputs[0].name,
        "inputs": [argument.name for argument in operator.inputs],
        "is_empty": operator.is_empty,
        "is_single": count == 1,
        "module": module,
        "n_operands": len(operator.inputs) + count,
        "namespace": literal(namespace),
        "op": literal(module),
        "op_out": literal(f"{module}_out"),
        "outputs": [_output(output) for output in operator.outputs],
        "overload": f"torch.ops.{namespace}.{module}",
        "overload_out": f"torch.ops.{namespace}.{module}_out",
        "qualified": literal(qualified),
        "qualified_out": literal(f"{qualified}_out"),
        "refusal": _literals(
            f"{qualified}: no gradient is defined: emit it with --backward (what computes a "
            "gradient has none of its own)",
            90,
        ),
        "refusal_out": _literals(
            f"{qualified}_out: expected no tensor that requires gradients: they flow through "
            f"{qualified} alone",
            86,
        ),
        "returned": _returned(count),
        "scalars": [_scalar(scalar) for scalar in operator.scalars],
        "schema": _literals(operator.schema, 93, end=","),
        "schema_out": _literals(operator.schema_out, 93, end=","),
        "sibling": literal(module),
        "star": "" if count == 1 else "*",
    }


def _returned(count: int) -> str:
    if count == 1:
        return "Tensor"
    # As many as fit a line.
    return f"tuple[{', '.join(['Tensor'] * count)}]" if count <= 6 else "tuple[Tensor, ...]"


def _output(output: Output) -> dict[str, str]:
    return {
        "name": output.name,
        "dim": wrap_literal(output.dim, 12, 12),
        "stride": wrap_literal(output.stride, 12, 12),
        "dtype": f"torch.{output.dtype}",
        "zeroed": ".zero_()" if output.is_zeroed else "",
    }


def _scalar(scalar: Parameter) -> dict[str, str]:
    default = "" if scalar.default is None else f" = {literal(scalar.default)}"
    return {
        "name": scalar.name,
        "python_type": scalar.python_type,
        "default": default,
        "schema_default": default if scalar.is_in_schema else "",
    }


def _table(operator: Operator) -> list[str]:
    rows = [("argument", "role", "dtype", "dim", "stride")]
    rows += [_input_row(argument) for argument in operator.inputs]
    rows += [
        (output.name, "output", output.dtype, _sizes(output.dim), _sizes(output.stride))
        for output in operator.outputs
    ]
    rows += [(scalar.name, "scalar", scalar.python_type, "", "") for scalar in operator.scalars]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _input_row(argument: Argument) -> tuple[str, str, str, str, str]:
    dtype, pack = DTYPES.get(argument.data_type, (argument.data_type, 1))
    dtype = dtype if pack == 1 else argument.data_type  # dims are in cuDNN's elements
    return argument.name, "input", dtype, _sizes(argument.dim), _sizes(argument.stride)


def _sizes(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


class _Sources:
    """Where the emitted functions find tensors and numbers, each as {name, source}."""

    def __init__(self, operator: Operator, derivative: Derivative) -> None:
        self._derivative = derivative
        self._outputs = [output.name for output in operator.outputs]
        self.arguments = [argument.name for argument in operator.inputs]
        self.arguments += [scalar.name for scalar in operator.scalars]
        self._arrived = [arriving for _, arriving in derivative.arriving]

    def forward(self, name: str) -> dict[str, str]:
        """Return an input, output or scalar, for `_setup_context`."""
        if name in self.arguments:
            return {"name": name, "source": f"inputs[{self.arguments.index(name)}]"}
        return {"name": name, "source": f"output{_index(self._outputs, name)}"}

    def gradient(self, output: str) -> str:
        """Return the gradient of an output, for `_backward`."""
        return f"gradients[{self._outputs.index(output)}]"

    def read(self, read: Read) -> dict[str, str]:
        """Return what a backward module is called with."""
        if read.arriving:
            index = self._arrived.index(read.arriving)
            return {"name": self._derivative.arriving[index][0], "source": f"arrived[{index}]"}
        if read.default is not None:
            return {"name": "its default", "source": literal(read.default)}
        kind, names = "saved", self._derivative.saved
        if read.forward not in names:
            kind, names = "scalars", self._derivative.scalars
        return {"name": read.forward, "source": f"{kind}[{names.index(read.forward)}]"}


def _index(names: Sequence[str], name: str) -> str:
    """Return the subscript of one of several; what is alone comes without a tuple."""
    return "" if len(names) == 1 else f"[{names.index(name)}]"


def _derivative_fields(operator: Operator, derivative: Derivative) -> dict[str, Any]:
    sources = _Sources(operator, derivative)
    forms = [gradient.input for call in derivative.calls for gradient in call.gradients]
    return {
        "calls": [
            _call(operator.namespace, number, call, sources, forms)
            for number, call in enumerate(derivative.calls)
        ],
        "derivative": {
            "saved": [sources.forward(name) for name in derivative.saved],
            "scalars": [sources.forward(name) for name in derivative.scalars],
            "forms": [sources.forward(name) for name in forms],
            "undefined": [
                {"name": literal(name), "source": sources.gradient(name)}
                for name in derivative.undefined
            ],
            "arriving": [
                {
                    "name": name,
                    "source": sources.gradient(arriving.output),
                    "dim": wrap_literal(arriving.dim, 12, 12),
                    "stride": wrap_literal(arriving.stride, 12, 12),
                    "dtype": f"torch.{DTYPES[arriving.data_type][0]}",
                    "offset": arriving.offset,
                }
                for name, arriving in derivative.arriving
            ],
            "n_arguments": len(sources.arguments),
        },
    }


def _call(
    namespace: str, number: int, call: BackwardCall, sources: _Sources, forms: list[str]
) -> dict[str, Any]:
    names = [gradient.input for gradient in call.gradients]
    return {
        "module": call.module,
        "fingerprint": call.fingerprint,
        "sibling": literal(f"{call.module}_torch"),
        "overload": f"torch.ops.{namespace}.{call.module}",
        "source": f"_BACKWARD_{number}",
        "positions": literal(tuple(gradient.position for gradient in call.gradients)),
        "arguments": [sources.read(read) for read in call.reads],
        "gradients": [
            {
                "name": literal(gradient.input),
                "position": gradient.position,
                "source": f"computed{_index(names, gradient.input)}",
                "order": literal(gradient.order),
                "form": f"forms[{forms.index(gradient.input)}]",
            }
            for gradient in call.gradients
        ],
    }


def _literals(text: str, width: int, end: str = "") -> list[str]:
    """Return string literals, one a line, that side by side mean `text`."""
    lines = textwrap.wrap(
        text, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=False
    )
    literals = [literal(line) for line in lines]
    literals[-1] += end
    return literals
