"""What a chain's file says, with its graphs → ports that are one tensor, each checked.

A port is an argument of one link. `LINK.TENSOR` names it: by the tensor's name in its graph, by the
argument's as `show` prints it, or by uid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.naming import identifier
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.read.chain import ChainFile, View
from cudnn_bindgen.codegen.text import did_you_mean, join_sizes, shorten

# What the runtime asks of a workspace; inner tensors lie at multiples of it.
MAX_ALIGNMENT = 128


class Port(NamedTuple):
    """An argument of a link: both by number."""

    link: int
    slot: int


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """A link's graph: the link's name, the base name of the file, and the binding."""

    name: str
    source: str
    binding: Binding


@dataclass(slots=True)
class Net:
    """Ports that are one tensor.

    `first` gives its shape: the port that writes it, if one does. `readers` are the others, with
    the bytes from the tensor's address on. `name` is that of the argument, if the file has one; an
    inner tensor is none.
    """

    first: Port
    readers: dict[Port, int] = field(default_factory=dict)
    name: str = ""
    is_inner: bool = False

    @property
    def ports(self) -> dict[Port, int]:
        """All of them, with the bytes from the tensor's address on."""
        return {self.first: 0, **self.readers}


def find_nets(said: ChainFile, links: Sequence[LinkGraph]) -> list[Net]:
    """Return all tensors of a chain, in the order of their first ports.

    Raises
    ------
    EmitError
        A wire cannot be: the message has both ends.
    """
    finder = _Finder(links)
    for end, start in said.wires.items():
        finder.wire(end, start)
    for name, ends in said.operands.items():
        finder.join(name, ends)
    return finder.finish()


