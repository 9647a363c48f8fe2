"""Whether graphs differ in shape only: what must be equal in all members of a family."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.graph import Graph, Node
from cudnn_bindgen.codegen.text import shorten

# A float as files write it: its bits in hex.
_BITS = re.compile(r"[0-9A-F]{8}")

# The frontend's choice by shape and cuDNN, not the graph's.
_CHOSEN = frozenset({"implementation"})


@dataclass(frozen=True, slots=True)
class BoundGraph:
    """A graph that becomes a member, with its binding; messages call it `file`."""

    file: str
    source: str
    graph: Graph
    binding: Binding


def check_alike(first: BoundGraph, other: BoundGraph) -> None:
    """Check that `other` differs from `first` in shape only.

    Raises
    ------
    EmitError
        It does not; the message names the operand or the node.
    """
    _check_names(first, other)
    for ours, theirs in zip(first.binding.arguments, other.binding.arguments, strict=True):
        facts = zip(_facts(ours).items(), _facts(theirs).values(), strict=True)
        for (what, expected), got in facts:
            if expected != got:
                raise _differs(first, other, ours.argument, f"{what} {expected}", got)
    _check_nodes(first, other)


def _check_names(first: BoundGraph, other: BoundGraph) -> None:
    expected = [argument.argument for argument in first.binding.arguments]
    got = [argument.argument for argument in other.binding.arguments]
    if len(expected) != len(got):
        raise _differs(first, other, "operands", _listed(expected), f"{len(got)}: {_listed(got)}")
    for slot, (name, found) in enumerate(zip(expected, got, strict=True)):
        if name != found:
            raise _differs(first, other, f"operand {slot}", name, found)


def _listed(names: list[str]) -> str:
    return shorten(", ".join(names), 100)


def _facts(argument: Argument) -> dict[str, object]:
    return {
        "role": argument.role,
        "data type": argument.data_type,
        "rank": len(argument.dim),
    }


def _check_nodes(first: BoundGraph, other: BoundGraph) -> None:
    """Compare what nodes do and how they are connected; numbers may follow shapes."""
    ours, theirs = first.graph.nodes, other.graph.nodes
    tags = tuple(shorten(", ".join(node.tag for node in nodes), 100) for nodes in (ours, theirs))
    if [node.tag for node in ours] != [node.tag for node in theirs]:
        raise _differs(first, other, "nodes", *tags)
    numbers = _number_tensors(first), _number_tensors(other)
    for index, pair in enumerate(zip(ours, theirs, strict=True)):
        where = f"node {index} ({shorten(pair[0].tag)})"
        expected, got = (
            dict(_words(node, bound.graph)) | _ports(node, number)
            for node, bound, number in zip(pair, (first, other), numbers, strict=True)
        )
        for name in sorted({*expected, *got}):
            if expected.get(name) != got.get(name):
                raise _differs(first, other, f"{where}: {name}", expected.get(name), got.get(name))
    ours_only, theirs_only = (_unsaid(bound.graph) for bound in (first, other))
    for path in sorted({*ours_only, *theirs_only}):
        if ours_only.get(path) != theirs_only.get(path):
            raise _differs(first, other, path, ours_only.get(path), theirs_only.get(path))


def _number_tensors(bound: BoundGraph) -> Mapping[int, str]:
    """Return what tensors are called in comparisons, by uid: operands by name, others by order."""
    names = {argument.uid: argument.argument for argument in bound.binding.arguments}
    for node in bound.graph.nodes:
        for _, uid in node.ports:
            names.setdefault(uid, f"tensor {len(names)}")
    return names


def _ports(node: Node, names: Mapping[int, str]) -> dict[str, str]:
    return {shorten(port): names[uid] for port, uid in node.ports}


def _words(node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield what attributes say in words, and that there is a number, but not which."""
    carried = {field for field, _ in node.extra}
    for name, value in node.attributes.items():
        # As in fingerprint.py: newer frontends write more, at values that change nothing.
        is_default = (name, value) == ("compute_data_type", graph.context.get("compute_data_type"))
        if name not in carried and name not in _CHOSEN and not is_default:
            yield from _flatten(shorten(name), value)


def _unsaid(graph: Graph) -> dict[str, str]:
    """Return what only plans say, such as score modifiers, by places of which node has it."""
    return {
        f"node {index}: {place}": word
        for index, what, found in graph.unsaid
        if index >= 0
        for place, word in _flatten(what, found)
    }


def _flatten(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flatten(f"{path}.{shorten(str(name))}", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _flatten(f"{path}[{index}]", item)
    elif value is True:
        yield path, "true"
    elif isinstance(value, str) and not _BITS.fullmatch(value):
        yield path, shorten(value)
    elif value is not None and value is not False:
        yield path, "a number"


def _differs(
    first: BoundGraph, other: BoundGraph, where: str, expected: object, got: object
) -> EmitError:
    def said(value: object) -> object:
        return "nothing" if value is None else value

    return EmitError(
        f"--family: {other.file}: {where}: expected {said(expected)} as in {first.file}, "
        f"got {said(got)}"
    )
