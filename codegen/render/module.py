"""Binding → {file name: text}: fills the templates, decides nothing about the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.plan_parts import PlanParts
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.graph import Scalar
from cudnn_bindgen.codegen.render.describe import describe_run
from cudnn_bindgen.codegen.render.overrides import override_fields
from cudnn_bindgen.codegen.render.signatures import run_signature
from cudnn_bindgen.codegen.text import (
    Value,
    align,
    count_escaped,
    hex_literal,
    join_sizes,
    literal,
    printable,
    quoted,
    shorten,
    wrap_bytes,
    wrap_literal,
)

# What the emitted code was written against; the runtime refuses another number (runtime/graph.pyx).
RUNTIME_ABI = 2

# Of a module's plans, as literals; of real ones this has room for hundreds.
MAX_TEXT = 32 * 2**20

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
    c_types = [c_type_of(argument) for argument in binding.arguments]
    return {
        "abi": RUNTIME_ABI,
        "arguments": [argument_fields(argument) for argument in binding.arguments],
        "operands": [argument_fields(argument) for argument in binding.operands],
        "scalars": [argument_fields(argument) for argument in binding.scalars],
        "layouts": [literal(layout_fields(argument)) for argument in binding.operands],
        "shared": wrap_literal(binding.shared, len("_SHARED = "), 0).removesuffix(","),
        "conversions": sorted({"address", "flag", *(c_type.conversion for c_type in c_types)}),
        "fingerprint": binding.fingerprint,
        "graph": graph_fields(binding, source),
        "key": [],
        # An override may give an output elements: the runtime decides.
        "is_empty": binding.is_empty and binding.overrides is None,
        "overrides": override_fields(binding, binding.overrides) if binding.overrides else None,
        "plans": all_plan_fields(binding.plans, source, binding.overrides is not None),
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
            join_sizes(argument.dim),
            join_sizes(argument.stride),
        )
        for argument in binding.arguments
    ]
    return align(rows)


def docstring_row(text: str, width: int = 100) -> str:
    """Return what stands in a docstring for a line of text, cut to `width` columns there."""
    row = quoted(shorten(text, width))
    # Quoting at most doubles a text.
    return row if len(row) <= width else quoted(shorten(text, width // 2))


def c_type_of(argument: Argument) -> _CType:
    """Return how an argument looks in C."""
    return _SCALARS[argument.data_type] if argument.is_scalar else _ADDRESS


def argument_fields(argument: Argument) -> dict[str, Any]:
    """Return what templates print of an argument."""
    c_type = c_type_of(argument)
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
        "comment": f"  # uid {argument.uid}",
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


def layout_fields(argument: Argument) -> Value:
    """Return what register_tensors is told of an operand."""
    return argument.name, argument.layout.kind, argument.layout.free_axis


def graph_fields(binding: Binding, source: str, indent: int = 4) -> dict[str, str]:
    """Return the lines of GRAPH, which stand `indent` columns deep, by key."""
    graph: dict[str, Value] = {
        "source": source,
        "dialect": binding.dialect,
        "nodes": binding.nodes,
        "is_override_shape_enabled": binding.is_override_shape_enabled,
    }
    texts = {
        key: wrap_literal(value, indent + len(f'"{key}": '), indent) for key, value in graph.items()
    }
    if binding.plans:
        deep = " " * (indent + 4)
        rows = "".join(f"{deep}{_plan_row(plan, indent + 4)}\n" for plan in binding.plans)
        texts["plans"] = f"(\n{rows}{deep[4:]}),"
    return texts


def _plan_row(plan: PlanParts, indent: int) -> str:
    """Return what GRAPH states of a plan: SM, SM count, cuDNN version, engine and knobs."""
    start = f"({plan.sm}, {plan.sm_count}, {plan.cudnn_version}, "
    return f"{start}{wrap_literal(plan.engine, indent + len(start), indent).removesuffix(',')}),"


def all_plan_fields(
    plans: Iterable[PlanParts], source: str, takes_overrides: bool = False
) -> list[dict[str, Any]]:
    """Return what plan_parts.jinja prints, for each plan of a module.

    Raises
    ------
    EmitError
        They are too much text: a byte of a plan may be four characters.
    """
    found = []
    left = MAX_TEXT
    for plan in plans:
        left -= count_escaped(plan.text) + len(literal(plan.engine))
        fields = _plan_fields(plan, takes_overrides) if left >= 0 else {}
        left -= sum(len(value) for value in fields.values() if isinstance(value, str))
        if left < 0:
            raise EmitError(
                f"{source}: expected plans that take at most {MAX_TEXT} characters in a module, "
                "got more: emit it with fewer, and load_plan() the others"
            )
        found.append(fields)
    return found


def _plan_fields(plan: PlanParts, takes_overrides: bool) -> dict[str, Any]:
    alignments = _wrap_field(plan.alignments, "alignments")
    return {
        # Of the addresses OPERANDS states it already; these are for overridden strides.
        "alignments": alignments if takes_overrides and plan.alignments else "",
        "cudnn_version": plan.cudnn_version,
        "fingerprint": "FINGERPRINT",
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
