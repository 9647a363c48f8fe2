"""Graph → Binding: all that a template may see, decided here.

Which tensors the caller binds, in which order and under which names; what a plan adds to them.
The rules stand in docs/design.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind import naming
from cudnn_bindgen.codegen.bind.layouts import LayoutRule, find_layout_rules, find_shared
from cudnn_bindgen.codegen.bind.overrides import (
    OverrideOptions,
    OverrideParts,
    Shape,
    bind_overrides,
)
from cudnn_bindgen.codegen.bind.plan_parts import plan_parts
from cudnn_bindgen.codegen.model import ports
from cudnn_bindgen.codegen.model.axes import name_axes
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.model.graph import Graph, Scalar, Tensor
from cudnn_bindgen.codegen.model.unsaid import bound_by_callers
from cudnn_bindgen.module_data import PlanParts


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of `execute`, which is also one slot of the variant pack.

    `name` is the bare name (``q``), `argument` the parameter's (``q_ptr``; a scalar has no suffix),
    `original` the name in the file. `alignment` is what the caller's address must be a multiple
    of, in bytes. `default` is set on optional scalars only. `port` is where it comes from; `layout`
    what of its memory layout a tensor must have.
    """

    slot: int
    uid: int
    name: str
    argument: str
    original: str
    role: str  # "input", "output" or "scalar"
    port: str
    data_type: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    alignment: int
    layout: LayoutRule
    default: Scalar | None = None

    @property
    def is_scalar(self) -> bool:
        """Whether it is passed by value."""
        return self.role == "scalar"

    @property
    def is_empty(self) -> bool:
        """Whether it has no element."""
        return 0 in self.dim


@dataclass(frozen=True, slots=True)
class Binding:
    """A whole module, before it is text."""

    fingerprint: str
    dialect: str
    nodes: tuple[str, ...]
    arguments: tuple[Argument, ...]
    shared: tuple[tuple[int, int], ...]  # slots of an output and an operand that it may replace
    overrides: OverrideParts | None
    plans: tuple[PlanParts, ...]
    structure: bytes  # what a plan can be made of: Graph.source

    @property
    def is_override_shape_enabled(self) -> bool:
        """Whether calls may override shapes."""
        return self.overrides is not None

    @property
    def operands(self) -> tuple[Argument, ...]:
        """The arguments that are addresses; they come first."""
        return tuple(argument for argument in self.arguments if not argument.is_scalar)

    @property
    def scalars(self) -> tuple[Argument, ...]:
        """The arguments that are values; they come last."""
        return tuple(argument for argument in self.arguments if argument.is_scalar)

    @property
    def is_empty(self) -> bool:
        """Whether every output has no element, so that there is nothing to compute."""
        outputs = [argument for argument in self.arguments if argument.role == "output"]
        return bool(outputs) and all(output.is_empty for output in outputs)


def bind(
    graph: Graph, options: OverrideOptions | None = None, *, is_sized: bool | None = None
) -> Binding:
    """Decide arguments, slots and metadata of `graph`.

    `is_sized`: of find_layout_rules; None: as the graph's own plan asks.

    Raises
    ------
    EmitError
        `options` ask for what the graph does not have.
    """
    digest = fingerprint(graph)
    if is_sized is None:
        is_sized = graph.has_kernels
    arguments = _arguments(graph, is_sized)
    uids = {argument.uid for argument in arguments}
    axes = name_axes(graph)
    shapes = [Shape(a.name, axes[a.uid], a.dim, a.stride) for a in arguments if not a.is_scalar]
    return Binding(
        fingerprint=digest,
        dialect=graph.dialect,
        nodes=tuple(node.tag for node in graph.nodes),
        arguments=arguments,
        shared=find_shared(graph, {a.uid: a.slot for a in arguments if not a.is_scalar}),
        overrides=bind_overrides(
            shapes, graph.is_override_shape_enabled, options or OverrideOptions()
        ),
        plans=(plan_parts(graph.plan, digest, uids),) if graph.plan else (),
        structure=graph.source,
    )


@dataclass(frozen=True, slots=True)
class _Use:
    """A tensor at the port where it is seen first, and which group of arguments that puts it in.

    `owner` is set on a ragged offset: the tensor at that port, whose offset it is.
    """

    uid: int
    tag: str
    port: str
    group: int
    owner: int | None = None


# The groups of arguments, in the order in which they stand in a signature.
_INPUT, _OPTIONAL, _OUTPUT, _REQUIRED_SCALAR, _DEFAULT_SCALAR = range(5)

_RAGGED = "_ragged_offset"


