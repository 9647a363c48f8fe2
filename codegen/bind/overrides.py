"""What a module for a graph with override shapes offers: axes' names, symbols and bounds.

A symbol is a number that several dims follow, as a user writes it: ``B=q.0,offsets.0+1``. After an
axis come steps, applied from left to right: ``+N``, ``*N``, ``/N`` (rounded up) and ``%N`` (up to
the next multiple of N). The rules stand in docs/overrides.md.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.limits import MAX_SYMBOLS
from cudnn_bindgen.codegen.text import shorten

_SYMBOL = re.compile(r"\s*(?P<name>\w+)(?::(?P<mode>\w+))?\s*=(?P<uses>.*)", re.ASCII | re.DOTALL)
_USE = re.compile(r"(?P<operand>\w+)\.(?P<axis>\w+)(?P<steps>(?:[-+*/%]\d{1,9})*)", re.ASCII)
_STEP = re.compile(r"([+*/%])(\d+)")

# What no argument of the method that takes the symbols can be called: Cython reads it otherwise.
_WORDS = """
    DEF ELIF ELSE IF NULL bint cdef char cimport const cpdef ctypedef double float include int long
    override_symbols ptrdiff_t self short signed size_t sizeof ssize_t unsigned void volatile
"""
_TAKEN = frozenset([*keyword.kwlist, *_WORDS.split()])


@dataclass(frozen=True, slots=True)
class OverrideOptions:
    """What a user asks of a module's overrides.

    Attributes
    ----------
    symbols
        Each as ``NAME[:packed|:declared]=OPERAND.AXIS[STEPS],...``.
    is_unbounded
        Let dims be larger than declared.
    """

    symbols: tuple[str, ...] = ()
    is_unbounded: bool = False


@dataclass(frozen=True, slots=True)
class SymbolUse:
    """A dim that follows a symbol: the symbol's value after `steps`, (operator, number) pairs."""

    slot: int
    axis: int
    steps: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A number that several dims follow.

    `is_packed`: strides further out follow these dims; otherwise the declared ones stay.
    """

    name: str
    is_packed: bool
    uses: tuple[SymbolUse, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """An operand as overrides see it; its position is its slot."""

    name: str
    axes: tuple[str, ...]
    dim: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OverrideParts:
    """What a module's `Overrides` is made of."""

    shapes: tuple[Shape, ...]
    symbols: tuple[Symbol, ...]
    is_unbounded: bool


def bind_overrides(
    shapes: Sequence[Shape], is_enabled: bool, options: OverrideOptions
) -> OverrideParts | None:
    """Resolve `options` for the operands `shapes`, which stand in slot order.

    Returns None for a graph that takes no overrides.

    Raises
    ------
    EmitError
        The graph takes none, or a symbol is not written as one, names no operand or axis, or
        cannot pack strides.
    """
    if not is_enabled:
        if options != OverrideOptions():
            raise EmitError(
                "--symbol, --unbounded: expected a graph with is_override_shape_enabled, "
                "got one without"
            )
        return None
    if len(options.symbols) > MAX_SYMBOLS:
        raise EmitError(f"--symbol: expected at most {MAX_SYMBOLS}, got {len(options.symbols)}")
    symbols = tuple(_parse(text, shapes) for text in options.symbols)
    _check_unique(symbols)
    _check_dims(symbols, shapes)
    for symbol in symbols:
        if symbol.is_packed:
            _check_packing(symbol, shapes)
    return OverrideParts(tuple(shapes), symbols, options.is_unbounded)


def _parse(text: str, shapes: Sequence[Shape]) -> Symbol:
    match = _SYMBOL.fullmatch(text)
    if match is None:
        raise _wrong(text, "NAME=OPERAND.AXIS,... such as B=q.0,k.0", "this")
    name, mode = match["name"], match["mode"] or "packed"
    if not name.isidentifier() or name in _TAKEN or name.startswith("_"):
        raise _wrong(text, "a name that can be an argument", name)
    if mode not in ("packed", "declared"):
        raise _wrong(text, "packed or declared after the colon", mode)
    uses = tuple(_parse_use(text, use.strip(), shapes) for use in match["uses"].split(","))
    places = [(use.slot, use.axis) for use in uses]
    if len(set(places)) < len(places):
        raise _wrong(text, "each axis once", "one twice")
    return Symbol(name, mode == "packed", uses)


