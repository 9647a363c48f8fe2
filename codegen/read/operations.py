"""cuDNN's text of a plan → OperationGraph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.model.operation_graph import OperationGraph, TextTensor
from cudnn_bindgen.codegen.read.dialects.decode import check

_TENSORS, _NODES = Meta(max_length=10_000), Meta(max_length=5_000)


class OperationGraphText(msgspec.Struct, frozen=True):
    """The member of the text, or the part of it that attention has inside (``subgraph``)."""

    tensors: Annotated[list[TextTensor], _TENSORS] = []
    nodes: Annotated[list[dict[str, Any]], _NODES] = []


def read_operations(text: OperationGraphText, path: str) -> OperationGraph:
    """Type what stands at `path`."""
    tensors = dict(_tensors(text, path))
    subgraphs = {}
    for index, node in enumerate(text.nodes):
        if node.get("subgraph") is not None:
            inner = f"{path}.nodes[{index}].subgraph"
            found = check(node["subgraph"], OperationGraphText, inner)
            subgraphs[index] = found.nodes
            tensors = dict(_tensors(found, inner)) | tensors
    return OperationGraph(text.nodes, subgraphs, tensors)


def _tensors(text: OperationGraphText, path: str) -> Iterator[tuple[str, tuple[str, TextTensor]]]:
    for index, item in enumerate(text.tensors):
        yield item.name, (f"{path}.tensors[{index}]", item)
