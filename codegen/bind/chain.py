"""Graphs that are wired by tensors → Chain: all that the templates of one module for them may see.

The rules stand in docs/chains.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cudnn_bindgen.codegen.bind import naming
from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.chain_layout import CycleError, Inner, Order, find_order, lay_out
from cudnn_bindgen.codegen.bind.chain_ports import LinkGraph, Net, Port, find_nets, span
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.model.graph import Scalar
from cudnn_bindgen.codegen.model.limits import MAX_OPERANDS
from cudnn_bindgen.codegen.read.chain import ChainFile

# Bytes; as limits.Bytes.
_MAX_INNER = 2**48

WORKSPACE = -1
"""In place of the slot: what lies in the workspace."""


@dataclass(frozen=True, slots=True)
class Link:
    """One graph of a chain.

    `places` say of each slot of its own where the address comes from: a slot of the chain or
    WORKSPACE, and the bytes from there on. `after` and `lane` are those of chain_layout.Order.
    """

    name: str
    source: str
    binding: Binding
    places: tuple[tuple[int, int], ...]
    after: tuple[int, ...]
    lane: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A whole module for several graphs that run one after another, before it is text.

    `binding` is what callers see of it, as if it were one graph: uids are slots, counted from 1.
    `links` are in an order in which they can run. `inner_size`: bytes of workspace for tensors
    between them; that of the links comes behind. `wires`: input → output, by names.
    """

    binding: Binding
    links: tuple[Link, ...]
    inner_size: int
    wires: Mapping[str, str]


def make_chain(said: ChainFile, graphs: Sequence[LinkGraph]) -> Chain:
    """Make a chain of the graphs of its links, in the order of the file.

    Raises
    ------
    EmitError
        They cannot be wired as it says.
    """
    for graph in graphs:
        if graph.binding.overrides:
            raise EmitError(
                f"[[link]] {graph.name}: expected a graph of one shape, got one with override "
                "shapes, which a chain cannot take"
            )
    nets = find_nets(said, graphs)
    order = _order(nets, graphs)
    outer, inner = [net for net in nets if not net.is_inner], [net for net in nets if net.is_inner]
    arguments = _arguments(outer, graphs)
    offsets, inner_size = lay_out([_inner(net, graphs, order) for net in inner], order.before)
    if inner_size > _MAX_INNER:
        raise EmitError(f"expected inner tensors of at most {_MAX_INNER} bytes, got {inner_size}")
    places: dict[Port, tuple[int, int]] = {}
    for argument, net in zip(arguments, _sorted(outer, graphs), strict=True):
        places |= {port: (argument.slot, offset) for port, offset in net.ports.items()}
    for start, net in zip(offsets, inner, strict=True):
        places |= {port: (WORKSPACE, start + offset) for port, offset in net.ports.items()}
    links = tuple(
        Link(
            graphs[link].name,
            graphs[link].source,
            graphs[link].binding,
            tuple(places[Port(link, a.slot)] for a in graphs[link].binding.arguments),
            order.after[at],
            order.lanes[at],
        )
        for at, link in enumerate(order.links)
    )
    return Chain(
        binding=Binding(
            fingerprint=_digest(nets, order, graphs),
            dialect="chain",
            nodes=tuple(tag for link in links for tag in link.binding.nodes),
            arguments=arguments,
            shared=_shared(outer, arguments, graphs),
            overrides=None,
            plans=(),
            structure=b"",
        ),
        links=links,
        inner_size=inner_size,
        wires={
            _said(reader, graphs): _said(net.first, graphs)
            for net in nets
            if _argument(net.first, graphs).role == "output"
            for reader in net.readers
        },
    )


def _argument(port: Port, graphs: Sequence[LinkGraph]) -> Argument:
    return graphs[port.link].binding.arguments[port.slot]


def _said(port: Port, graphs: Sequence[LinkGraph]) -> str:
    argument = _argument(port, graphs)
    return f"{graphs[port.link].name}.{argument.original or argument.name}"


