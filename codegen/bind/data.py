"""Binding, Family or Chain → ModuleData: what the runtime is told."""

from __future__ import annotations

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.chain import Chain
from cudnn_bindgen.codegen.bind.family import Family
from cudnn_bindgen.codegen.bind.overrides import OverrideParts
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.module_data import (
    ChainData,
    GraphData,
    LinkData,
    ModuleData,
    Operand,
    OverrideData,
)


def data_of(binding: Binding, source: str) -> ModuleData:
    """Return the data of a graph alone; `source` is the base name of its file."""
    return ModuleData(binding.fingerprint, (), (), (_graph(binding, source),))


def data_of_family(family: Family) -> ModuleData:
    """Return the data of a family."""
    return ModuleData(
        family.fingerprint,
        tuple(dim.name for dim in family.key),
        tuple(dim.places for dim in family.key),
        tuple(_graph(member.binding, member.source, member.key) for member in family.members),
    )


def data_of_chain(chain: Chain, source: str) -> ModuleData:
    """Return the data of a chain; `source` is the base name of its file."""
    return ModuleData(
        chain.binding.fingerprint,
        (),
        (),
        tuple(_graph(link.binding, link.source) for link in chain.links),
        ChainData(
            _graph(chain.binding, source),
            tuple(LinkData(link.name, link.places, link.after, link.lane) for link in chain.links),
            chain.inner_size,
            tuple(sorted(chain.wires.items())),
        ),
    )


def _graph(binding: Binding, source: str, key: tuple[int, ...] = ()) -> GraphData:
    return GraphData(
        key=key,
        fingerprint=binding.fingerprint,
        source=source,
        dialect=binding.dialect,
        nodes=binding.nodes,
        operands=tuple(map(_operand, binding.arguments)),
        layouts=tuple((a.name, a.layout.kind, a.layout.free_axis) for a in binding.operands),
        shared=binding.shared,
        overrides=_overrides(binding, binding.overrides) if binding.overrides else None,
        plans=binding.plans,
        structure=binding.structure,
    )


def _operand(argument: Argument) -> Operand:
    return Operand(
        argument.uid,
        argument.argument,
        argument.original,
        argument.role,
        argument.data_type,
        argument.dim,
        argument.stride,
        argument.alignment,
        argument.default.value if argument.default else None,
    )


def _overrides(binding: Binding, overrides: OverrideParts) -> OverrideData:
    operands = zip(binding.operands, overrides.shapes, strict=True)
    return OverrideData(
        tuple((shape.name, shape.axes, BITS[operand.data_type]) for operand, shape in operands),
        tuple(
            (symbol.name, symbol.is_packed, tuple((u.slot, u.axis, u.steps) for u in symbol.uses))
            for symbol in overrides.symbols
        ),
        overrides.is_unbounded,
    )
