"""Graphs that differ in shape only → Family: all that the templates of one module for them may see.

The rules stand in docs/families.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind.alike import BoundGraph, check_alike
from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.family_key import KeyDim, Operand, find_key
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.axes import name_axes
from cudnn_bindgen.codegen.text import shorten

# A module with as many compiles in minutes (docs/families.md).
MAX_MEMBERS = 1024


@dataclass(frozen=True, slots=True)
class Member:
    """One graph of a family: its key, its binding, and the base name of its file."""

    key: tuple[int, ...]
    binding: Binding
    source: str


@dataclass(frozen=True, slots=True)
class Family:
    """A whole module for several graphs, before it is text.

    `arguments` are the members' own in slot order, as the first member has them; of a scalar, the
    default only if all members have it. `members` are in the order of their keys, which differ.
    """

    fingerprint: str
    key: tuple[KeyDim, ...]
    axes: tuple[tuple[str, ...], ...]  # of each operand
    arguments: tuple[Argument, ...]
    members: tuple[Member, ...]

    @property
    def operands(self) -> tuple[Argument, ...]:
        """The arguments that are addresses; they come first."""
        return tuple(argument for argument in self.arguments if not argument.is_scalar)

    @property
    def scalars(self) -> tuple[Argument, ...]:
        """The arguments that are values."""
        return tuple(argument for argument in self.arguments if argument.is_scalar)

    def values(self, slot: int, axis: int, *, of_stride: bool = False) -> tuple[int, ...]:
        """Return a dim or stride in each member."""
        arguments = (member.binding.arguments[slot] for member in self.members)
        return tuple((a.stride if of_stride else a.dim)[axis] for a in arguments)


def make_family(graphs: Sequence[BoundGraph], keys: Sequence[str] = ()) -> Family:
    """Make a family of graphs.

    Parameters
    ----------
    graphs
        The graphs, in any order.
    keys
        What the user asks of the key, as ``NAME=OPERAND.AXIS,...``.

    Raises
    ------
    EmitError
        They differ in more than shape, or the key does not tell them apart.
    """
    _check_count(len(graphs))
    # Files come in the order of a shell's pattern, which is no order of shapes.
    graphs = sorted(graphs, key=_shape)
    first = graphs[0]
    for bound in graphs:
        if bound.binding.overrides:
            raise EmitError(
                f"--family: {bound.file}: expected a graph of one shape, got one with override "
                "shapes: emit it alone, and its Overrides serve all shapes"
            )
        check_alike(first, bound)
    _check_different(graphs)
    arguments = _join_arguments([bound.binding for bound in graphs])
    axes = name_axes(first.graph)
    operands = [
        Operand(
            tuple(bound.binding.arguments[argument.slot] for bound in graphs),
            axes[argument.uid],
        )
        for argument in arguments
        if not argument.is_scalar
    ]
    names = [name for argument in arguments for name in (argument.name, argument.argument)]
    key = find_key(operands, keys, names)
    _check_key(key, graphs)
    order = sorted(range(len(graphs)), key=lambda index: [dim.values[index] for dim in key])
    members = [
        Member(
            tuple(dim.values[index] for dim in key),
            graphs[index].binding,
            graphs[index].source,
        )
        for index in order
    ]
    ordered = (tuple(dim.values[index] for index in order) for dim in key)
    return Family(
        fingerprint=_digest([member.binding.fingerprint for member in members]),
        key=tuple(
            dataclasses.replace(dim, values=values)
            for dim, values in zip(key, ordered, strict=True)
        ),
        axes=tuple(operand.axes for operand in operands),
        arguments=arguments,
        members=tuple(members),
    )


def _check_count(count: int) -> None:
    if count < 2:
        raise EmitError(f"--family: expected several graphs, got {count}")
    if count > MAX_MEMBERS:
        raise EmitError(f"--family: expected at most {MAX_MEMBERS} graphs, got {count}")


def _shape(bound: BoundGraph) -> tuple[object, ...]:
    arguments = bound.binding.arguments
    return tuple(argument.dim for argument in arguments), bound.binding.fingerprint


def _check_different(graphs: Sequence[BoundGraph]) -> None:
    # Equal graphs are side by side.
    for one, other in itertools.pairwise(graphs):
        if one.binding.fingerprint == other.binding.fingerprint:
            raise EmitError(
                f"--family: expected different graphs, got one twice: {one.file} and "
                f"{other.file}: plans of one graph for several devices belong into a bundle "
                "(cudnn-bindgen bundle), which is one member"
            )


def _check_key(key: Sequence[KeyDim], graphs: Sequence[BoundGraph]) -> None:
    seen: dict[tuple[int, ...], int] = {}
    for index, bound in enumerate(graphs):
        other = seen.setdefault(tuple(dim.values[index] for dim in key), index)
        if other == index:
            continue
        dims = ", ".join(f"{dim.name}={dim.values[index]}" for dim in key)
        same = _shape(graphs[other])[0] == _shape(bound)[0]
        got = "all dims equal, and only strides or numbers differ," if same else shorten(dims, 100)
        raise EmitError(
            f"--family: expected dims that tell all graphs apart, got {got} in "
            f"{graphs[other].file} and {bound.file}"
        )


def _join_arguments(bindings: Sequence[Binding]) -> tuple[Argument, ...]:
    """Return the first member's arguments, aligned as the strictest member asks.

    A default that is not everyone's is none: what would a call without the scalar mean?
    """
    joined = []
    for argument in bindings[0].arguments:
        every = [binding.arguments[argument.slot] for binding in bindings]
        bits = {one.default.data if one.default else None for one in every}
        joined.append(
            dataclasses.replace(
                argument,
                alignment=max(one.alignment for one in every),
                default=argument.default if len(bits) == 1 else None,
            )
        )
    return tuple(joined)


def _digest(fingerprints: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()[:32]
