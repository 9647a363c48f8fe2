"""Family → {file name: text}: fills the templates, decides nothing about the graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind.binding import Argument
from cudnn_bindgen.codegen.bind.family import Family, Member
from cudnn_bindgen.codegen.bind.family_key import KeyDim
from cudnn_bindgen.codegen.render.describe import describe_run
from cudnn_bindgen.codegen.render.module import (
    RUNTIME_ABI,
    all_plan_fields,
    argument_fields,
    c_type_of,
    describe_nodes,
    docstring_row,
    fill_template,
    graph_fields,
    layout_fields,
)
from cudnn_bindgen.codegen.render.signatures import run_signature
from cudnn_bindgen.codegen.text import align, join_sizes, literal, shorten, wrap_bytes, wrap_literal

_SUFFIXES = ("pyx", "pyi", "pxd")


def render_family(family: Family, module: str) -> dict[str, str]:
    """Render the files of one module for all members.

    Returns
    -------
    dict
        ``{"NAME.pyx": text, "NAME.pyi": text, "NAME.pxd": text}``, pure ASCII, the same bytes on
        every run and every machine, whatever the order in which the graphs were given.
    """
    fields = _fields(family)
    return {
        f"{module}.{suffix}": fill_template(f"family.{suffix}.jinja", fields)
        for suffix in _SUFFIXES
    }


def _fields(family: Family) -> dict[str, Any]:
    # What the members have in common, in the form of one of them.
    common = dataclasses.replace(family.members[0].binding, arguments=family.arguments)
    arguments = [_argument(argument) for argument in family.arguments]
    key = [_key_dim(index, dim, family) for index, dim in enumerate(family.key)]
    names = [dim.name for dim in family.key]
    c_types = [c_type_of(argument) for argument in family.arguments]
    scalars = arguments[len(family.operands) :]
    # In Python what has a default comes last.
    optional = [scalar for scalar in scalars if scalar["default"]]
    parameters = [argument for argument in arguments if argument not in optional]
    plans = [plan for member in family.members for plan in member.binding.plans]
    run = run_signature(common)
    return {
        "abi": RUNTIME_ABI,
        "arguments": arguments,
        "conversions": sorted(
            {"address", "flag", "int64", *(c_type.conversion for c_type in c_types)}
        ),
        "fingerprint": family.fingerprint,
        "has_overloads": run.is_overloaded or not plans,
        "has_plans": bool(plans),
        "key": key,
        "members": [_member(index, member) for index, member in enumerate(family.members)],
        "names": literal(tuple(names)),
        "names_text": ", ".join(names),
        "numbers": ["int"] * len(key),
        "operands": arguments[: len(family.operands)],
        "overrides": None,
        "parameters": [*parameters, *key, *optional],
        "plans": [
            fields | {"fingerprint": literal(plan.fingerprint), "function": f"_plan_{index}"}
            for index, (plan, fields) in enumerate(
                zip(plans, all_plan_fields(plans, _sources(family)), strict=True)
            )
        ],
        "run": run,
        "run_doc": describe_run(common, _sizes_in_words(family), _key_lines(family)),
        "scalars": scalars,
        "sources": _sources(family),
        "stdint": sorted({"int64_t", *(c.c_type for c in c_types if c.c_type.endswith("_t"))}),
        "table": [docstring_row(row) for row in _table(family)],
        "title": docstring_row(describe_nodes(common), 70),
        "typed_names": ", ".join(f"{name}: int" for name in names),
        "version": __version__,
        "words": ["str"] * len(key),
    }


def _argument(argument: Argument) -> dict[str, Any]:
    # Uids are each member's own.
    return argument_fields(argument) | {"comment": ""}


def _key_dim(index: int, dim: KeyDim, family: Family) -> dict[str, Any]:
    operand = family.operands[dim.slot]
    return {
        "argument": dim.name,
        "c_type": "int64_t",
        "conversion": f"int64({dim.name}, {literal(dim.name)})",
        "default": "",
        "index": index,
        "local": f"_{dim.name}",
        "name": dim.name,
        "places": wrap_literal(dim.places, 8, 8),
        "python_type": "int",
        "summary": f"{dim.name}: {operand.name}.{family.axes[dim.slot][dim.axis]}",
    }


def _key_lines(family: Family) -> list[str]:
    return [
        f"{dim['summary']}, an int; None: read from the tensors"
        for dim in (_key_dim(index, dim, family) for index, dim in enumerate(family.key))
    ]


def _member(index: int, member: Member) -> dict[str, Any]:
    binding = member.binding
    layouts = tuple(layout_fields(argument) for argument in binding.operands)
    return {
        "fingerprint": binding.fingerprint,
        "function": f"_member_{index}",
        "graph": graph_fields(binding, member.source, 12),
        "key": literal(member.key),
        "operands": [argument_fields(argument)["fields"] for argument in binding.arguments],
        "structure": wrap_bytes(binding.structure, 92),
        "rules": wrap_literal((layouts, binding.shared), 8, 8),
    }


def _sources(family: Family) -> str:
    names = [shorten(member.source, 30) for member in (family.members[0], family.members[-1])]
    return f"{names[0]} .. {names[1]}"


def _table(family: Family) -> list[str]:
    words = _sizes_in_words(family)
    rows = [("slot", "argument", "name", "role", "data type", "dim", "stride")]
    for argument in family.arguments:
        dim, stride = words[argument.slot]
        rows.append(
            (
                str(argument.slot),
                argument.argument,
                shorten(argument.original, 20),
                argument.role,
                argument.data_type,
                join_sizes(dim),
                join_sizes(stride),
            )
        )
    return align(rows)


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


def _word(values: Iterable[int], names: dict[tuple[int, ...], str]) -> str:
    values = tuple(values)
    return str(values[0]) if len({*values}) == 1 else names.get(values, "*")