def _uses(graph: Graph, tensors: Mapping[int, Tensor]) -> Iterator[_Use]:
    """Yield every port of the graph in order, then the ragged offsets of each node's tensors."""
    written = {uid for node in graph.nodes for _, uid in node.outputs}
    for node in graph.nodes:
        for port, uid in node.inputs:
            yield _Use(uid, node.tag, port, _OUTPUT if uid in written else _INPUT)
        for port, uid in node.optional + node.extra:
            yield _Use(uid, node.tag, port, _OUTPUT if uid in written else _OPTIONAL)
        for port, uid in node.outputs:
            yield _Use(uid, node.tag, port, _OUTPUT)
        for port, uid in node.ports:
            offset = tensors[uid].ragged_offset_uid
            if offset is not None:
                group = _OUTPUT if offset in written else _OPTIONAL
                yield _Use(offset, node.tag, f"{port}{_RAGGED}", group, owner=uid)
    # The frontend drops ports it has no text for (REDUCTION's Group_offset); their tensors remain.
    for tensor in graph.tensors:
        yield _Use(tensor.uid, "", "operand", _OPTIONAL)


def _arguments(graph: Graph, is_sized: bool) -> tuple[Argument, ...]:
    tensors = {tensor.uid: tensor for tensor in graph.tensors}
    first: dict[int, _Use] = {}
    for use in _uses(graph, tensors):
        if not tensors[use.uid].is_virtual:
            first.setdefault(use.uid, use)
    structural = _structural_names(first)
    callers = bound_by_callers(graph.tensors, graph.plan)
    bound = [(_group(use, tensors[uid]), use) for uid, use in first.items() if uid in callers]
    bound.sort(key=lambda item: item[0])
    names = naming.choose_names(
        [structural[use.uid] for _, use in bound], [tensors[use.uid].name for _, use in bound]
    )
    aligned = dict(graph.plan.aligned_operands) if graph.plan else {}
    layouts = find_layout_rules(graph, is_sized=is_sized)
    return tuple(
        _argument(slot, name, group, use, tensors[use.uid], aligned, layouts[use.uid])
        for slot, ((group, use), name) in enumerate(zip(bound, names, strict=True))
    )


def _argument(
    slot: int,
    name: str,
    group: int,
    use: _Use,
    tensor: Tensor,
    aligned: dict[int, int],
    layout: LayoutRule,
) -> Argument:
    is_scalar = tensor.is_pass_by_value
    return Argument(
        slot=slot,
        uid=tensor.uid,
        name=name,
        argument=naming.argument_name(name, is_scalar),
        original=tensor.name,
        role="scalar" if is_scalar else "output" if group == _OUTPUT else "input",
        port=use.port,
        data_type=tensor.value.data_type if tensor.value else tensor.data_type,
        dim=tensor.dim,
        stride=tensor.stride,
        alignment=_alignment(use, tensor, aligned),
        layout=layout,
        default=tensor.value if is_scalar else None,
    )


def _structural_names(first: Mapping[int, _Use]) -> dict[int, str]:
    """Name operands by port, numbered over all of them, bound or not: by ports alone."""
    at_ports = {uid: _port_name(use.port) for uid, use in first.items() if use.owner is None}
    names = dict(zip(at_ports, naming.number_names(at_ports.values()), strict=True))
    for uid, use in first.items():
        if uid not in at_ports:
            owner = names.get(use.owner) if use.owner in at_ports else None
            names[uid] = f"{owner}{_RAGGED}" if owner else _port_name(use.port)
    return dict(zip(names, naming.number_names(names.values()), strict=True))


def _port_name(port: str) -> str:
    # CONCATENATE's ports are "0", "1", ...
    return naming.identifier(f"in_{port}" if port[:1].isdigit() else port) or "operand"


def _group(use: _Use, tensor: Tensor) -> int:
    if not tensor.is_pass_by_value:
        return use.group
    return _DEFAULT_SCALAR if tensor.value else _REQUIRED_SCALAR


def _alignment(use: _Use, tensor: Tensor, aligned: dict[int, int]) -> int:
    """Bytes that the caller's address must be a multiple of.

    What the plan lists is what the frontend enforces. Otherwise the declared alignment, but for
    what kernels read element by element (lengths, offsets, page tables, one-element scales):
    callers pass slices of larger tensors there, so only the element's own size can be asked.
    """
    if tensor.is_pass_by_value:
        return 1
    if tensor.uid in aligned:
        return max(1, aligned[tensor.uid])
    elementwise = use.port.endswith(_RAGGED) or ports.is_elementwise_port(use.port, use.tag)
    if elementwise or tensor.elements <= 1:
        return min(tensor.alignment, tensor.element_bytes)
    return tensor.alignment
