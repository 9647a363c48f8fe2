"""How an operator of PyTorch is differentiated: by the operators of backward modules.

Imported by emitted files and by torch_operator.py alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

_Getter: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]


class Arriving(NamedTuple):
    """The gradient of an output, in the layout in which a backward module reads it.

    `offset` is what its storage offset must be a multiple of, in elements, to be aligned.
    """

    output: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int


class Backward(NamedTuple):
    """A backward module: what its operator is called with, and what it returns, in order.

    Attributes
    ----------
    module
        Its name.
    reads
        Of each argument: the name of an input, an output or a scalar of the forward operator; a
        gradient that arrives; or a number.
    gradients
        Name of an input → the gradient's axes as they lie in the input's memory, the outermost
        first.
    """

    module: str
    reads: Sequence[str | Arriving | float]
    gradients: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a backward operator.

    `reads` takes its arguments out of what `backward` knows, `needed` what is said of its gradients
    out of `needs_input_grad`. `gradients` are names, positions among the forward operator's
    arguments, and axes.
    """

    operator: Any
    reads: _Getter
    needed: _Getter
    gradients: tuple[tuple[str, int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Derivative:
    """How a forward operator is differentiated.

    `differentiated` are the positions of the inputs that have gradients. `saved` and `scalars` take
    tensors and numbers out of arguments and outputs. `arriving` has positions of outputs, and
    `undefined` those that have no gradient, with their names. What `backward` knows is what these
    stand for, and `numbers`.
    """

    n_arguments: int
    n_outputs: int
    differentiated: tuple[int, ...]
    saved: _Getter
    scalars: _Getter
    arriving: tuple[tuple[int, Arriving], ...]
    numbers: tuple[float, ...]
    undefined: tuple[tuple[int, str], ...]
    calls: tuple[_Call, ...]

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the backward modules read, and the forms of the inputs."""
        given = (*inputs, *output) if self.n_outputs > 1 else (*inputs, output)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*self.saved(given))
        ctx.scalars = self.scalars(given)
        forms = {}
        for position in self.differentiated:
            tensor = inputs[position]
            forms[position] = (tensor.shape, tensor.stride())
        ctx.forms = forms

    def backward(self, ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the arguments, by those of the outputs."""
        results: list[Tensor | None] = [None] * self.n_arguments
        for gradient in gradients:
            if gradient is not None:
                device = gradient.device
                break
        else:
            return tuple(results)
        for index, name in self.undefined:
            _refuse(name, gradients[index])
        known = [*ctx.saved_tensors, *ctx.scalars]
        for index, form in self.arriving:
            known.append(_arrived(gradients[index], form, device))
        known += self.numbers
        forms, needed = ctx.forms, ctx.needs_input_grad
        for call in self.calls:
            if any(call.needed(needed)):
                computed = call.operator(*call.reads(known))
                if len(call.gradients) == 1:
                    computed = (computed,)
                for (name, position, order), result in zip(call.gradients, computed, strict=True):
                    results[position] = _as_passed(name, result, order, forms[position])
        return tuple(results)


def derive(
    backwards: Sequence[Backward],
    operators: Sequence[Any],
    names: Sequence[str],
    *,
    n_inputs: int,
    n_outputs: int,
) -> Derivative:
    """Turn names into positions.

    Parameters
    ----------
    backwards, operators
        The backward modules and their operators.
    names
        Of inputs, scalars and outputs, in this order.
    n_inputs, n_outputs
        How many of them are what.
    """
    n_arguments = len(names) - n_outputs
    reads = [read for backward in backwards for read in backward.reads]
    read_names = {read for read in reads if isinstance(read, str)}
    scalars = [name for name in names[n_inputs:n_arguments] if name in read_names]
    saved = [name for name in names if name in read_names and name not in scalars]
    arriving = list(dict.fromkeys(read for read in reads if isinstance(read, Arriving)))
    known: list[str | Arriving | float] = [*saved, *scalars, *arriving]
    n_known = len(known)
    calls = []
    for backward, operator in zip(backwards, operators, strict=True):
        places = []
        for read in backward.reads:
            if isinstance(read, str | Arriving):
                places.append(known.index(read))
            else:
                places.append(len(known))
                known.append(read)
        gradients = tuple((name, names.index(name), o) for name, o in backward.gradients.items())
        needed = _getter([position for _, position, _ in gradients])
        calls.append(_Call(operator, _getter(places), needed, gradients))
    outputs = names[n_arguments:]
    defined = {one.output for one in arriving}
    return Derivative(
        n_arguments=n_arguments,
        n_outputs=n_outputs,
        differentiated=tuple(names.index(name) for one in backwards for name in one.gradients),
        saved=_getter([names.index(name) for name in saved]),
        scalars=_getter([names.index(name) for name in scalars]),
        arriving=tuple((outputs.index(one.output), one) for one in arriving),
        numbers=tuple(read for read in known[n_known:] if not isinstance(read, str | Arriving)),
        undefined=tuple((index, name) for index, name in enumerate(outputs) if name not in defined),
        calls=tuple(calls),
    )


def _getter(places: Sequence[int]) -> _Getter:
    """Return what takes these places out of a tuple, as a tuple, without a loop in Python."""
    if len(places) > 1:
        return itemgetter(*places)
    start = places[0] if places else 0
    return itemgetter(slice(start, start + len(places)))


def _refuse(name: str, gradient: Tensor | None) -> None:
    """Raise if a gradient arrives that no backward module takes."""
    if gradient is not None:
        raise RuntimeError(
            f"{name}: expected no gradient, which no backward module takes: use {name}.detach()"
        )


def _arrived(gradient: Tensor | None, form: Arriving, device: torch.device) -> Tensor:
    """Return an output's gradient as a backward module reads it; zero if none arrived."""
    _, dim, stride, dtype, offset = form
    if gradient is None:
        return torch.empty_strided(dim, stride, dtype=dtype, device=device).zero_()
    gradient = gradient.reshape(dim)
    lies_so = gradient.storage_offset() % offset == 0
    for size, expected, step in zip(dim, stride, gradient.stride(), strict=True):
        lies_so = lies_so and (size == 1 or step == expected)
    if lies_so:
        return gradient
    return torch.empty_strided(dim, stride, dtype=dtype, device=device).copy_(gradient)


def _as_passed(
    name: str,
    gradient: Tensor,
    order: tuple[int, ...],
    form: tuple[torch.Size, tuple[int, ...]],
) -> Tensor:
    """Return an input's gradient in its shape, which may be another view of the same layout."""
    shape, stride = form
    if gradient.shape == shape:
        return gradient
    if gradient.numel() != shape.numel():
        raise RuntimeError(
            f"{name}: expected {gradient.numel()} elements, as declared, where a gradient is "
            f"computed, got {shape.numel()}"
        )
    axes = sorted(range(len(shape)), key=lambda axis: -stride[axis])
    lying = gradient.permute(order).reshape([shape[axis] for axis in axes])
    return lying.permute([axes.index(axis) for axis in range(len(shape))])
