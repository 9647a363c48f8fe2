"""Undo what lowering writes into a dump of attention, so that dumps before and after it compare.

`validate()` leaves a graph as it was built, `build_operation_graph()` does not: a plan file, or a
dump written after it, has these changes. None of them loses anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from cudnn_bindgen.codegen.dialects.document import TensorDocument
from cudnn_bindgen.codegen.graph import Node
from cudnn_bindgen.codegen.scalar import read_float
from cudnn_bindgen.planning.structure import Structure

# The backend reads K, in gradients V as well, with the last two axes exchanged (the frontend's
# expand_node). In the microscaled tags the block scales go with them.
_FORWARD = {"K": "Descale_K"}
_BACKWARD = {"K": "Descale_K", "V": "Descale_V"}
_TURNED = {
    "SDPA": _FORWARD,
    "SDPA_FWD": _FORWARD,
    "SDPA_FP8_FWD": _FORWARD,
    "SDPA_MXFP8_FWD": _FORWARD,
    "SDPA_BWD": _BACKWARD,
    "SDPA_FP8_BWD": _BACKWARD,
    "SDPA_MXFP8_BWD": _BACKWARD,
}


def undo_lowering(structure: Structure) -> Structure:
    """Return the structure as it was before the frontend lowered it; the same if it did not."""
    tensors = dict(structure.tensors)
    nodes = []
    for index, node in enumerate(structure.nodes):
        if node.tag in _TURNED:
            _turn_back(node, tensors)
            node = _take_scale_out(node, structure, f"$.nodes[{index}]")
            node = _take_lengths_out(node, structure)
        nodes.append(node)
    used = {uid for node in nodes for _, uid in node.ports}
    lost = {uid for node in structure.nodes for _, uid in node.ports} - used
    kept = {uid: item for uid, item in tensors.items() if uid not in lost}
    return replace(structure, nodes=tuple(nodes), tensors=kept)


def _turn_back(node: Node, tensors: dict[int, TensorDocument]) -> None:
    """Exchange the axes of K and V again.

    Whether lowering exchanged them is certain: the frontend refuses every K and V whose last stride
    is not 1.
    """
    ports = dict(node.inputs + node.optional)
    done: set[int] = set()
    for port, scale in _TURNED[node.tag].items():
        uid = ports.get(port)
        if uid is None or uid in done or not _is_turned(tensors[uid]):
            continue
        turned = {uid}
        if node.tag.startswith("SDPA_MXFP8") and scale in ports:
            turned.add(ports[scale])
        for each in turned:
            tensors[each] = _exchange(tensors[each])
        done |= turned


def _is_turned(tensor: TensorDocument) -> bool:
    if len(tensor.dim) != 4 or len(tensor.stride) != 4:
        return False
    return tensor.stride[3] != 1 and tensor.stride[2] == 1


def _exchange(tensor: TensorDocument) -> TensorDocument:
    *outer, sequence, head = range(4)
    axes = [*outer, head, sequence]
    return msgspec.structs.replace(
        tensor,
        dim=[tensor.dim[axis] for axis in axes],
        stride=[tensor.stride[axis] for axis in axes],
    )


def _take_scale_out(node: Node, structure: Structure, path: str) -> Node:
    """Drop the scalar that lowering makes of `attn_scale_value`, if it has that value."""
    text = node.attributes.get("attn_scale_value")
    uid = dict(node.optional).get("Attn_scale")
    if text is None or uid is None:
        return node
    value = structure.value(uid)
    scale = struct.pack("<f", read_float(text, f"{path}.attn_scale_value"))
    if value is None or value.data != scale:
        return node
    return replace(node, optional=_without(node.optional, "Attn_scale"))


# For cuDNN 9.15 and older the frontend pads gradients by itself where the number of keys asks for
# it, with lengths of its own that lie in its part of the workspace.
_OWN_LENGTHS = {
    "SEQ_LEN_Q": "workaround_padding_mask_seq_len_q",
    "SEQ_LEN_KV": "workaround_padding_mask_seq_len_kv",
}


def _take_lengths_out(node: Node, structure: Structure) -> Node:
    """Drop the padding that the frontend added, which nobody passes."""
    ports = dict(node.optional)
    names = {port: structure.tensors[ports[port]].name for port in _OWN_LENGTHS if port in ports}
    if names != _OWN_LENGTHS:
        return node
    attributes = {**node.attributes, "padding_mask": False}
    return replace(node, attributes=attributes, optional=_without(node.optional, *_OWN_LENGTHS))


def _without(ports: Iterable[tuple[str, int]], *names: str) -> tuple[tuple[str, int], ...]:
    return tuple((port, uid) for port, uid in ports if port not in names)