class _Finder:
    def __init__(self, links: Sequence[LinkGraph]) -> None:
        self._links = links
        self._numbers = {link.name: number for number, link in enumerate(links)}
        self._nets: dict[Port, Net] = {}
        self._wired: dict[Port, str] = {}  # input → the wire, as the file has it

    def argument(self, port: Port) -> Argument:
        return self._links[port.link].binding.arguments[port.slot]

    def wire(self, end: str, start: str | View) -> None:
        view = start if isinstance(start, View) else None
        source = start.of if isinstance(start, View) else start
        where = f'[wires] "{shorten(end)}" = "{shorten(source)}"'
        reader, writer = self._find(end, where), self._find(source, where)
        if self.argument(reader).role != "input":
            raise EmitError(f"{where}: expected an input at {self._said(reader)}")
        if self.argument(writer).role != "output":
            raise EmitError(f"{where}: expected an output at {self._said(writer)}")
        if reader in self._wired:
            raise EmitError(f"{where}: expected one wire into an input, got {self._wired[reader]}")
        self._wired[reader] = where
        net = self._nets.setdefault(writer, Net(writer, is_inner=True))
        net.readers[reader] = (
            self._check_view(reader, writer, view.offset, where)
            if view
            else self._check_alike(reader, writer, where)
        )
        for port in (reader, writer):
            if self.argument(port).alignment > MAX_ALIGNMENT:
                raise EmitError(
                    f"{where}: expected tensors of an alignment of at most {MAX_ALIGNMENT}, got "
                    f"{self.argument(port).alignment} at {self._said(port)}"
                )

    def join(self, name: str, ends: Sequence[str | View]) -> None:
        where = f"[operands] {shorten(name)}"
        if not identifier(name):
            raise EmitError(f"{where}: expected a name that can be an argument")
        ports = [self._find(end.of if isinstance(end, View) else end, where) for end in ends]
        views = {port: end for port, end in zip(ports, ends, strict=True) if isinstance(end, View)}
        for number, port in enumerate(ports):
            if port in ports[:number]:
                raise EmitError(f"{where}: expected each tensor once, got {self._said(port)} twice")
            if port in self._wired:
                raise EmitError(
                    f"{where}: expected tensors that nobody writes, or that one output writes, got "
                    f"{self._said(port)}, which has a wire: {self._wired[port]}; name the output"
                )
            if port in self._nets and not self._nets[port].is_inner:
                raise EmitError(
                    f"{where}: expected tensors of one argument, got {self._said(port)}, which is "
                    f"also {shorten(self._nets[port].name)}"
                )
        # Who writes gives the shape, else the first that is no view.
        first, *others = sorted(
            ports, key=lambda port: (self.argument(port).role != "output", port in views)
        )
        if first in views:
            raise EmitError(f"{where}: expected a tensor that is not a view of another, got none")
        net = self._nets.setdefault(first, Net(first))
        net.name, net.is_inner = name, False
        for port in others:
            if self.argument(port).role == "output":
                raise EmitError(
                    f"{where}: expected at most one output, got {self._said(first)} and "
                    f"{self._said(port)}"
                )
            net.readers[port] = (
                self._check_view(port, first, views[port].offset, where)
                if port in views
                else self._check_alike(port, first, where)
            )
            self._nets[port] = net

    def finish(self) -> list[Net]:
        for number, link in enumerate(self._links):
            for slot in range(len(link.binding.arguments)):
                port = Port(number, slot)
                if port not in self._wired:
                    self._nets.setdefault(port, Net(port))
        nets = {id(net): net for net in self._nets.values()}
        return sorted(nets.values(), key=lambda net: min(net.ports))

    def _find(self, text: str, where: str) -> Port:
        name, _, tensor = text.partition(".")
        if name not in self._numbers:
            known = {one: one for one in self._numbers}
            got = f'"{shorten(text)}"{did_you_mean(name, known)}'
            raise EmitError(f"{where}: expected LINK.TENSOR with a link of the chain, got {got}")
        link = self._numbers[name]
        arguments = self._links[link].binding.arguments
        ways = (
            [a.slot for a in arguments if a.original == tensor],
            [a.slot for a in arguments if a.name == tensor],
            [a.slot for a in arguments if str(a.uid) == tensor],
        )
        found = next((slots for slots in ways if slots), [])
        if len(found) > 1:
            uids = ", ".join(str(arguments[slot].uid) for slot in found)
            raise EmitError(
                f'{where}: expected one tensor, got "{shorten(tensor)}", which uids {uids} of '
                f"{name} are called: name it by uid"
            )
        if not found:
            known = {spelling: a.name for a in arguments for spelling in (a.original, a.name)}
            names = shorten(", ".join(argument.name for argument in arguments), 100)
            raise EmitError(
                f'{where}: expected a tensor of {name} among {names}, got "{shorten(tensor)}"'
                f"{did_you_mean(tensor, known)}"
            )
        return Port(link, found[0])

    def _check_alike(self, reader: Port, other: Port, where: str) -> int:
        ours, theirs = self.argument(reader), self.argument(other)
        if ours.is_scalar != theirs.is_scalar:
            raise self._differs(reader, other, where)
        is_same = ours.data_type == theirs.data_type and (
            ours.is_scalar or (_shape(ours) == _shape(theirs) and _order(ours) == _order(theirs))
        )
        if not is_same:
            raise self._differs(reader, other, where)
        return 0

    def _check_view(self, reader: Port, writer: Port, offset: int, where: str) -> int:
        """Return the bytes from the writer's address on."""
        ours, theirs = self.argument(reader), self.argument(writer)
        bits = BITS[theirs.data_type]
        if ours.data_type != theirs.data_type or ours.is_scalar or theirs.is_scalar:
            raise self._differs(reader, writer, where)
        if offset * bits % (8 * ours.alignment):
            raise EmitError(
                f"{where}: expected an offset of a multiple of {ours.alignment} bytes, as "
                f"{self._said(reader)} asks, got {offset} elements"
            )
        # How many tokens a ragged tensor has is data, which nobody reads here.
        least = 1 if ours.layout.kind == "ragged" else span(ours)
        if offset + least > span(theirs):
            raise EmitError(
                f"{where}: expected at most {span(theirs)} elements, as {self._said(writer)} has, "
                f"got {offset + least} up to the end of {self._said(reader)}"
            )
        return offset * bits // 8

    def _differs(self, reader: Port, other: Port, where: str) -> EmitError:
        return EmitError(
            f"{where}: expected tensors of one data type, dim and stride, got {self._said(other)} "
            f"and {self._said(reader)}; where they are the same memory in other shapes, a view: "
            '{ of = "LINK.TENSOR", offset = ELEMENTS }'
        )

    def _said(self, port: Port) -> str:
        argument = self.argument(port)
        text = f"{self._links[port.link].name}.{shorten(argument.original or argument.name)}"
        if argument.is_scalar:
            return f"{text} (a scalar, {argument.data_type}, which callers pass by value)"
        kind = "" if _order(argument) == "plain" else f"{argument.layout.kind} "
        return (
            f"{text} ({kind}{argument.role}, {argument.data_type}, dim {join_sizes(argument.dim)}, "
            f"stride {join_sizes(argument.stride)})"
        )


def span(argument: Argument) -> int:
    """Return the elements from a tensor's address on that it takes."""
    if argument.is_empty:
        return 0
    steps = zip(argument.dim, argument.stride, strict=True)
    return 1 + sum((size - 1) * abs(step) for size, step in steps)


def _shape(argument: Argument) -> tuple[Mapping[int, tuple[int, int]], int]:
    """Return dims and strides by axis, but for axes of one element, as before lowering."""
    axes = list(zip(argument.dim, argument.stride, strict=True))
    if argument.layout.kind == "swapped":
        axes[-2:] = reversed(axes[-2:])
    return {n: axis for n, axis in enumerate(axes) if axis[0] != 1}, len(axes)


def _order(argument: Argument) -> str:
    """Return in which order elements lie that strides do not tell."""
    kind = argument.layout.kind
    return kind if kind in ("ragged", "dense") else "plain"
