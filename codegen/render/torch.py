"""Operator (+ BackwardCalls) → {NAME_torch.py: text}: fills the template, decides nothing."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.torch_autograd import Arriving, BackwardCall, Read
from cudnn_bindgen.codegen.bind.torch_operator import DTYPES, Operator, Output, Parameter
from cudnn_bindgen.codegen.render.describe import describe_nodes
from cudnn_bindgen.codegen.render.docstrings import docstring, words_of
from cudnn_bindgen.codegen.render.module import fill_template
from cudnn_bindgen.codegen.render.view import docstring_row
from cudnn_bindgen.codegen.text import (
    Brackets,
    Piece,
    align,
    join_sizes,
    lay_out,
    literal,
    pieces,
    shorten,
)


@dataclass(frozen=True)
class TorchFile:
    """NAME_torch.py before it is text; `calls` are its backward modules."""

    operator: Operator
    calls: tuple[BackwardCall, ...]
    binding: Binding
    graph_file: str

    version = __version__

    @property
    def fingerprint(self) -> str:
        """The graph's."""
        return self.binding.fingerprint

    @property
    def source(self) -> str:
        """Base name of the graph file."""
        return shorten(self.graph_file, 60)

    @property
    def title(self) -> str:
        """The nodes."""
        return docstring_row(describe_nodes(self.binding), 60)

    @property
    def table(self) -> list[str]:
        """The operands and scalars, as lines."""
        heading = ("argument", "role", "dtype", "dim", "stride")
        return [docstring_row(row) for row in align([heading, *self._rows])]

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        operator = self.operator
        return [
            *(_input_row(argument) for argument in operator.inputs),
            *(_row(one.name, "output", one.dtype, one) for one in operator.outputs),
            *((scalar.name, "scalar", scalar.python_type, "", "") for scalar in operator.scalars),
        ]

    @property
    def namespace(self) -> str:
        """Where the operators are, as a literal."""
        return literal(self.operator.namespace)

    @property
    def schema(self) -> list[str]:
        """The operator that returns its outputs, as lines."""
        return _literals(self.operator.schema)

    @property
    def schema_out(self) -> list[str]:
        """The operator that writes outputs which are given, as lines."""
        return _literals(self.operator.schema_out)

    @property
    def outputs(self) -> list[str]:
        """What PyTorch allocates for each, as lines."""
        return [line for one in self.operator.outputs for line in lay_out(_output(one), 8, ",")]

    @property
    def is_empty(self) -> bool:
        """Whether the graph computes nothing."""
        return self.operator.is_empty

    @property
    def backwards(self) -> list[str]:
        """The backward modules, as lines."""
        return [line for call in self.calls for line in lay_out(_backward(call), 8, ",")]

    @property
    def function(self) -> list[str]:
        """The function that returns its outputs, as lines of its head."""
        return self._head(self.operator.module, self._inputs, self.returned)

    @property
    def function_out(self) -> list[str]:
        """The function that writes outputs which are given, as lines of its head."""
        return self._head(f"{self.operator.module}_out", self._operands, "None")

    @property
    def docs(self) -> str:
        """The docstring of the function that returns its outputs."""
        words = (
            "Return the outputs as new tensors.\n\nArgs:\n    all: \n\nReturns:\n    results: \n\n"
        )
        arguments = self._entries("input", "scalar")
        return docstring(words + _raises(), {"all": arguments, "results": self._entries("output")})

    @property
    def docs_out(self) -> str:
        """The docstring of the function that writes outputs which are given."""
        words = "Write the outputs into tensors that are given.\n\nArgs:\n    all: \n\n"
        return docstring(words + _raises(), {"all": self._entries("input", "output", "scalar")})

    def _entries(self, *roles: str) -> list[str]:
        """Return what is said of the arguments of these roles."""
        return [
            f"{name}: {dtype}" + (f", dim {dim}, stride {stride}." if dim else ".")
            for role in roles
            for name, found, dtype, dim, stride in self._rows
            if found == role
        ]

    @property
    def returned(self) -> str:
        """The type of the outputs."""
        count = len(self.operator.outputs)
        if count == 1:
            return "Tensor"
        # As many as fit a line.
        return f"tuple[{', '.join(['Tensor'] * count)}]" if count <= 6 else "tuple[Tensor, ...]"

    @property
    def call(self) -> list[str]:
        """The call of the operator that returns its outputs, as lines."""
        start = f"_outputs: {self.returned} = _OPERATOR("
        return lay_out(Brackets(start, self._inputs + self._scalars, ")"), 4)

    @property
    def call_out(self) -> list[str]:
        """The call of the operator that writes outputs which are given, as lines."""
        return lay_out(Brackets("_OPERATOR_OUT(", self._operands + self._scalars, ")"), 4)

    @property
    def _inputs(self) -> list[str]:
        return [argument.name for argument in self.operator.inputs]

    @property
    def _operands(self) -> list[str]:
        return self._inputs + [output.name for output in self.operator.outputs]

    @property
    def _scalars(self) -> list[str]:
        return [scalar.name for scalar in self.operator.scalars]

    def _head(self, name: str, tensors: list[str], returned: str) -> list[str]:
        scalars = [_parameter(scalar) for scalar in self.operator.scalars]
        parameters = [f"{tensor}: Tensor" for tensor in tensors]
        parameters += ["*", *scalars] if scalars else []
        return lay_out(Brackets(f"def {name}(", parameters, f") -> {returned}:"))


