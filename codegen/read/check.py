"""What must be true of tensors because nodes, callers and a plan use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cudnn_bindgen.codegen.errors import OTHER_GRAPH, GraphFormatError
from cudnn_bindgen.codegen.model import ports
from cudnn_bindgen.codegen.model.data_types import BITS, SCALAR_TYPES
from cudnn_bindgen.codegen.model.graph import Node, PlanInfo, Tensor
from cudnn_bindgen.codegen.model.limits import MAX_OPERANDS
from cudnn_bindgen.codegen.model.lowering import OWN_LENGTHS
from cudnn_bindgen.codegen.text import member, shorten

_SET_OUTPUT = "call set_output(True) on what the graph computes"


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor and its JSON path."""

    tensor: Tensor
    path: str


def check_nodes(
    nodes: Sequence[Node], tensors: Mapping[int, Placed], *, is_inferred: bool = True
) -> None:
    """Raise GraphFormatError unless `nodes` are an acyclic graph whose operands can be bound.

    A graph that is not inferred may leave the shapes of its outputs open.
    """
    written = _writers(nodes, tensors)
    _check_readers(nodes, tensors, written)
    _check_cycles(nodes, tensors, written)
    if all(tensors[uid].tensor.is_virtual for uid in written):
        raise GraphFormatError(
            "expected an output that is not virtual, got none", path="$.nodes", hint=_SET_OUTPUT
        )
    # Whether a port names them or not: callers bind all of them (binding.py).
    operands = [item for item in tensors.values() if not item.tensor.is_virtual]
    _check_inferred([o for o in operands if is_inferred or o.tensor.uid not in written])
    for item in operands:
        _check_operand(item)
    if len(operands) > MAX_OPERANDS:
        raise GraphFormatError(
            f"expected at most {MAX_OPERANDS} tensors that are not virtual, got {len(operands)}",
            path="$.tensors",
            hint="cuDNN takes no more in one variant pack; split the graph",
        )


def check_plan(plan: PlanInfo, nodes: Sequence[Node], tensors: Mapping[int, Placed]) -> None:
    """Raise GraphFormatError where a plan binds other tensors than the structure has."""
    placed = {part.uid for part in plan.workspace_parts}
    for uid in placed:
        if uid in tensors and not _is_frontends(tensors[uid].tensor):
            raise GraphFormatError(
                f"expected a tensor of the frontend's own, got {uid}, {tensors[uid].path}",
                path=f"$.workspace_modifications.{uid}",
                hint=OTHER_GRAPH,
            )
    placed |= {replacement.target for replacement in plan.replacements}
    for uid in plan.variant_pack_uids:
        if uid in tensors and tensors[uid].tensor.is_virtual and uid not in placed:
            raise GraphFormatError(
                f"expected uids of tensors in memory, got {uid}, a virtual one",
                path="$.variant_pack_uids",
                hint=OTHER_GRAPH,
            )
    for uid, _ in plan.constants:
        if uid in tensors and not tensors[uid].tensor.is_pass_by_value:
            raise GraphFormatError(
                f"expected the uid of a scalar, got {uid}, a tensor in device memory",
                path=f"$.pass_by_values.{uid}",
                hint=OTHER_GRAPH,
            )
    bound = plan.bound_uids
    for index, node in enumerate(nodes):
        for port, uid in node.outputs:
            if not tensors[uid].tensor.is_virtual and uid not in bound:
                raise GraphFormatError(
                    f"expected every output of the graph, got none with uid {uid}, "
                    f"{member(f'$.nodes[{index}].outputs', port)}",
                    path="$.variant_pack_uids",
                    hint=OTHER_GRAPH,
                )


def _is_frontends(tensor: Tensor) -> bool:
    """Whether nobody binds it, though it stands in the structure."""
    return tensor.is_virtual or tensor.name in OWN_LENGTHS.values()


def find_warnings(
    nodes: Sequence[Node], tensors: Mapping[int, Placed], plan: PlanInfo | None
) -> Iterator[GraphFormatError]:
    """Yield what is odd about a graph that can be bound nevertheless."""
    read: set[int | None] = {uid for node in nodes for _, uid in node.inputs + node.optional}
    read |= {item.tensor.ragged_offset_uid for item in tensors.values()}
    for index, node in enumerate(nodes):
        path = f"$.nodes[{index}]"
        yield from _unknown_ports(node, path)
        unread = [
            (port, uid)
            for port, uid in node.outputs
            if tensors[uid].tensor.is_virtual and uid not in read
        ]
        for port, uid in unread if plan is None else ():
            yield GraphFormatError(
                f"expected a tensor that a node reads, got virtual tensor {uid}, which none does",
                path=member(f"{path}.outputs", port),
                hint="call set_output(True) on it if you need its value",
            )
    if plan is not None:
        yield from _unbound(plan, tensors)


def _writers(nodes: Sequence[Node], tensors: Mapping[int, Placed]) -> dict[int, int]:
    """Return which node writes each tensor."""
    places: dict[int, str] = {}
    written: dict[int, int] = {}
    for index, node in enumerate(nodes):
        if not node.outputs:
            raise GraphFormatError(
                "expected at least one output, got none", path=f"$.nodes[{index}].outputs"
            )
        for port, uid in node.outputs:
            place = member(f"$.nodes[{index}].outputs", port)
            if uid in written:
                raise GraphFormatError(
                    f"expected a tensor that no other port writes, got {uid}, "
                    f"which {places[uid]} writes too",
                    path=place,
                )
            if tensors[uid].tensor.is_pass_by_value:
                raise GraphFormatError(
                    f"expected a tensor in device memory, got {uid}, a scalar passed by value",
                    path=place,
                    hint="call set_is_pass_by_value(False) on it",
                )
            places[uid] = place
            written[uid] = index
    return written


