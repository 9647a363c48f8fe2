"""What tells the members of a family apart: dims that differ, by name.

Dims that always change together, which is to say that each value of one goes with one value of the
other, are one number of the key: that of the first of them, named after its operand and axis.
`--key` chooses and names others: ``B=q.b,S=q.s``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind import naming
from cudnn_bindgen.codegen.bind.binding import Argument
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.limits import MAX_KEY
from cudnn_bindgen.codegen.text import shorten

_NAMED = re.compile(r"\s*(?P<name>\w+)\s*=\s*(?P<operand>\w+)\.(?P<axis>\w+)\s*", re.ASCII)

# What Cython does not take for a parameter, though Python does.
_CYTHON = frozenset(["DEF", "IF", "ELIF", "ELSE", "NULL"])

# Parameters beside those of the operands, and arrays, of what is emitted.
_TAKEN = ("check", "key_", "stream", "workspace", "workspace_ptr")


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of all members: its argument in each, and the names of its axes."""

    arguments: tuple[Argument, ...]
    axes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name, the same in each."""
        return self.arguments[0].name

    def dims(self, axis: int) -> tuple[int, ...]:
        """Return the dim in each member."""
        return tuple(argument.dim[axis] for argument in self.arguments)


@dataclass(frozen=True, slots=True)
class KeyDim:
    """A number of the key: the dim `axis` of the operand in `slot`, in each member.

    `places` are the (slot, axis) of all dims that are just this number, of operands whose tensors
    have their axes as declared: where a call can read it.
    """

    name: str
    slot: int
    axis: int
    values: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


def find_key(
    operands: Sequence[Operand], options: Sequence[str], parameters: Iterable[str]
) -> tuple[KeyDim, ...]:
    """Return the key, as `options` (of ``--key``) have it, else of all dims that differ.

    `parameters` are names that a call has already.

    Raises
    ------
    EmitError
        An option is not written as one, or names no operand or axis.
    """
    taken = {*_TAKEN, *parameters}
    key = tuple(_given(options, operands, taken) if options else _found(operands, taken))
    if len(key) > MAX_KEY:
        raise EmitError(
            f"--key: expected at most {MAX_KEY} numbers, got {len(key)}"
            + ("" if options else ": the dims that differ; name those that matter")
        )
    return key


def _found(operands: Sequence[Operand], taken: set[str]) -> Iterator[KeyDim]:
    seen = set()
    for slot, operand in enumerate(operands):
        for axis, axis_name in enumerate(operand.axes):
            values = operand.dims(axis)
            together = tuple(map(values.index, values))
            if len({*values}) == 1 or together in seen:
                continue
            seen.add(together)
            name = _free_name(f"{operand.name.removesuffix('_')}_{axis_name}", taken)
            taken.add(name)
            yield KeyDim(name, slot, axis, values, _places(operands, values))


def _free_name(wanted: str, taken: set[str]) -> str:
    name = base = naming.identifier(wanted)
    number = 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def _given(
    options: Sequence[str], operands: Sequence[Operand], taken: set[str]
) -> Iterator[KeyDim]:
    slots = {operand.name: slot for slot, operand in enumerate(operands)}
    for text in ",".join(options).split(","):
        match = _NAMED.fullmatch(text)
        if match is None:
            raise _wrong(text, "NAME=OPERAND.AXIS such as B=q.b", "this")
        name = match["name"]
        if not _can_be_parameter(name):
            raise _wrong(text, "a name that can be an argument", name)
        if name in taken:
            raise _wrong(text, "a name of its own", f"{name}, which is another argument")
        taken.add(name)
        if match["operand"] not in slots:
            raise _wrong(text, f"an operand among {', '.join(slots)}", match["operand"])
        slot = slots[match["operand"]]
        operand = operands[slot]
        axes = {str(axis): axis for axis in range(len(operand.axes))}
        axis = (dict(zip(operand.axes, axes.values(), strict=True)) | axes).get(match["axis"])
        if axis is None:
            known = ", ".join(f"{i} ({name})" for i, name in enumerate(operand.axes))
            raise _wrong(text, f"an axis of {operand.name} among {known}", match["axis"])
        values = operand.dims(axis)
        yield KeyDim(name, slot, axis, values, _places(operands, values))


def _can_be_parameter(name: str) -> bool:
    return (
        name.isidentifier()
        and not name.startswith("_")
        and naming.identifier(name) == name.lower()
        and name not in _CYTHON
        and name not in ("False", "None", "True")
    )


def _places(operands: Sequence[Operand], values: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (slot, axis)
        for slot, operand in enumerate(operands)
        if all(argument.layout.kind == "plain" for argument in operand.arguments)
        for axis in range(len(operand.axes))
        if operand.dims(axis) == values
    )


def _wrong(text: str, expected: str, got: str) -> EmitError:
    return EmitError(f'--key "{shorten(text, 60)}": expected {expected}, got {shorten(got)}')
