"""What operands an execution of a graph takes, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.graph import Graph, Node

# What the port of a tensor's offsets has behind that of the tensor.
RAGGED = "_ragged_offset"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An operand to be made.

    `port` is the binding's, in small letters: ``q``, ``seq_len_kv``, ``k_ragged_offset``. `role`
    is that of the argument. `offset_unit` is how many elements one of its ragged offsets stands
    for. `is_read` is set on an output that the graph reads before it writes it.
    """

    uid: int
    name: str
    port: str
    role: str
    data_type: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    offset_unit: int = 1
    is_read: bool = False


def find_wanted(graph: Graph) -> tuple[Wanted, ...]:
    """Return what each execution of `graph` needs; scalars with a value are the graph's own."""
    units = {tensor.uid: tensor.ragged_offset_multiplier or 1 for tensor in graph.tensors}
    offsets = {tensor.ragged_offset_uid: units[tensor.uid] for tensor in graph.tensors}
    read = _read_before_written(graph)
    return tuple(
        Wanted(
            uid=argument.uid,
            name=argument.name,
            port=argument.port.lower(),
            role=argument.role,
            data_type=argument.data_type,
            dim=argument.dim,
            stride=argument.stride,
            offset_unit=offsets.get(argument.uid, 1),
            is_read=argument.uid in read,
        )
        for argument in bind(graph).arguments
        if argument.default is None
    )


def waits_for_peers(nodes: Iterable[Node]) -> bool:
    """Whether a kernel waits for what other GPUs write (``peer_stats``).

    Alone it never ends, and with it the process: on an H200, under cuDNN 9.19 and 9.27, the GPU
    tests stood still at such a graph.
    """
    return any(field == "peer_stats" for node in nodes for field, _ in node.extra)


def span(dim: Iterable[int], stride: Iterable[int]) -> int:
    """Return how many elements lie between the first and the last one, with both."""
    # Python's integers, not 32 bits: PyTorch writes strides of INT_MAX.
    pairs = tuple(zip(dim, stride, strict=True))
    return 0 if any(d == 0 for d, _ in pairs) else 1 + sum((d - 1) * s for d, s in pairs)


def token_axis(item: Wanted) -> int:
    """Return the axis of attention's sequences."""
    # A lowered graph has K as its transpose; the other one of the two axes has stride 1.
    return 2 if item.stride[2] >= item.stride[3] else 3


def packed_stride(item: Wanted, ports: Collection[str]) -> tuple[int, ...]:
    """Return the strides that memory is needed for; `ports` are those of all operands.

    A ragged tensor's sequences follow each other; its batch stride is not used, and may be huge.

    Raises
    ------
    PlanError
        A stride is negative: the address would lie inside of the tensor's memory.
    """
    if any(step < 0 for step in item.stride):
        raise PlanError(f"{item.name}: expected no negative stride, got {list(item.stride)}")
    if f"{item.port}{RAGGED}" not in ports or len(item.dim) != 4:
        return item.stride
    axis = token_axis(item)
    return (item.dim[axis] * item.stride[axis], *item.stride[1:])


def _read_before_written(graph: Graph) -> set[int]:
    written: set[int] = set()
    found: set[int] = set()
    outputs = {uid for node in graph.nodes for _, uid in node.outputs}
    for node in graph.nodes:
        inputs = {uid for _, uid in node.inputs + node.optional + node.extra}
        found |= inputs & outputs - written
        written |= {uid for _, uid in node.outputs}
    return found
