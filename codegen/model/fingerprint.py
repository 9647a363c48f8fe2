"""A digest of the graph: equal for the same graph, whatever file, order or process it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from cudnn_bindgen.codegen.model.graph import Graph, Node, Tensor
from cudnn_bindgen.codegen.model.lowering import as_built
from cudnn_bindgen.codegen.model.ports import ATTENTION
from cudnn_bindgen.codegen.model.scalar import write_bits
from cudnn_bindgen.codegen.model.unsaid import bound_by_callers

# Which of the frontend's ways to build attention: how, not what. It resolves AUTO by cuDNN's
# version and writes what it resolved it to.
_WAY = "implementation"


def fingerprint(graph: Graph) -> str:
    """Return 32 hex digits over all that decides what the graph computes.

    docs/design.md says what is in it and what is not. It is of the graph as it was built, so that
    dumps before and after lowering and plans under every cuDNN have the same.
    """
    graph = as_built(graph)
    labels = _labels(graph)
    content = {
        "context": dict(graph.context),
        "nodes": [_node(node, graph, labels) for node in graph.nodes],
        "tensors": sorted(_encode(_tensor(tensor, labels)) for tensor in graph.tensors),
        "unsaid": graph.unsaid,
    }
    return hashlib.sha256(_encode(content).encode()).hexdigest()[:32]


def _encode(content: object) -> str:
    # Unlike msgspec it tells NaN from infinities; a decimal is what UBJSON has for long numbers.
    return json.dumps(content, sort_keys=True, default=lambda number: {"decimal": str(number)})


def _labels(graph: Graph) -> Mapping[int, str]:
    """Return what tensors are called: by their uids only those that callers bind by it.

    The frontend numbers the others, each version its own way. They are called by the node and the
    place at it that mention them first.
    """
    bound = bound_by_callers(graph.tensors, None)
    labels = {
        tensor.uid: f"uid {tensor.uid}"
        for tensor in graph.tensors
        if tensor.uid in bound and not tensor.is_virtual and tensor.constant is None
    }
    for index, node in enumerate(graph.nodes):
        for place, (_, uid) in enumerate(node.ports):
            labels.setdefault(uid, f"node {index}, {place}")
    return labels


def _node(node: Node, graph: Graph, labels: Mapping[int, str]) -> dict[str, object]:
    carried = {field for field, _ in node.extra}
    return {
        "tag": node.tag,
        "ports": [(port, labels[uid]) for port, uid in node.ports],
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


def _tensor(tensor: Tensor, labels: Mapping[int, str]) -> list[object]:
    offset = tensor.ragged_offset_uid
    return [
        labels.get(tensor.uid),
        tensor.data_type,
        tensor.dim,
        tensor.stride,
        tensor.is_virtual,
        tensor.is_pass_by_value,
        tensor.value and write_bits(tensor.value),
        tensor.constant and write_bits(tensor.constant),
        tensor.reordering_type,
        tensor.alignment,
        None if offset is None else labels.get(offset),
        tensor.ragged_offset_multiplier,
    ]
