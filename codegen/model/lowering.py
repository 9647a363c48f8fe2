"""What lowering writes into attention, found again: a graph has one form, the one it was built in.

`validate()` leaves a graph as it was built, `build_operation_graph()` does not: a plan file, or a
dump written after it, has these changes, and which of them depends on cuDNN's version. None of them
loses anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.backward_tags import GRADIENT_OF
from cudnn_bindgen.codegen.model.graph import Graph, Node, Scalar, is_made_up
from cudnn_bindgen.codegen.model.ports import ATTENTION
from cudnn_bindgen.codegen.model.scalar import read_float

# The backend reads K, in gradients V as well, with the last two axes exchanged (the frontend's
# expand_node): port → the one whose last axis is as long as its own was, and the block scales that
# go with it in the microscaled tags.
_FORWARD = {"K": ("Q", "Descale_K")}
_BACKWARD = {"K": ("Q", "Descale_K"), "V": ("O", "Descale_V")}
_TURNED = {tag: _BACKWARD if tag in GRADIENT_OF else _FORWARD for tag in ATTENTION}

# Block scales whose strides lowering overwrites → what they scale.
_REWRITTEN = {"SDPA_MXFP8_BWD": {"Descale_Q_T": "Q", "Descale_K_T": "K"}}

# For cuDNN 9.15 and older the frontend pads gradients by itself where the number of keys asks for
# it, with lengths of its own that lie in its part of the workspace.
OWN_LENGTHS = {
    "SEQ_LEN_Q": "workaround_padding_mask_seq_len_q",
    "SEQ_LEN_KV": "workaround_padding_mask_seq_len_kv",
}


class _Sizes(Protocol):
    """A tensor, of the model or of a document."""

    @property
    def name(self) -> str | None: ...
    @property
    def dim(self) -> Sequence[int]: ...
    @property
    def stride(self) -> Sequence[int]: ...
    @property
    def ragged_offset_uid(self) -> int | None: ...


_Layout: TypeAlias = tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True)
class Undone:
    """The nodes before lowering, and what it did to tensors, by uid.

    `layouts` are the dims and strides before of those that it laid out anew; `added` are those that
    it made.
    """

    nodes: tuple[Node, ...]
    layouts: Mapping[int, _Layout]
    added: frozenset[int]


def as_built(graph: Graph) -> Graph:
    """Return the graph as it was before the frontend lowered it; equal if it did not.

    Where calls override dims, axes stay in the order in which a call has to name them.
    """
    tensors = {tensor.uid: tensor for tensor in graph.tensors}
    # Without a plan nobody can tell the frontend's own lengths from callers' of the same names.
    bound: Set[int] = set(tensors)
    if graph.plan:
        bound = graph.plan.bound_uids - {part.uid for part in graph.plan.workspace_parts}
    undone = find_lowering(graph.nodes, tensors, lambda uid: tensors[uid].value, bound)
    layouts = {} if graph.is_override_shape_enabled else undone.layouts
    for uid, (dim, stride) in layouts.items():
        tensors[uid] = replace(tensors[uid], dim=tuple(dim), stride=tuple(stride))
    left = tuple(tensor for uid, tensor in tensors.items() if uid not in undone.added)
    return replace(graph, nodes=undone.nodes, tensors=left)


def find_lowering(
    nodes: Sequence[Node],
    tensors: Mapping[int, _Sizes],
    value: Callable[[int], Scalar | None],
    bound: Set[int] | None,
) -> Undone:
    """Find what lowering wrote into a graph.

    Parameters
    ----------
    nodes, tensors
        The graph's, the tensors by uid.
    value
        Uid → the value that the graph has for a scalar.
    bound
        The uids that callers bind; None where nobody knows, so that names have to tell.
    """
    layouts: dict[int, _Layout] = {}
    before = []
    for node in nodes:
        if node.tag in ATTENTION:
            layouts |= _turned(node, tensors)
            layouts |= _rewritten(node, tensors, layouts)
            node = _without_scalars(node, tensors, value)
            node = _without_lengths(node, tensors, bound)
        before.append(node)
    used = {uid for node in before for _, uid in node.ports}
    used |= {uid for item in tensors.values() if (uid := item.ragged_offset_uid) is not None}
    added = {uid for node in nodes for _, uid in node.ports} - used
    return Undone(tuple(before), layouts, frozenset(added))


def _turned(node: Node, tensors: Mapping[int, _Sizes]) -> dict[int, _Layout]:
    """Exchange the axes of K and V again."""
    ports = dict(node.inputs + node.optional)
    turned: dict[int, _Layout] = {}
    for port, (like, scale) in _TURNED[node.tag].items():
        uid, other = ports.get(port), ports.get(like)
        # The frontend loads pages as they lie.
        if uid is None or f"Page_table_{port}" in ports:
            continue
        head = tensors[other].dim[3:] if other is not None and other != uid else ()
        if not _is_turned(tensors[uid], head):
            continue
        turned[uid] = _exchanged(tensors[uid])
        if node.tag.startswith("SDPA_MXFP8") and scale in ports:
            blocks = tensors[ports[scale]]
            if _has_four_axes(blocks):
                turned[ports[scale]] = _exchanged(blocks)
    return turned


def _is_turned(tensor: _Sizes, head: Sequence[int]) -> bool:
    """Whether lowering exchanged the last two axes of a tensor whose last dim was `head`.

    It is certain: the frontend refuses one whose last stride is not 1. Where both strides are, the
    dims tell; if those are equal as well, both orders are the same.
    """
    if not _has_four_axes(tensor) or tensor.stride[2] != 1:
        return False
    if not head:
        return tensor.stride[3] != 1
    rows, columns = tensor.dim[2:]
    return rows == head[0] and (columns != rows or tensor.stride[3] != 1)


def _exchanged(tensor: _Sizes) -> _Layout:
    dim, stride = tensor.dim, tensor.stride
    return [*dim[:2], dim[3], dim[2]], [*stride[:2], stride[3], stride[2]]


def _has_four_axes(tensor: _Sizes) -> bool:
    return len(tensor.dim) == len(tensor.stride) == 4


def _rewritten(
    node: Node, tensors: Mapping[int, _Sizes], layouts: Mapping[int, _Layout]
) -> dict[int, _Layout]:
    """Give block scales the strides that lowering gives them, whatever they had before.

    The order of their bytes is fixed (F8_128x4), so that their strides say nothing.
    """
    ports = dict(node.inputs + node.optional)
    rewritten: dict[int, _Layout] = {}
    for port, scaled in _REWRITTEN.get(node.tag, {}).items():
        if port not in ports or scaled not in ports:
            continue
        scale, operand = tensors[ports[port]], tensors[ports[scaled]]
        if not (_has_four_axes(scale) and _has_four_axes(operand)):
            continue
        dim, _ = layouts.get(ports[scaled], (operand.dim, ()))
        batch, heads, rows, _ = dim
        size = -(-rows // 128) * 4 * 128
        strides = [heads * size, size, batch * heads * size, 1]
        rewritten[ports[port]] = list(scale.dim), strides
    return rewritten


def _without_scalars(
    node: Node, tensors: Mapping[int, _Sizes], value: Callable[[int], Scalar | None]
) -> Node:
    """Drop the scalars that lowering makes of attributes: of their value, and with no name."""
    own = [
        port
        for port, scalar in _own_scalars(node).items()
        for each, uid in node.optional
        if each == port and is_made_up(tensors[uid].name or "") and value(uid) == scalar
    ]
    return replace(node, optional=_without(node.optional, *own)) if own else node


def _own_scalars(node: Node) -> dict[str, Scalar]:
    scale = _number(node, "attn_scale_value")
    drop = _number(node, "dropout_probability")
    left = None if drop is None else _narrow(1.0 - drop)
    found = {
        "Attn_scale": scale,
        "Dropout_scale": _narrow(1.0 / left) if left else None,
        "Dropout_scale_inv": left,
    }
    return {
        port: Scalar("FLOAT", struct.pack("<f", number))
        for port, number in found.items()
        if number is not None
    }


def _number(node: Node, name: str) -> float | None:
    """Read an attribute; of one that is no number whoever needs it tells, with its path."""
    text = node.attributes.get(name)
    if text is None:
        return None
    with suppress(GraphFormatError):
        return _narrow(read_float(text, ""))
    return None


def _narrow(number: float) -> float | None:
    """Round to a FLOAT; None if it has none of that size."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return None


def _without_lengths(node: Node, tensors: Mapping[int, _Sizes], bound: Set[int] | None) -> Node:
    """Drop the padding that the frontend added, which nobody passes."""
    ports = dict(node.optional)
    names = {port: tensors[ports[port]].name for port in OWN_LENGTHS if port in ports}
    if names != OWN_LENGTHS or node.attributes.get("padding_mask") is not True:
        return node
    if bound is not None and any(ports[port] in bound for port in OWN_LENGTHS):
        return node
    attributes = {**node.attributes, "padding_mask": False}
    return replace(node, attributes=attributes, optional=_without(node.optional, *OWN_LENGTHS))


def _without(ports: Iterable[tuple[str, int]], *names: str) -> tuple[tuple[str, int], ...]:
    return tuple((port, uid) for port, uid in ports if port not in names)
