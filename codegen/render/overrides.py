"""A binding's overrides → what templates print of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.overrides import OverrideParts, Shape, Symbol
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.text import Value, join_sizes, literal, wrap_literal


def override_fields(binding: Binding, overrides: OverrideParts) -> dict[str, Any]:
    """Return what overrides.pyx.jinja and what belongs to it print."""
    shapes = zip(binding.operands, overrides.shapes, strict=True)
    names = [symbol.name for symbol in overrides.symbols]
    summaries = [_summary(symbol, overrides.shapes) for symbol in overrides.symbols]
    return {
        "shapes": [_shape(argument, shape) for argument, shape in shapes],
        "names": names,
        "defaults": _lines(f"{name}=None," for name in names),
        "numbers": _lines(f"{name}," for name in names),
        "summaries": [line for summary in summaries for line in _lines(summary.split(" "))],
        "symbols": [wrap_literal(_symbol(symbol), 8, 8) for symbol in overrides.symbols],
        "is_unbounded": overrides.is_unbounded,
    }


def _lines(words: Iterable[str]) -> list[str]:
    """Return words as lines that fit into a method."""
    return textwrap.wrap(" ".join(words), 88, break_long_words=False, break_on_hyphens=False)


def _shape(argument: Argument, shape: Shape) -> dict[str, Any]:
    fields: tuple[Value, ...] = (shape.name, shape.axes, BITS[argument.data_type])
    return {
        "method": f"set_{shape.name}",
        "slot": argument.slot,
        "axes": shape.axes,
        "fields": ", ".join(map(literal, fields)),
        "summary": f"Override {shape.name} (uid {argument.uid}).",
        "declared": _lines(
            ["Declared", join_sizes(shape.dim), "with", "strides", f"{join_sizes(shape.stride)}."]
        ),
        "defaults": _lines(f"stride_{axis}=None," for axis in shape.axes),
        "strides": _lines(f"stride_{axis}," for axis in shape.axes),
    }


def _symbol(symbol: Symbol) -> Value:
    uses = tuple((use.slot, use.axis, use.steps) for use in symbol.uses)
    return symbol.name, symbol.is_packed, *uses


def _summary(symbol: Symbol, shapes: tuple[Shape, ...]) -> str:
    dims = ", ".join(
        f"{shapes[use.slot].name}.{shapes[use.slot].axes[use.axis]}"
        + "".join(f"{operator}{number}" for operator, number in use.steps)
        for use in symbol.uses
    )
    mode = "" if symbol.is_packed else "; strides as declared"
    return f"{symbol.name}: {dims}{mode}."
