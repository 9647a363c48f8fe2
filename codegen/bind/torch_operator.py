"""Binding → Operator: a graph as an operator of PyTorch, all that its file says of it.

What PyTorch allocates for each output, the schemas of the two operators, and which names the file
can have. The rules stand in docs/torch.md.
"""

from __future__ import annotations

import keyword
import math
import sys
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.data_types import BITS, DATA_TYPES, INTEGERS
from cudnn_bindgen.codegen.text import shorten

# Data type → PyTorch's name, and how many elements one of PyTorch's holds. The runtime has the
# same names (runtime/tensor_types.py); a test compares them.
DTYPES = {name: (row.torch, row.pack) for name, row in DATA_TYPES.items() if row.torch}

# Names of an emitted file besides its two functions. Parameters cannot meet them: those begin with
# a letter, in lower case, and no function that has them uses a name without an underscore.
_OWN_NAMES = """
    Arriving Backward Library Output Tensor register_operators torch
    _LIBRARY _OPERATOR _OPERATOR_OUT
    float int tuple
"""
# What a schema cannot call an operator, and what a namespace has besides operators.
_TAKEN = frozenset([*_OWN_NAMES.split(), "Ellipsis", "name"])

# PyTorch's own, or no namespace but a function of `torch.ops`.
_NAMESPACES = """
    aten higher_order import_module load_library loaded_libraries prim prims torch
"""

# PyTorch's dispatcher looks at no more.
_MOST_ARGUMENTS = 64


@dataclass(frozen=True, slots=True)
class Output:
    """What PyTorch allocates for an output.

    `dim` and `stride` count PyTorch's elements, of type `dtype`, each of which holds `pack` of
    cuDNN's. `is_zeroed`: no sequence need reach all of it.
    """

    name: str
    dtype: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    pack: int
    is_zeroed: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """A scalar of the operators; `default` None if it is required.

    `is_in_schema`: whether a schema can say the default, and those behind it.
    """

    name: str
    python_type: str
    default: int | float | None
    is_in_schema: bool


@dataclass(frozen=True, slots=True)
class Operator:
    """A module's operators; `module` is its name and theirs."""

    namespace: str
    module: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Output, ...]
    scalars: tuple[Parameter, ...]
    is_empty: bool

    @property
    def schema(self) -> str:
        """The operator that returns its outputs."""
        returned = ", ".join("Tensor" for _ in self.outputs)
        returned = f"({returned})" if len(self.outputs) > 1 else returned
        return f"{self.module}({', '.join(self._inputs + self._scalars)}) -> {returned}"

    @property
    def schema_out(self) -> str:
        """The operator that writes outputs which are given."""
        written = [f"Tensor(a{n}!) {output.name}" for n, output in enumerate(self.outputs)]
        return f"{self.module}_out({', '.join(self._inputs + written + self._scalars)}) -> ()"

    @property
    def _inputs(self) -> list[str]:
        return [f"Tensor {argument.name}" for argument in self.inputs]

    @property
    def _scalars(self) -> list[str]:
        return [
            f"{scalar.python_type} {scalar.name}"
            + (f"={scalar.default!r}" if scalar.is_in_schema else "")
            for scalar in self.scalars
        ]


def check_namespace(namespace: str) -> str:
    """Return `namespace` if operators can be registered in it.

    Raises
    ------
    EmitError
        It is no ASCII identifier, or PyTorch's.
    """
    is_name = namespace.isascii() and namespace.isidentifier() and not keyword.iskeyword(namespace)
    if not is_name or namespace in _NAMESPACES.split() or namespace.startswith("__"):
        raise EmitError(
            f'--torch-namespace: expected a name that PyTorch does not use, got "{namespace}"'
        )
    return namespace


