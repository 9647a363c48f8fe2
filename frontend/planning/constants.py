"""Which scalars are constants of compile time, whose values no dump has, and what the user says.

A dump shows such a constant as a scalar without a value, and so it shows one that callers pass. A
plan file tells them apart: callers bind what is in its variant pack, and cuDNN's text has the
values of the others. Of other files only the name is left, which the frontend makes up
(``mul.0::IN_1``) for every constant, but in older versions for unnamed scalars of callers as well:
then the user is asked.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.data_types import INTEGERS
from cudnn_bindgen.codegen.model.graph import Scalar
from cudnn_bindgen.codegen.read.dialects.document import TensorDocument
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.planning.structure import Structure

_CONST, _ARGUMENT = "--const", "--argument"


@dataclass(frozen=True, slots=True)
class Constants:
    """What the user says of scalars without a value.

    `values` are pairs of a tensor's name, or its uid as text, and its value as text; `arguments`
    are the names of those that callers pass. `said` are facts about a graph that was printed before
    it was lowered (`said.read_said`).
    """

    values: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


NOTHING = Constants()


def parse_constants(
    texts: Sequence[str], arguments: Sequence[str] = (), said: Sequence[str] = ()
) -> Constants:
    """Read ``name=value``; a name may have ``=`` in it, a value has none."""
    pairs = []
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise PlanError(f"{_CONST}: expected NAME=VALUE, got {shorten(text)}")
        pairs.append((name, value))
    return Constants(tuple(pairs), tuple(arguments), tuple(said))


def find_open_scalars(structure: Structure) -> dict[int, TensorDocument]:
    """Return the scalars without a value, by uid: callers pass them, or they are constants."""
    return {
        uid: item
        for uid, item in structure.tensors.items()
        if item.is_pass_by_value and item.pass_by_value is None
    }


def resolve_constants(structure: Structure, said: Constants) -> dict[int, int | float]:
    """Return the value of each constant of compile time, by uid.

    Raises
    ------
    PlanError
        A value is missing, is no number of its type, or is given to something else.
    """
    open_scalars = find_open_scalars(structure)
    values: dict[int, int | float] = {}
    for name, text in said.values:
        uid = _find(name, open_scalars, structure, _CONST)
        if structure.bound is not None and uid in structure.bound:
            raise PlanError(
                f"{_CONST} {shorten(name)}: expected a constant, got a scalar that callers pass",
                path=structure.paths[uid],
            )
        if uid in values:
            raise PlanError(f"{_CONST} {shorten(name)}: expected one value, got two")
        values[uid] = _number(text, open_scalars[uid], name)
    passed = {_find(name, open_scalars, structure, _ARGUMENT) for name in said.arguments}
    for uid in sorted(passed & set(structure.constants)):
        raise PlanError(
            f"{_ARGUMENT}: expected a scalar that callers pass, got a constant of the plan",
            path=structure.paths[uid],
        )
    both = passed & set(values)
    if both:
        raise PlanError(
            f"expected {_CONST} or {_ARGUMENT}, got both", path=structure.paths[min(both)]
        )
    for uid in sorted(set(open_scalars) - set(values) - passed - set(structure.constants)):
        _ask(uid, structure)
    for uid, known in structure.constants.items():
        _check_said(structure, uid, values.setdefault(uid, known.value), known)
    return values


def _check_said(structure: Structure, uid: int, value: int | float, known: Scalar) -> None:
    if repr(value) != repr(known.value):
        raise PlanError(
            f"{_CONST}: expected {known.value!r}, which the plan was made with, got {value!r}",
            path=structure.paths[uid],
            hint="plan a structure file of the graph: with another constant it is another graph",
        )


def _ask(uid: int, structure: Structure) -> None:
    """Raise PlanError if the scalar is, or may be, a constant of compile time."""
    name = structure.tensors[uid].name or str(uid)
    said = f'{_CONST} "{shorten(name)}=VALUE"'
    if structure.bound is not None:
        if uid in structure.bound:
            return
        problem = "a constant of compile time, whose value the file does not have"
        hint = f"pass {said}"
    elif any(name == made_up for made_up in _made_up_names(uid, structure)):
        problem = "a scalar without one, which may be a constant of compile time"
        hint = f'pass {said}, or {_ARGUMENT} "{shorten(name)}" if callers pass it'
    else:
        return
    raise PlanError(
        f'expected the value of "{shorten(name)}", got {problem}',
        path=structure.paths[uid],
        hint=hint,
    )


def _made_up_names(uid: int, structure: Structure) -> Iterator[str]:
    """Yield the names that the frontend makes up for a tensor: node, port."""
    for node in structure.nodes:
        for port, each in node.inputs + node.optional:
            if each == uid:
                yield f"{node.name}::{port}"


def _find(name: str, scalars: dict[int, TensorDocument], structure: Structure, option: str) -> int:
    found = [uid for uid, item in scalars.items() if item.name == name]
    if not found and name.lstrip("-").isdecimal() and len(name) < 21 and int(name) in scalars:
        return int(name)
    if len(found) > 1:
        raise PlanError(
            f"{option} {shorten(name)}: expected one scalar of that name, got {len(found)}",
            hint=f"name it by its uid: {', '.join(map(str, sorted(found)))}",
        )
    if not found:
        known = ", ".join(f'"{shorten(item.name or str(uid))}"' for uid, item in scalars.items())
        raise PlanError(
            f"{option} {shorten(name)}: expected a scalar without a value, got no such tensor",
            hint=f"the graph has {known or 'none'}",
        )
    return found[0]


def _number(text: str, scalar: TensorDocument, name: str) -> int | float:
    """Read a value in the scalar's type: the frontend takes the type from the number."""
    is_whole = scalar.data_type in INTEGERS
    try:
        value = int(text, 0) if is_whole else float(text)
        if scalar.data_type == "FLOAT":
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        if math.isinf(value) and "inf" not in text.casefold():
            raise OverflowError
        if is_whole and not -(1 << 63) <= value < 1 << 63:
            raise OverflowError
    except (ValueError, OverflowError):
        raise PlanError(
            f"{_CONST} {shorten(name)}: expected a value of type {scalar.data_type}, got "
            f"{shorten(text)}"
        ) from None
    return value
