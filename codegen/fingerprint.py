"""A digest of the graph: equal for the same graph, whatever file, order or process it came from."""

from __future__ import annotations

import hashlib

import msgspec

from cudnn_bindgen.codegen.graph import Graph, Node, Tensor


def fingerprint(graph: Graph) -> str:
    """Return 32 hex digits over the structure.

    Names are labels, not graph: they are left out, as are the plan, `gid`, and the versions of
    frontend and cuDNN. A plan file and the structure dump beside it have the same fingerprint.
    """
    content = {
        "context": dict(graph.context),
        "nodes": [_node(node) for node in graph.nodes],
        "tensors": [_tensor(tensor) for tensor in graph.tensors],
    }
    encoded = msgspec.json.encode(content, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:32]


def _node(node: Node) -> dict[str, object]:
    attributes = {k: v for k, v in node.attributes.items() if k not in {f for f, _ in node.extra}}
    return {"tag": node.tag, "ports": node.ports, "attributes": attributes}


def _tensor(tensor: Tensor) -> list[object]:
    value = tensor.value
    return [
        tensor.uid,
        tensor.data_type,
        tensor.dim,
        tensor.stride,
        tensor.is_virtual,
        tensor.is_pass_by_value,
        [value.data_type, value.data.hex()] if value else None,
        tensor.reordering_type,
        tensor.alignment,
        tensor.ragged_offset_uid,
        tensor.ragged_offset_multiplier,
    ]