def make_operator(binding: Binding, module: str, namespace: str) -> Operator:
    """Decide what the operators of `binding` look like.

    Raises
    ------
    EmitError
        The file could not be called so, or PyTorch cannot hold an output.
    """
    if module in _TAKEN or module.startswith("__"):
        raise EmitError(f"module name: --torch needs another one than {module}, which is taken")
    inputs = tuple(argument for argument in binding.operands if argument.role == "input")
    outputs = tuple(argument for argument in binding.operands if argument.role == "output")
    for what, found in (("input", inputs), ("output", outputs)):
        if not found:
            raise EmitError(f"--torch: expected a graph with an {what} tensor, got none")
    if len(binding.arguments) > _MOST_ARGUMENTS:
        raise EmitError(
            f"--torch: expected at most {_MOST_ARGUMENTS} operands and scalars, "
            f"got {len(binding.arguments)}"
        )
    return Operator(
        namespace=check_namespace(namespace),
        module=module,
        inputs=inputs,
        outputs=tuple(_output(argument) for argument in outputs),
        scalars=_parameters(binding.scalars),
        is_empty=binding.is_empty and binding.overrides is None,
    )


def _parameters(scalars: tuple[Argument, ...]) -> tuple[Parameter, ...]:
    parameters: list[Parameter] = []
    is_in_schema = True  # of what stands behind: no argument without a default may follow
    for argument in reversed(scalars):
        default = argument.default.value if argument.default else None
        python_type = "int" if argument.data_type in INTEGERS else "float"
        is_in_schema = is_in_schema and _fits_schema(default)
        parameters.append(Parameter(argument.argument, python_type, default, is_in_schema))
    return tuple(reversed(parameters))


def _fits_schema(default: int | float | None) -> bool:
    """Whether PyTorch's parser of schemas reads the number: no infinity, nothing subnormal."""
    if not isinstance(default, float):
        return default is not None
    return default == 0 or sys.float_info.min <= abs(default) < math.inf


def _output(argument: Argument) -> Output:
    if argument.data_type not in DTYPES:
        raise _refuse(argument, "a data type that PyTorch has", argument.data_type)
    dtype, pack = DTYPES[argument.data_type]
    is_ragged = argument.layout.kind == "ragged"
    dim, stride = argument.dim, argument.stride
    if not argument.is_empty:
        if any(step < 1 for step, size in zip(stride, dim, strict=True) if size > 1):
            raise _refuse(argument, "strides of at least 1", str(stride))
        reach = sum((size - 1) * step for size, step in zip(dim, stride, strict=True)) + 1
        if reach * BITS[argument.data_type] >= 2**63:
            raise _refuse(argument, "a layout that fits memory", f"strides {stride}")
        if is_ragged and reach != math.prod(dim):
            raise _refuse(argument, "a ragged output without gaps", f"strides {stride}")
    if pack > 1:
        dim, stride = _packed(argument, pack)
    return Output(argument.name, dtype, dim, stride, pack, is_ragged)


def _packed(argument: Argument, pack: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims and strides in bytes of `pack` elements each, which lie along the axis of stride 1."""
    axes = list(enumerate(zip(argument.dim, argument.stride, strict=True)))
    inner = [axis for axis, (size, step) in axes if step == 1 and size > 1]
    others = [step for axis, (size, step) in axes if axis not in inner and size > 1]
    if len(inner) != 1 or argument.dim[inner[0]] % pack or any(step % pack for step in others):
        raise _refuse(
            argument,
            f"rows of a multiple of {pack} elements of {argument.data_type}",
            f"dims {argument.dim}, strides {argument.stride}",
        )
    dim = tuple(size // pack if axis == inner[0] else size for axis, (size, _) in axes)
    stride = tuple(step if axis == inner[0] else max(1, step // pack) for axis, (_, step) in axes)
    return dim, stride


def _refuse(argument: Argument, expected: str, got: str) -> EmitError:
    return EmitError(
        f"--torch: output {argument.name}: expected {expected}, got {shorten(got, 80)}"
    )