def _order(nets: Sequence[Net], graphs: Sequence[LinkGraph]) -> Order:
    needs: list[set[int]] = [set() for _ in graphs]
    for net in nets:
        if _argument(net.first, graphs).role == "output":
            for reader in net.readers:
                needs[reader.link].add(net.first.link)
    try:
        return find_order(needs)
    except CycleError as cycle:
        way = " -> ".join(graphs[link].name for link in cycle.links)
        problem = f"[wires]: expected links that do not wait for each other, got {way}"
        raise EmitError(problem) from None


def _inner(net: Net, graphs: Sequence[LinkGraph], order: Order) -> Inner:
    argument = _argument(net.first, graphs)
    place = {link: at for at, link in enumerate(order.links)}
    size = -(-span(argument) * BITS[argument.data_type] // 8)
    return Inner(size, place[net.first.link], tuple(place[port.link] for port in net.readers))


def _sorted(outer: Sequence[Net], graphs: Sequence[LinkGraph]) -> list[Net]:
    """Return arguments as those of a graph stand: inputs, outputs, scalars."""

    def group(net: Net) -> tuple[bool, bool, bool]:
        argument = _argument(net.first, graphs)
        return argument.is_scalar, argument.role == "output", _default(net, graphs) is not None

    return sorted(outer, key=group)


def _default(net: Net, graphs: Sequence[LinkGraph]) -> Scalar | None:
    """Return the default of a scalar, if all of its links have the same."""
    every = [_argument(port, graphs).default for port in net.ports]
    return every[0] if len({one.data if one else None for one in every}) == 1 else None


def _arguments(outer: Sequence[Net], graphs: Sequence[LinkGraph]) -> tuple[Argument, ...]:
    if len(outer) > MAX_OPERANDS:
        raise EmitError(f"expected at most {MAX_OPERANDS} arguments, got {len(outer)}")
    nets = _sorted(outer, graphs)
    firsts = [min(net.ports) for net in nets]
    bare = [f"{graphs[port.link].name}_{_argument(port, graphs).name}" for port in firsts]
    structural = naming.number_names([naming.identifier(name) for name in bare])
    names = naming.choose_names(structural, [net.name for net in nets])
    made = []
    for slot, (net, name) in enumerate(zip(nets, names, strict=True)):
        first = _argument(net.first, graphs)
        made.append(
            replace(
                first,
                slot=slot,
                uid=slot + 1,
                name=name,
                argument=naming.argument_name(name, first.is_scalar),
                original=net.name or _said(net.first, graphs),
                alignment=max(_argument(port, graphs).alignment for port in net.ports),
                default=_default(net, graphs),
            )
        )
    return tuple(made)


def _shared(
    outer: Sequence[Net], arguments: Sequence[Argument], graphs: Sequence[LinkGraph]
) -> tuple[tuple[int, int], ...]:
    """Return what links allow to be the same memory, of tensors that no other link uses."""
    slots = {
        net.first: argument.slot
        for net, argument in zip(_sorted(outer, graphs), arguments, strict=True)
        if len(net.ports) == 1
    }
    return tuple(
        (slots[Port(link, output)], slots[Port(link, other)])
        for link, graph in enumerate(graphs)
        for output, other in graph.binding.shared
        if Port(link, output) in slots and Port(link, other) in slots
    )


def _digest(nets: Sequence[Net], order: Order, graphs: Sequence[LinkGraph]) -> str:
    """Return the identity of the chain: its graphs, and which of their tensors are one.

    Callers pass arguments by slot, so the order of these counts; names do not, nor where inner
    tensors lie.
    """
    outer = _sorted([net for net in nets if not net.is_inner], graphs)
    known = {port: (slot, net.ports[port]) for slot, net in enumerate(outer) for port in net.ports}
    inner = {port: net for net in nets if net.is_inner for port in net.ports}
    numbers: dict[Port, int] = {}
    words = []
    for link in order.links:
        words.append(graphs[link].binding.fingerprint)
        for argument in sorted(graphs[link].binding.arguments, key=lambda one: one.uid):
            port = Port(link, argument.slot)
            if port in inner:
                number = numbers.setdefault(inner[port].first, WORKSPACE - len(numbers))
                known[port] = (number, inner[port].ports[port])
            words.append(f"{argument.uid} {known[port]}")
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]
