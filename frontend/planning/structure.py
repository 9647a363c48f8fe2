"""What is rebuilt and compared: nodes and tensors of a file, nulls and all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Node, Scalar
from cudnn_bindgen.codegen.model.scalar import read_scalar
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.codegen.read.dialects.document import ContextDocument, Document, TensorDocument
from cudnn_bindgen.codegen.read.graph import build_graph


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of a graph.

    `graph.Graph` says what each null stands for; here a null stays one, because the frontend has to
    be told, or not told, just what the first program told it. `paths` says where in the file each
    tensor stands. `bound` are the uids that callers bind, None where only a plan would know; a plan
    also says `constants` of compile time, by uid, and what no dump says (`codegen.unsaid`).
    `warnings` say what is odd about the graph.
    """

    context: ContextDocument
    nodes: tuple[Node, ...]
    tensors: Mapping[int, TensorDocument]
    paths: Mapping[int, str]
    bound: frozenset[int] | None
    constants: Mapping[int, Scalar] = field(default_factory=dict)
    unsaid: tuple[tuple[int, str, Any], ...] = ()
    warnings: tuple[GraphFormatError, ...] = field(default=(), compare=False)

    def value(self, uid: int) -> Scalar | None:
        """Return the value that the file has for a scalar."""
        document = self.tensors[uid].pass_by_value
        if document is None:
            return None
        return read_scalar(document, f"{self.paths[uid]}.pass_by_value")


def read_structure(document: Document) -> Structure:
    """Check a document as every command does, and keep what a plan depends on.

    Shapes of outputs may be open: the frontend infers them when the graph is rebuilt.

    Raises
    ------
    GraphFormatError
        It is no graph that can be bound.
    """
    graph = build_graph(document, is_inferred=False)
    tensors = {item.uid: item for item in document.structure.tensors}
    paths = dict(zip((item.uid for item in tensors.values()), document.tensor_paths, strict=True))
    for index, node in enumerate(graph.nodes):
        for name in {name for name, _ in node.extra}:
            _add_carried(node.attributes[name], f"$.nodes[{index}].{name}", tensors, paths)
    bound = None
    if graph.plan:
        own = {part.uid for part in graph.plan.workspace_parts}
        constants = {uid for uid, _ in graph.plan.constants}
        bound = frozenset((graph.plan.bound_uids | constants) - own)
    return Structure(
        document.structure.context,
        graph.nodes,
        tensors,
        paths,
        bound,
        {tensor.uid: tensor.constant for tensor in graph.tensors if tensor.constant},
        graph.unsaid,
        graph.warnings,
    )


def _add_carried(
    items: Any, path: str, tensors: dict[int, TensorDocument], paths: dict[int, str]
) -> None:
    """Add tensors that stand inside of a node."""
    for index, item in enumerate(check(items, list[TensorDocument], path)):
        tensors[item.uid] = item
        paths[item.uid] = f"{path}[{index}]"