def _check_readers(
    nodes: Sequence[Node], tensors: Mapping[int, Placed], written: Mapping[int, int]
) -> None:
    read = [
        (uid, member(f"$.nodes[{index}].inputs", port))
        for index, node in enumerate(nodes)
        for port, uid in node.inputs + node.optional
    ]
    for item in tensors.values():
        if item.tensor.ragged_offset_uid is not None:
            read.append((item.tensor.ragged_offset_uid, f"{item.path}.ragged_offset_uid"))
    for uid, place in read:
        if tensors[uid].tensor.is_virtual and uid not in written:
            raise GraphFormatError(
                f"expected a tensor that a node writes, got virtual tensor {uid}, which none does",
                path=place,
                hint="call set_is_virtual(False) on it if the caller has it",
            )


def _check_cycles(
    nodes: Sequence[Node], tensors: Mapping[int, Placed], written: Mapping[int, int]
) -> None:
    """Take nodes out whose inputs are there, until none is left; what stays is a cycle.

    A node that updates a tensor of the caller's in place is none.
    """
    waits = [{written[uid] for _, uid in n.inputs + n.optional if uid in written} for n in nodes]
    for index, node in enumerate(nodes):
        if all(not tensors[uid].tensor.is_virtual for _, uid in node.outputs):
            waits[index].discard(index)
    readers: list[list[int]] = [[] for _ in nodes]
    for index, writers in enumerate(waits):
        for writer in writers:
            readers[writer].append(index)
    ready = [index for index, writers in enumerate(waits) if not writers]
    left = set(range(len(nodes)))
    while ready:
        done = ready.pop()
        left.discard(done)
        for reader in readers[done]:
            waits[reader].discard(done)
            if not waits[reader]:
                ready.append(reader)
    if left:
        raise GraphFormatError(
            "expected inputs that other nodes write, got some that depend on this node's outputs",
            path=f"$.nodes[{min(left)}]",
        )


def _check_inferred(operands: Iterable[Placed]) -> None:
    unknown = [f"{item.path}.dim" for item in operands if not item.tensor.dim]
    if unknown:
        error = GraphFormatError(
            "expected the shape of an operand, got []: the graph was dumped before its shapes "
            "were inferred",
            path=unknown[0],
            hint="call graph.validate() first, or set dim and stride of this tensor",
        )
        error.also = tuple(unknown[1:])
        raise error


def _check_operand(item: Placed) -> None:
    tensor, path = item.tensor, item.path
    if tensor.data_type not in BITS:
        raise GraphFormatError(
            "expected a data type, got null and no context.io_data_type to inherit",
            path=f"{path}.data_type",
            hint="set the tensor's data_type, or io_data_type of the graph",
        )
    if tensor.is_pass_by_value:
        _check_scalar(tensor, path)


def _check_scalar(tensor: Tensor, path: str) -> None:
    if tensor.data_type not in SCALAR_TYPES:
        raise GraphFormatError(
            f"expected one of {', '.join(SCALAR_TYPES)} for a scalar, got {tensor.data_type}",
            path=f"{path}.data_type",
            hint="set the scalar's data_type",
        )
    if tensor.elements != 1:
        raise GraphFormatError(
            f"expected one element for a scalar, got {shorten(str(tensor.dim))}",
            path=f"{path}.dim",
            hint="pass it as a tensor in device memory: set_is_pass_by_value(False)",
        )
    if tensor.value and tensor.value.data_type != tensor.data_type:
        raise GraphFormatError(
            f"expected {tensor.data_type} as in data_type, got {tensor.value.data_type}",
            path=f"{path}.pass_by_value.index",
            hint="set the tensor's data_type to that of its value",
        )


def _unknown_ports(node: Node, path: str) -> Iterator[GraphFormatError]:
    hint = "its operands are bound in the order of their ports' names; look at the order"
    if node.tag not in ports.PORTS:
        yield GraphFormatError(
            f"expected a known node tag, got {shorten(node.tag)}", path=f"{path}.tag", hint=hint
        )
        return
    for side, found in (("inputs", node.inputs + node.optional), ("outputs", node.outputs)):
        for port in ports.find_unknown(node.tag, [port for port, _ in found]):
            yield GraphFormatError(
                f"expected a known port of {node.tag}, got {shorten(port)}",
                path=member(f"{path}.{side}", port),
                hint=hint,
            )


def _unbound(plan: PlanInfo, tensors: Mapping[int, Placed]) -> Iterator[GraphFormatError]:
    bound = plan.bound_uids
    for uid, item in tensors.items():
        tensor = item.tensor
        if not tensor.is_virtual and not tensor.is_pass_by_value and uid not in bound:
            yield GraphFormatError(
                f"expected every operand, got none with uid {uid}, {item.path}",
                path="$.variant_pack_uids",
                hint="the plan does not read it, so that it is no argument",
            )
