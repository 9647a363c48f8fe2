"""Forward Binding + backward Bindings → BackwardCalls: which operand is whose gradient.

Decided once, by names and by ports; all that does not fit is in one error. The rules stand in
docs/torch.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.gradient_layouts import (
    memory_order,
    why_not_arriving,
    why_not_gradient,
    why_not_saved,
)
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.backward_tags import comparable_ports
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.model.graph import is_made_up

_RAGGED = "_ragged_offset"


@dataclass(frozen=True, slots=True)
class Arriving:
    """The gradient of an output, in the layout in which backward graphs read it.

    `offset` is what its storage offset must be a multiple of, in elements, to be aligned.
    """

    output: str
    data_type: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Read:
    """What a backward module is called with for one of its arguments; one of them is set.

    `forward` is an input, output or scalar of the forward graph, `default` a scalar's own.
    """

    forward: str = ""
    arriving: Arriving | None = None
    default: int | float | None = None


@dataclass(frozen=True, slots=True)
class Gradient:
    """A gradient that a backward module returns.

    `order` are its axes as they lie in the input's memory, the outermost first.
    """

    input: str
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """One backward module: what it is called with, and what it returns, in order."""

    module: str
    fingerprint: str
    reads: tuple[Read, ...]
    gradients: tuple[Gradient, ...]


def derive(forward: Binding, backwards: Sequence[tuple[str, Binding]]) -> tuple[BackwardCall, ...]:
    """Pair the operands of `forward` with those of `backwards`, (module, binding) each.

    Raises
    ------
    EmitError
        Operands are left over, fit twice, or are not alike.
    """
    calls = tuple(_call(forward, module, binding) for module, binding in backwards)
    computed: dict[str, str] = {}
    for call in calls:
        for gradient in call.gradients:
            if gradient.input in computed:
                raise EmitError(
                    f"--backward: expected one gradient of {gradient.input}, got one of "
                    f"{computed[gradient.input]} and one of {call.module}"
                )
            computed[gradient.input] = call.module
    return calls


def _call(forward: Binding, module: str, backward: Binding) -> BackwardCall:
    """Find out what each argument of a backward graph is."""
    pairing = _Pairing(forward, backward)
    reads: list[Read] = []
    gradients: list[Gradient] = []
    problems: list[str] = []
    for argument in backward.arguments:
        found = list(pairing.matches(argument))
        if not found and argument.default:
            reads.append(Read(default=argument.default.value))
            continue
        problem = _problem(argument, found)
        if problem:
            problems.append(f"{argument.name}: {problem}")
            continue
        [(other, is_gradient)] = found
        if argument.role == "output":
            gradients.append(Gradient(other.name, memory_order(other)))
        elif is_gradient:
            reads.append(Read(arriving=_arriving(other, argument)))
        else:
            reads.append(Read(forward=other.argument if other.is_scalar else other.name))
    if not problems and not any(read.arriving for read in reads):
        problems.append("no input is the gradient of an output")
    if problems:
        raise EmitError(
            f"--backward {module}: {'; '.join(problems)}: name tensors of both graphs alike "
            "(x and y, their gradients dx and dy)"
        )
    return BackwardCall(module, backward.fingerprint, tuple(reads), tuple(gradients))


class _Pairing:
    """Two graphs, and what tells that an operand of one is an operand of the other."""

    def __init__(self, forward: Binding, backward: Binding) -> None:
        self._forward = forward.arguments
        self._ports, self._backward_ports = comparable_ports(forward.nodes, backward.nodes)

    def matches(self, argument: Argument) -> Iterator[tuple[Argument, bool]]:
        """Yield what an argument of the backward graph may be, and whether as its gradient."""
        named = [found for found in self._possible(argument) if _is_named_so(argument, *found)]
        yield from named or (
            found for found in self._possible(argument) if self._is_at_port_of(argument, *found)
        )

    def _possible(self, argument: Argument) -> Iterator[tuple[Argument, bool]]:
        for other in self._forward:
            if argument.role == "output":
                if other.role == "input":
                    yield other, True
            elif argument.is_scalar == other.is_scalar:
                yield other, False
                if other.role == "output":
                    yield other, True

    def _is_at_port_of(self, argument: Argument, other: Argument, is_gradient: bool) -> bool:
        is_known = (
            argument.port.removesuffix(_RAGGED) in self._backward_ports
            and other.port.removesuffix(_RAGGED) in self._ports
        )
        if is_gradient:
            return is_known and argument.port.casefold() == f"d{other.port}".casefold()
        return is_known and argument.port == other.port


def _is_named_so(argument: Argument, other: Argument, is_gradient: bool) -> bool:
    # Where the frontend made up both names they say no more than ports: IN_0 of any two nodes.
    if is_made_up(argument.original) and is_made_up(other.original):
        return False
    name, of = argument.name.rstrip("_"), other.name.rstrip("_")
    if is_gradient:
        return name in (f"d{of}", f"d_{of}", f"grad_{of}", f"{of}_grad")
    return name == of


def _problem(argument: Argument, found: Sequence[tuple[Argument, bool]]) -> str:
    if not found and argument.role == "output":
        return "is the gradient of no input"
    if not found:
        return "is no operand of the forward graph and the gradient of no output"
    if len(found) > 1:
        choices = " or ".join(
            f"the gradient of {other.name}" if is_gradient else other.name
            for other, is_gradient in found
        )
        return f"may be {choices}"
    [(other, is_gradient)] = found
    if argument.is_scalar:
        return ""
    if not is_gradient:
        return why_not_saved(other, argument)
    return (why_not_gradient if argument.role == "output" else why_not_arriving)(other, argument)


def _arriving(output: Argument, argument: Argument) -> Arriving:
    element_bytes = BITS[argument.data_type] // 8
    return Arriving(
        output.name,
        argument.data_type,
        argument.dim,
        argument.stride,
        argument.alignment // math.gcd(argument.alignment, element_bytes),
    )
