"""Whether operands of a forward and of a backward graph agree, and how a gradient's axes lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from cudnn_bindgen.codegen.bind.binding import Argument
from cudnn_bindgen.codegen.model.data_types import BITS

_Sizes: TypeAlias = tuple[int, ...]


def why_not_saved(forward: Argument, backward: Argument) -> str:
    """Return why a tensor of the forward graph cannot be passed on as it is; "" if it can."""
    problem = _type_problem(forward, backward) or _elements_problem(forward, backward)
    if problem:
        return problem
    if _kind(forward) != _kind(backward):
        return f"expected a {_kind(forward)} layout as {forward.name}, got {_kind(backward)}"
    if _kind(forward) == "dense":  # an order of its own, which goes by the axes
        same = forward.dim == backward.dim
    else:
        same = _lie_alike(_natural(forward), _natural(backward))
    return "" if same else _layout_problem(forward, backward)


def why_not_arriving(output: Argument, backward: Argument) -> str:
    """Return why an input cannot be the gradient of an output; strides may differ."""
    problem = _type_problem(output, backward) or _elements_problem(output, backward)
    if problem:
        return problem
    if _long_axes(output.dim) != _long_axes(backward.dim):
        return _layout_problem(output, backward)
    if any(step < 1 for step, size in zip(backward.stride, backward.dim, strict=True) if size > 1):
        return f"expected strides of at least 1, got {backward.stride}"
    return ""


def why_not_gradient(forward: Argument, backward: Argument) -> str:
    """Return why an output cannot be the gradient of an input; strides may differ."""
    problem = _type_problem(forward, backward) or _elements_problem(forward, backward)
    if problem:
        return problem
    dim, stride = _natural(forward)
    if BITS[forward.data_type] < 8 or forward.layout.kind in ("dense", "paged"):
        return f"{forward.name} is {forward.layout.kind} {forward.data_type} and has no gradient"
    if any(step < 1 for step, size in zip(stride, dim, strict=True) if size > 1):
        return f"{forward.name} repeats its elements: strides {stride}"
    if _long_axes(dim) != _long_axes(backward.dim) or len(dim) != len(backward.dim):
        return _layout_problem(forward, backward)
    return ""


def memory_order(argument: Argument) -> tuple[int, ...]:
    """Return the axes of an operand's gradient as they lie in the operand, the outermost first."""
    _, stride = _natural(argument)
    return tuple(sorted(range(len(stride)), key=lambda axis: -stride[axis]))


def _natural(argument: Argument) -> tuple[_Sizes, _Sizes]:
    """Dims and strides before lowering swapped the last two axes, if it did."""
    dim, stride = argument.dim, argument.stride
    layout = argument.layout
    # A swapped ragged operand is told by its axis of tokens (layouts.py).
    is_swapped = layout.kind == "ragged" and len(dim) == 4 and layout.free_axis == 3
    if layout.kind != "swapped" and not is_swapped:
        return dim, stride
    return (*dim[:-2], dim[-1], dim[-2]), (*stride[:-2], stride[-1], stride[-2])


def _kind(argument: Argument) -> str:
    return "plain" if argument.layout.kind == "swapped" else argument.layout.kind


def _long_axes(dim: Sequence[int]) -> list[int]:
    return [size for size in dim if size != 1]


def _lie_alike(one: tuple[_Sizes, _Sizes], other: tuple[_Sizes, _Sizes]) -> bool:
    """Whether two layouts are the same elements in the same order, as `run` compares them.

    With equal extents the strides must be equal; otherwise one may be a view of the other.
    """
    if 0 in one[0]:
        return True
    if _long_axes(one[0]) == _long_axes(other[0]):
        return _axes(*one) == _axes(*other)
    return _memory(_axes(*one)) == _memory(_axes(*other))


def _axes(dim: _Sizes, stride: _Sizes) -> list[tuple[int, int]]:
    return [(step, size) for step, size in zip(stride, dim, strict=True) if size > 1]


def _memory(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Strides and extents, the innermost first, neighbours that lie densely as one."""
    merged: list[tuple[int, int]] = []
    for step, size in sorted(axes):
        if merged and merged[-1][0] * merged[-1][1] == step:
            inner = merged.pop()
            merged.append((inner[0], inner[1] * size))
        else:
            merged.append((step, size))
    return merged


def _type_problem(forward: Argument, backward: Argument) -> str:
    if forward.data_type == backward.data_type:
        return ""
    return f"expected {forward.data_type} as {forward.name}, got {backward.data_type}"


def _elements_problem(forward: Argument, backward: Argument) -> str:
    expected, got = math.prod(forward.dim), math.prod(backward.dim)
    if expected == got:
        return ""
    return f"expected {expected} elements as {forward.name} has, got {got}"


def _layout_problem(forward: Argument, backward: Argument) -> str:
    return (
        f"expected the layout of {forward.name}, dims {forward.dim} with strides "
        f"{forward.stride}, got {backward.dim} with {backward.stride}"
    )
