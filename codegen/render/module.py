"""Binding, Family or Chain → {file name: text}: fills the templates, decides nothing about graphs.

One template for all: a graph alone has no key, and callers see a chain as if it were one graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.chain import Chain
from cudnn_bindgen.codegen.bind.data import data_of, data_of_chain, data_of_family
from cudnn_bindgen.codegen.bind.family import Family
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.render.c_header import CHeader
from cudnn_bindgen.codegen.render.header import write_options
from cudnn_bindgen.codegen.render.view import Module, docstring_row
from cudnn_bindgen.codegen.text import align, join_sizes, shorten

# Of a module's plans and structures, uncompressed; of real ones this has room for hundreds.
MAX_DATA = 32 * 2**20

_SUFFIXES = ("pyx", "pyi", "pxd")


def render(
    binding: Binding, module: str, source: str, options: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """Render a module's files.

    Parameters
    ----------
    binding
        What to emit.
    module
        Name of the module; a legal identifier.
    source
        Base name of the graph file, stated in the header and in ``GRAPH``.
    options
        What the header says that it was emitted with: options and their values.

    Returns
    -------
    dict
        ``{"NAME.pyx": text, "NAME.pyi": text, "NAME.pxd": text}``, pure ASCII, the same on every
        run; but for the compressed data, on every machine.

    Raises
    ------
    EmitError
        Its plans and structure are too large.
    """
    table = [docstring_row(row) for row in operand_table(binding)]
    data = data_of(binding, source)
    origin = f"From {shorten(source, 60)}"
    return _render(Module(binding, None, data, origin, table, write_options(options)), module)


def render_family(
    family: Family, module: str, options: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """Render the files of one module for all members, as `render` does.

    The text is the same whatever the order in which the graphs were given.
    """
    # What the members have in common, in the form of one of them.
    common = replace(family.members[0].binding, arguments=family.arguments)
    names = [shorten(member.source, 30) for member in (family.members[0], family.members[-1])]
    origin = f"Of {len(family.members)} graphs: {names[0]} .. {names[1]}"
    sizes = _sizes_in_words(family)
    table = [docstring_row(row) for row in operand_table(common, sizes)]
    data = data_of_family(family)
    said = write_options(options)
    return _render(Module(common, family, data, origin, table, said, sizes), module)


def render_chain(
    chain: Chain, module: str, source: str, options: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """Render the files of a chain, as `render` does; `source` is the base name of its file."""
    table = [docstring_row(row) for row in operand_table(chain.binding)]
    data = data_of_chain(chain, source)
    origin = f"From {shorten(source, 60)}"
    said = write_options(options)
    view = Module(chain.binding, None, data, origin, table, said, chain=chain)
    return _render(view, module)


def _render(view: Module, module: str) -> dict[str, str]:
    _check_size(view)
    files = {
        f"{module}.{suffix}": fill_template(f"module.{suffix}.jinja", {"module": view})
        for suffix in _SUFFIXES
    }
    if "Option --header" in view.options:
        fields = {"module": view, "header": CHeader(view, module), "name": module}
        files[f"{module}.h"] = fill_template("module.h.jinja", fields)
    return files


def _check_size(view: Module) -> None:
    plans = [plan for graph in view.data_.graphs for plan in graph.plans]
    texts = sum(len(plan.text) + len(plan.engine) for plan in plans)
    if texts + sum(len(graph.structure) for graph in view.data_.graphs) > MAX_DATA:
        raise EmitError(
            f"{view.origin.partition(' ')[2]}: expected plans that take at most {MAX_DATA} bytes "
            "in a module, got more: emit it with fewer, and load_plan() the others"
        )


def fill_template(name: str, fields: dict[str, Any]) -> str:
    """Fill a template of templates/; each of its fields must be in `fields`."""
    return _environment().get_template(name).render(fields)


@cache
def _environment() -> Environment:
    """Return what keeps each template compiled, as long as its file stays the same."""
    return Environment(
        loader=PackageLoader("cudnn_bindgen", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - code, not HTML; text.py escapes
    )


def operand_table(
    binding: Binding, sizes: dict[int, tuple[list[str], list[str]]] | None = None
) -> list[str]:
    """Return the operands as aligned, printable lines, the heading first.

    Of a family, `sizes` are dims and strides in words, by slot; uids are each member's own.
    """
    rows = [
        (
            *("slot", "uid", "argument", "role", "data type", "dim", "stride"),
            *("align", "layout", "name"),
        )
    ]
    for argument in binding.arguments:
        dim, stride = sizes[argument.slot] if sizes else (argument.dim, argument.stride)
        rows.append(
            (
                str(argument.slot),
                str(argument.uid),
                argument.argument,
                argument.role,
                argument.data_type,
                join_sizes(dim),
                join_sizes(stride),
                "-" if argument.is_scalar else str(argument.alignment),
                "-" if argument.is_scalar else argument.layout.kind,
                shorten(argument.original, 20),
            )
        )
    table = [row[:1] + row[2:] for row in rows] if sizes else rows
    lines = align(table)
    # Names may be long, and OPERANDS has them: the layout of an operand goes before.
    return lines if max(map(len, lines)) <= 100 else align([row[:-1] for row in table], " ")


def _sizes_in_words(family: Family) -> dict[int, tuple[list[str], list[str]]]:
    """Return dims and strides of each argument: a number, a name of the key, or `*`."""
    names = {dim.values: dim.name for dim in reversed(family.key)}
    return {
        argument.slot: (
            [_word(family.values(argument.slot, axis), names) for axis in range(len(argument.dim))],
            [
                _word(family.values(argument.slot, axis, of_stride=True), {})
                for axis in range(len(argument.dim))
            ],
        )
        for argument in family.arguments
    }


def _word(values: Sequence[int], names: dict[tuple[int, ...], str]) -> str:
    return str(values[0]) if len({*values}) == 1 else names.get(tuple(values), "*")
