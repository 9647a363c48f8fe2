"""How `run` compares each operand's memory layout, and which outputs may replace an input.

The rules stand in docs/tensors.md; here is which of them fits a tensor, from the port where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.model.graph import Graph, Node, Tensor


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """What is fixed about an operand's layout.

    `kind` is "plain", "swapped" (lowering exchanged the last two axes), "ragged", "paged" or
    "dense" (some order of its own); `free_axis` the one whose extent the caller decides, or -1.
    """

    kind: str
    free_axis: int = -1


PLAIN = LayoutRule("plain")

# What pages hold, and the optional input that says which.
_PAGED = {"K": "Page_table_K", "V": "Page_table_V"}
# Inputs whose last two axes lowering exchanges, and the port whose last axis is their head's
# size (02: SDPA takes K, its gradient K and V transposed; nvidia-cudnn-frontend 1.32).
_SWAPPED = {"K": "Q", "V": "O"}
# Outputs that replace an input element by element; callers pass the same memory for both.
_RUNNING = {
    "NEXT_RUNNING_MEAN": "PREV_RUNNING_MEAN",
    "NEXT_RUNNING_VAR": "PREV_RUNNING_VAR",
}


def find_layout_rules(graph: Graph, *, is_sized: bool) -> dict[int, LayoutRule]:
    """Return the layout of each tensor, by uid: what the first port says of it.

    `is_sized`: packed tokens are as many as declared, because a plan is kernels, and these are
    launched with the size of what they read.
    """
    tensors = {tensor.uid: tensor for tensor in graph.tensors}
    layouts: dict[int, LayoutRule] = {}
    for node in graph.nodes:
        for port, uid in node.ports:
            if uid not in layouts:
                layouts[uid] = _layout(node, port, tensors, is_sized)
    return {uid: layouts.get(uid, PLAIN) for uid in tensors}


def find_shared(graph: Graph, slots: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Return (output, input) `slots`, which stand by uid, that may be the same memory.

    The input is read by pointwise nodes alone, which lead to no other output, and both have the
    same dims, strides and width: each element is read where it is written. Or they are running
    statistics.
    """
    tensors = {tensor.uid: tensor for tensor in graph.tensors}
    pairs = {pair for node in graph.nodes for pair in _running_statistics(node)}
    written = {uid for node in graph.nodes for _, uid in node.outputs}
    leads_to = _pointwise_outputs(graph, tensors)
    for tensor in graph.tensors:
        output = leads_to.get(tensor.uid)
        if output is not None and not tensor.is_virtual and tensor.uid not in written:
            pairs.add((output, tensor.uid))
    return tuple(
        sorted(
            (slots[output], slots[replaced])
            for output, replaced in pairs
            if output in slots and replaced in slots
            if _are_alike(tensors[output], tensors[replaced])
        )
    )


def _layout(node: Node, port: str, tensors: Mapping[int, Tensor], is_sized: bool) -> LayoutRule:
    ports = dict(node.ports)
    tensor = tensors[ports[port]]
    is_attention = node.tag.startswith("SDPA") and len(tensor.dim) == 4
    is_swapped = is_attention and _is_swapped(node.tag, port, tensor, ports, tensors)
    if tensor.reordering_type != "NONE":
        return LayoutRule("dense")
    if tensor.ragged_offset_uid is not None and not is_sized:
        return LayoutRule("ragged", _token_axis(tensor, is_attention, is_swapped))
    if is_attention and _PAGED.get(port) in ports:
        return LayoutRule("paged", 0)
    return LayoutRule("swapped") if is_swapped else PLAIN


def _is_swapped(
    tag: str,
    port: str,
    tensor: Tensor,
    ports: Mapping[str, int],
    tensors: Mapping[int, Tensor],
) -> bool:
    if port not in _SWAPPED or _SWAPPED[port] not in ports:
        return False
    if port == "V" and not tag.endswith("_BWD"):
        return False
    head = tensors[ports[_SWAPPED[port]]].dim[-1:]
    rows, columns = tensor.dim[2:3], tensor.dim[3:4]
    if rows == head and columns == head:
        return tensor.stride[2] < tensor.stride[3]
    return rows == head


def _token_axis(tensor: Tensor, is_attention: bool, is_swapped: bool) -> int:
    if is_attention:
        return 3 if is_swapped else 2
    axes = range(1, len(tensor.dim))
    return max(axes, key=lambda axis: (tensor.stride[axis], tensor.dim[axis]), default=0)


def _running_statistics(node: Node) -> Iterator[tuple[int, int]]:
    ports = dict(node.ports)
    for after, before in _RUNNING.items():
        if after in ports and before in ports:
            yield ports[after], ports[before]


def _pointwise_outputs(graph: Graph, tensors: Mapping[int, Tensor]) -> dict[int, int | None]:
    """Return the only output that a tensor leads to, where pointwise nodes alone read it.

    None for a tensor that is also read otherwise, broadcast, or leads to several outputs.
    """
    leads_to: dict[int, int | None] = {}
    for node in reversed(_in_order(graph)):
        targets = set[int | None]()
        for _, output in node.outputs:
            if not tensors[output].is_virtual:
                targets.add(output)
            if output in leads_to:
                targets.add(leads_to[output])
        target = targets.pop() if node.tag == "POINTWISE" and len(targets) == 1 else None
        made = {tensors[output].dim for _, output in node.outputs}
        for uid in _read_by(node):
            # A virtual tensor may have no dims yet.
            is_broadcast = bool(tensors[uid].dim) and bool(made - {tensors[uid].dim, ()})
            own = None if is_broadcast else target
            leads_to[uid] = own if leads_to.get(uid, own) == own else None
    return leads_to


def _in_order(graph: Graph) -> list[Node]:
    """Return the nodes so that each stands behind those it reads from."""
    writer = {uid: index for index, node in enumerate(graph.nodes) for _, uid in node.outputs}
    needs = {
        # A node may write what it reads.
        index: {writer[uid] for uid in _read_by(node) if writer.get(uid, index) != index}
        for index, node in enumerate(graph.nodes)
    }
    return [graph.nodes[index] for index in TopologicalSorter(needs).static_order()]


def _read_by(node: Node) -> set[int]:
    return {uid for _, uid in node.inputs + node.optional + node.extra}


def _are_alike(one: Tensor, other: Tensor) -> bool:
    return (one.dim, one.stride) == (other.dim, other.stride) and (
        BITS[one.data_type] == BITS[other.data_type]
    )