def render_torch(
    operator: Operator, calls: tuple[BackwardCall, ...], binding: Binding, source: str
) -> dict[str, str]:
    """Render a module's operators.

    Parameters
    ----------
    operator, calls
        What to emit, and its backward modules; none where no gradients are computed.
    binding
        The module's binding.
    source
        Base name of the graph file.

    Returns
    -------
    dict
        ``{"NAME_torch.py": text}``, pure ASCII, the same bytes on every run and every machine.
    """
    view = TorchFile(operator, calls, binding, source)
    return {f"{operator.module}_torch.py": fill_template("torch.py.jinja", {"file": view})}


def _raises() -> str:
    """Return what `run` may raise, in the runtime's words."""
    words = words_of("binding", "Binding")["run"]
    return words[words.index("Raises:") :]


def _row(name: str, role: str, dtype: str, sizes: Argument | Output) -> tuple[str, ...]:
    return name, role, dtype, join_sizes(sizes.dim), join_sizes(sizes.stride)


def _input_row(argument: Argument) -> tuple[str, ...]:
    dtype, pack = DTYPES.get(argument.data_type, (argument.data_type, 1))
    dtype = dtype if pack == 1 else argument.data_type  # dims are in cuDNN's elements
    return _row(argument.name, "input", dtype, argument)


def _parameter(scalar: Parameter) -> str:
    default = "" if scalar.default is None else f" = {literal(scalar.default)}"
    return f"{scalar.name}: {scalar.python_type}{default}"


def _output(output: Output) -> Brackets:
    fields: list[Piece] = [literal(output.name), pieces(output.dim), pieces(output.stride)]
    fields += [f"torch.{output.dtype}", *(["is_zeroed=True"] if output.is_zeroed else [])]
    return Brackets("Output(", fields, ")")


def _backward(call: BackwardCall) -> Brackets:
    reads = Brackets("reads=[", [_read(read) for read in call.reads], "]")
    gradients = [f"{literal(one.input)}: {literal(one.order)}" for one in call.gradients]
    fields: list[Piece] = [literal(call.module), reads, Brackets("gradients={", gradients, "}")]
    return Brackets("Backward(", fields, ")")


def _read(read: Read) -> Piece:
    if read.arriving:
        return _arriving(read.arriving)
    return literal(read.forward or read.default)


def _arriving(one: Arriving) -> Brackets:
    fields: list[Piece] = [literal(one.output), pieces(one.dim), pieces(one.stride)]
    fields += [f"torch.{DTYPES[one.data_type][0]}", str(one.offset)]
    return Brackets("Arriving(", fields, ")")


def _literals(text: str) -> list[str]:
    """Return an argument, as string literals that side by side mean `text`, one a line."""
    lines = textwrap.wrap(
        text, 93, break_long_words=False, break_on_hyphens=False, drop_whitespace=False
    )
    literals = [literal(line) for line in lines]
    literals[-1] += ","
    return literals
