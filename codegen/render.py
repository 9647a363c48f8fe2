"""Binding → {file name: text}: fills the templates, decides nothing about the graph."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.binding import Argument, Binding
from cudnn_bindgen.codegen.describe import describe_run
from cudnn_bindgen.codegen.graph import BITS, Scalar
from cudnn_bindgen.codegen.overrides import OverrideParts, Shape, Symbol
from cudnn_bindgen.codegen.plan_parts import PlanParts
from cudnn_bindgen.codegen.signatures import run_signature
from cudnn_bindgen.codegen.text import (
    Value,
    hex_literal,
    literal,
    printable,
    quoted,
    shorten,
    wrap_bytes,
    wrap_literal,
)

# What the emitted code was written against; the runtime refuses another number (runtime/graph.pyx).
RUNTIME_ABI = 2

_SUFFIXES = ("pyx", "pyi", "pxd")


@dataclass(frozen=True, slots=True)
class _CType:
    """How a scalar type looks in emitted code."""

    c_type: str
    conversion: str
    python_type: str


_SCALARS = {
    "BFLOAT16": _CType("uint16_t", "bfloat16", "float"),
    "DOUBLE": _CType("double", "float64", "float"),
    "FLOAT": _CType("float", "float32", "float"),
    "HALF": _CType("uint16_t", "float16", "float"),
    "INT32": _CType("int32_t", "int32", "int"),
    "INT64": _CType("int64_t", "int64", "int"),
}
_ADDRESS = _CType("void*", "address", "int")


def render(binding: Binding, module: str, source: str) -> dict[str, str]:
    """Render a module's files.

    Parameters
    ----------
    binding
        What to emit.
    module
        Name of the module; a legal identifier.
    source
        Base name of the graph file, stated in the header and in ``GRAPH``.

    Returns
    -------
    dict
        ``{"NAME.pyx": text, "NAME.pyi": text, "NAME.pxd": text}``, pure ASCII, the same bytes on
        every run and every machine.
    """
    fields = _fields(binding, source)
    return {
        f"{module}.{suffix}": fill_template(f"module.{suffix}.jinja", fields)
        for suffix in _SUFFIXES
    }


def fill_template(name: str, fields: dict[str, Any]) -> str:
    """Fill a template of templates/; each of its fields must be in `fields`."""
    environment = Environment(
        loader=PackageLoader("cudnn_bindgen", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - code, not HTML; text.py escapes
    )
    return environment.get_template(name).render(fields)


def _fields(binding: Binding, source: str) -> dict[str, Any]:
    c_types = [_c_type(argument) for argument in binding.arguments]
    return {
        "abi": RUNTIME_ABI,
        "arguments": [_argument(argument) for argument in binding.arguments],
        "operands": [_argument(argument) for argument in binding.operands],
        "scalars": [_argument(argument) for argument in binding.scalars],
        "layouts": [literal(_layout(argument)) for argument in binding.operands],
        "shared": wrap_literal(binding.shared, len("    shared=")),
        "conversions": sorted({"address", *(c_type.conversion for c_type in c_types)}),
        "fingerprint": binding.fingerprint,
        "graph": _graph(binding, source),
        # An override may give an output elements: the runtime decides.
        "is_empty": binding.is_empty and binding.overrides is None,
        "overrides": _overrides(binding, binding.overrides) if binding.overrides else None,
        "plans": [_plan(plan, binding.overrides is not None) for plan in binding.plans],
        "run": run_signature(binding),
        "run_doc": describe_run(binding),
        "source": shorten(source, 60),
        "stdint": sorted({c.c_type for c in c_types if c.c_type.endswith("_t")}),
        "structure": wrap_bytes(binding.structure),
        "table": [docstring_row(row) for row in operand_table(binding)],
        "title": docstring_row(describe_nodes(binding), 90),
        "uid_value_type": "int | float" if binding.scalars else "int",
        "version": __version__,
    }


def describe_nodes(binding: Binding) -> str:
    """Return the node tags with their counts: ``MATMUL, POINTWISE x2``."""
    counts = Counter(binding.nodes)
    return ", ".join(tag if count == 1 else f"{tag} x{count}" for tag, count in counts.items())


def operand_table(binding: Binding) -> list[str]:
    """Return the operands as aligned, printable lines, the heading first."""
    rows = [("slot", "uid", "argument", "name", "role", "data type", "dim", "stride")]
    rows += [
        (
            str(argument.slot),
            str(argument.uid),
            argument.argument,
            shorten(argument.original, 20),
            argument.role,
            argument.data_type,
            _sizes(argument.dim),
            _sizes(argument.stride),
        )
        for argument in binding.arguments
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def docstring_row(text: str, width: int = 100) -> str:
    """Return what stands in a docstring for a line of text, cut to `width` columns there."""
    row = quoted(shorten(text, width))
    # Quoting at most doubles a text.
    return row if len(row) <= width else quoted(shorten(text, width // 2))


def _sizes(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes)) or "-"


def _c_type(argument: Argument) -> _CType:
    return _SCALARS[argument.data_type] if argument.is_scalar else _ADDRESS


def _argument(argument: Argument) -> dict[str, Any]:
    c_type = _c_type(argument)
    default = argument.default
    is_taken = argument.is_scalar or argument.name.endswith("_ptr")
    fields: list[Any] = [
        *(argument.uid, argument.argument, argument.original, argument.role, argument.data_type),
        *(argument.dim, argument.stride, argument.alignment),
    ]
    if default:
        fields.append(default.value)
    return {
        "argument": argument.argument,
        "c_type": c_type.c_type,
        "conversion": f"{c_type.conversion}({argument.argument}, {literal(argument.argument)})",
        "default": f"={literal(default.value)}" if default else "",
        "fields": ", ".join(literal(field) for field in fields),
        # A scalar's parameter has its name already, and `x_ptr` is also the parameter of an operand
        # `x`. No other name begins with an underscore.
        "local": f"_{argument.name}" if is_taken else argument.name,
        "left_out": "=None" if argument.role == "output" else "",
        "name": argument.name,
        "python_type": c_type.python_type,
        "slot": argument.slot,
        # cuDNN reads a scalar while the call runs, so the parameter itself is its storage.
        "slot_value": f"&{argument.name}" if argument.is_scalar else argument.name,
        "summary": f"{argument.role}, {argument.data_type}",
        "uid": argument.uid,
    }


def _layout(argument: Argument) -> Value:
    return argument.name, argument.layout.kind, argument.layout.free_axis


def _graph(binding: Binding, source: str) -> dict[str, str]:
    graph: dict[str, Value] = {
        "source": source,
        "dialect": binding.dialect,
        "nodes": binding.nodes,
        "is_override_shape_enabled": binding.is_override_shape_enabled,
    }
    texts = {key: wrap_literal(value, len(f'    "{key}": ')) for key, value in graph.items()}
    if binding.plans:
        rows = "".join(f"        {_plan_row(plan)}\n" for plan in binding.plans)
        texts["plans"] = f"(\n{rows}    ),"
    return texts


def _plan_row(plan: PlanParts) -> str:
    """Return what GRAPH states of a plan: SM, SM count, cuDNN version, engine and knobs."""
    start = f"({plan.sm}, {plan.sm_count}, {plan.cudnn_version}, "
    return f"{start}{wrap_literal(plan.engine, 8 + len(start), 8).removesuffix(',')}),"


def _overrides(binding: Binding, overrides: OverrideParts) -> dict[str, Any]:
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
            ["Declared", _sizes(shape.dim), "with", "strides", f"{_sizes(shape.stride)}."]
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


def _plan(plan: PlanParts, takes_overrides: bool) -> dict[str, Any]:
    alignments = _wrap_field(plan.alignments, "alignments")
    return {
        # Of the addresses OPERANDS states it already; these are for overridden strides.
        "alignments": alignments if takes_overrides and plan.alignments else "",
        "cudnn_version": plan.cudnn_version,
        "sm": plan.sm,
        "sm_count": plan.sm_count,
        "uids": _wrap_field(plan.uids, "uids"),
        "constants": [
            {"uid": uid, "data": hex_literal(value.data), "comment": _comment(value)}
            for uid, value in plan.constants
        ],
        "workspace_parts": _wrap_field(plan.workspace_parts, "workspace_parts"),
        "replacements": _wrap_field(plan.replacements, "replacements"),
        "dropped": _wrap_field(plan.dropped, "dropped"),
        "workspace_size": plan.workspace_size,
        "text": wrap_bytes(plan.text, 88),
    }


def _wrap_field(value: Value, name: str) -> str:
    return wrap_literal(value, len(f"        {name}="), 8)


def _comment(value: Scalar) -> str:
    return printable(f"{value.data_type} {value.value!r}")
