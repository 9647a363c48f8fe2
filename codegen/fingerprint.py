"""A digest of the graph: equal for the same graph, whatever file, order or process it came from."""

from __future__ import annotations

import hashlib

import msgspec

from cudnn_bindgen.codegen.graph import Graph, Node, Tensor
from cudnn_bindgen.codegen.lowering import ATTENTION, as_built

# Which of the frontend's ways to build attention: how, not what. It resolves AUTO by cuDNN's
# version and writes what it resolved it to.
_WAY = "implementation"


def fingerprint(graph: Graph) -> str:
    """Return 32 hex digits over the structure.

    Names are labels, not graph: they are left out, as are the plan, `gid`, the versions of frontend
    and cuDNN, and attributes that are null or false. It is of the graph as it was built, so that
    dumps before and after lowering and plans under every cuDNN have the same.
    """
    graph = as_built(graph)
    content = {
        "context": dict(graph.context),
        "nodes": [_node(node, graph) for node in graph.nodes],
        "tensors": [_tensor(tensor) for tensor in graph.tensors],
    }
    encoded = msgspec.json.encode(content, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:32]


def _node(node: Node, graph: Graph) -> dict[str, object]:
    carried = {field for field, _ in node.extra}
    return {
        "tag": node.tag,
        "ports": node.ports,
        "attributes": {
            name: value
            for name, value in node.attributes.items()
            # Newer frontends write attributes that older ones lack, at values that change nothing.
            # Not `in (None, False)`: a bound of 0 is not the same as no bound.
            if value is not None
            and value is not False
            and name not in carried
            and not (name == _WAY and node.tag in ATTENTION)
            and (name, value) != ("compute_data_type", graph.context.get("compute_data_type"))
        },
    }


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