def _parse_use(text: str, use: str, shapes: Sequence[Shape]) -> SymbolUse:
    match = _USE.fullmatch(use)
    if match is None or "-" in match["steps"]:
        raise _wrong(text, "OPERAND.AXIS with steps +N, *N, /N or %N", use or "nothing")
    slots = {shape.name: slot for slot, shape in enumerate(shapes)}
    if match["operand"] not in slots:
        raise _wrong(text, f"an operand among {', '.join(slots)}", match["operand"])
    slot = slots[match["operand"]]
    shape, axis = shapes[slot], match["axis"]
    numbers = {str(number): number for number in range(len(shape.axes))}
    number = {**dict(zip(shape.axes, numbers.values(), strict=True)), **numbers}.get(axis)
    if number is None:
        known = ", ".join(f"{i} ({name})" for i, name in enumerate(shape.axes))
        raise _wrong(text, f"an axis of {shape.name} among {known}", axis)
    steps = tuple((operator, int(n)) for operator, n in _STEP.findall(match["steps"]))
    if any(operator in "*/%" and n == 0 for operator, n in steps):
        raise _wrong(text, "a positive number after *, / and %", use)
    return SymbolUse(slot, number, steps)


def _check_unique(symbols: Iterable[Symbol]) -> None:
    names: set[str] = set()
    places: dict[tuple[int, int], str] = {}
    for symbol in symbols:
        if symbol.name in names:
            raise EmitError(f"--symbol {symbol.name}: expected each symbol once, got it twice")
        names.add(symbol.name)
        for use in symbol.uses:
            other = places.setdefault((use.slot, use.axis), symbol.name)
            if other != symbol.name:
                raise EmitError(
                    f"--symbol {symbol.name}: expected axes of its own, got one of {other}"
                )


def _check_dims(symbols: Iterable[Symbol], shapes: Sequence[Shape]) -> None:
    """Refuse a symbol that no value of which gives the declared dims: a slip of an axis."""
    for symbol in symbols:
        for use in symbol.uses:
            shape = shapes[use.slot]
            if follow(0, use.steps) > shape.dim[use.axis]:
                raise EmitError(
                    f"--symbol {symbol.name}: expected a dim that can be {follow(0, use.steps)}, "
                    f"got {shape.name}.{shape.axes[use.axis]}, declared {shape.dim[use.axis]}"
                )


def follow(value: int, steps: Iterable[tuple[str, int]]) -> int:
    """Return the dim that a symbol's value gives."""
    for operator, number in steps:
        if operator == "+":
            value += number
        elif operator == "*":
            value *= number
        else:
            value = -(-value // number) * (1 if operator == "/" else number)
    return value


def _check_packing(symbol: Symbol, shapes: Sequence[Shape]) -> None:
    """Refuse a symbol where a stride further out is no product of dims: padding has no rule."""
    for use in symbol.uses:
        shape = shapes[use.slot]
        order = [axis for axis, _ in stride_order(shape.dim, shape.stride)]
        outside = set(order[order.index(use.axis) + 1 :] if use.axis in order else ())
        for axis, follows in stride_order(shape.dim, shape.stride):
            if axis in outside and not follows and shape.dim[axis] > 1:
                raise EmitError(
                    f"--symbol {symbol.name}: expected packed strides, got {shape.stride} for "
                    f'{shape.name} {shape.dim}: write "{symbol.name}:declared=..." to keep them'
                )


def stride_order(dim: Sequence[int], stride: Sequence[int]) -> list[tuple[int, bool]]:
    """Return the axes that have a stride, the innermost first, and which follow from those inside.

    An axis follows if its declared stride is just what the axes inside of it span. The runtime
    decides the same (runtime/cpp/override_table.hpp).
    """
    order: list[tuple[int, bool]] = []
    running = 0
    axes = [axis for axis in range(len(dim)) if stride[axis] > 0]
    for axis in sorted(axes, key=lambda axis: (stride[axis], -axis)):
        follows = running == stride[axis]
        if follows or dim[axis] > 1 or not running:
            running = stride[axis] * dim[axis]
        order.append((axis, follows))
    return order


def _wrong(text: str, expected: str, got: str) -> EmitError:
    return EmitError(f'--symbol "{shorten(text, 60)}": expected {expected}, got {shorten(got)}')
