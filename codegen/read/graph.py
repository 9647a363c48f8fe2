"""Document → Graph: every rule a graph must keep is checked on this way and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model import ports
from cudnn_bindgen.codegen.model.graph import Graph, Node, PlanInfo
from cudnn_bindgen.codegen.model.scalar import read_bits
from cudnn_bindgen.codegen.model.unsaid import OnlyInPlan, find_unsaid
from cudnn_bindgen.codegen.read.check import Placed, check_nodes, check_plan, find_warnings
from cudnn_bindgen.codegen.read.dialects import Reading, read_documents
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.codegen.read.dialects.document import (
    Document,
    NodeDocument,
    StructureDocument,
    TensorDocument,
)
from cudnn_bindgen.codegen.read.options import DEFAULT, ReadOptions
from cudnn_bindgen.codegen.read.plan import added_uids, check_uids, read_plan
from cudnn_bindgen.codegen.read.tensor import read_tensor
from cudnn_bindgen.codegen.read.write_structure import write_structure
from cudnn_bindgen.codegen.text import member


@dataclass(frozen=True, slots=True)
class Entry:
    """One graph of a file, or why it cannot be read; `line` is where it stands in a log, else 0.

    `tags` are those of its nodes, as far as they could be read.
    """

    line: int
    tags: tuple[str, ...]
    graph: Graph | None
    refusal: GraphFormatError | None


def read_graph(data: bytes, file: str = "", options: ReadOptions = DEFAULT) -> Graph:
    """Read the bytes of a graph file.

    Parameters
    ----------
    data
        Content of the file, in any dialect of `cudnn_bindgen.codegen.read.dialects`.
    file
        Its name, for error messages only.
    options
        Which graph of several, and what else to accept or to refuse.

    Returns
    -------
    Graph
        Its `warnings` say what is odd about it.

    Raises
    ------
    GraphFormatError
        With file, JSON path, what was expected there and what to do.
    """
    try:
        return _build(_choose(read_documents(data, options), options), options)
    except GraphFormatError as error:
        error.file = file
        raise


def read_document(data: bytes, file: str = "", options: ReadOptions = DEFAULT) -> Document:
    """Read what `read_graph` builds its model from: decoded and typed, nothing filled in.

    What is null in the file is null here; the model has what the null stands for.

    Raises
    ------
    GraphFormatError
        As `read_graph` does, but for what only the model shows.
    """
    try:
        reading = _choose(read_documents(data, options), options)
        if isinstance(reading, GraphFormatError):
            raise reading
    except GraphFormatError as error:
        error.file = file
        raise
    return reading


def list_graphs(data: bytes, file: str = "", options: ReadOptions = DEFAULT) -> list[Entry]:
    """Read all graphs of a file, each by itself: what `options.index` counts from 1.

    Raises
    ------
    GraphFormatError
        There is no graph in it at all.
    """
    try:
        return [_read_entry(reading, file, options) for reading in read_documents(data, options)]
    except GraphFormatError as error:
        error.file = file
        raise


def _read_entry(reading: Reading, file: str, options: ReadOptions) -> Entry:
    tags: tuple[str, ...] = ()
    if isinstance(reading, Document):
        tags = tuple(node.tag for node in reading.structure.nodes)
    try:
        return Entry(reading.line, tags, _build(reading, options), None)
    except GraphFormatError as error:
        error.file = file
        return Entry(reading.line, tags, None, error)


def _choose(readings: Sequence[Reading], options: ReadOptions) -> Reading:
    count = len(readings)
    if options.index is None and count > 1:
        raise GraphFormatError(
            f"expected one graph, got {count}",
            hint=f"choose one with --index 1 to {count}; --list shows them",
        )
    index = options.index or 1
    if index > count:
        raise GraphFormatError(
            f"expected an --index from 1 to {count}, got {index}", hint="--list shows the graphs"
        )
    return readings[index - 1]


def _build(reading: Reading, options: ReadOptions) -> Graph:
    if isinstance(reading, GraphFormatError):
        raise reading
    try:
        graph = build_graph(reading)
        if options.strict and graph.warnings:
            raise graph.warnings[0]
    except GraphFormatError as error:
        error.dialect = reading.dialect
        error.line = reading.line
        raise
    return graph


def build_graph(document: Document, *, is_inferred: bool = True) -> Graph:
    """Check a document and build the model from it.

    Of a graph that is not inferred yet no binding can be made, but a plan can.
    """
    structure = document.structure
    tensors: dict[int, Placed] = {}
    for item, path in zip(structure.tensors, document.tensor_paths, strict=True):
        _add_tensor(tensors, item, path, structure)
    nodes = []
    for index, (node, raw) in enumerate(zip(structure.nodes, document.raw_nodes, strict=True)):
        nodes.append(_read_node(node, raw, f"$.nodes[{index}]", tensors, structure))
    if not nodes:
        raise GraphFormatError(
            "expected at least one node, got none",
            path="$.nodes",
            hint="add the operations before dumping the graph",
        )
    plan = read_plan(document.plan) if document.plan else None
    operands = dict(_operands_of_plan(plan, tensors)) if plan else {}
    for path, item in operands.items():
        _add_tensor(tensors, item, path, structure)
    _check_ragged_offsets(tensors)
    check_nodes(nodes, tensors, is_inferred=is_inferred)
    if plan:
        check_uids(plan, tensors.keys(), loses_offsets=document.loses_offsets)
        check_plan(plan, nodes, tensors)
    only = structure.only_in_plan
    if plan and not plan.kernels:  # whoever traces those knows the structure
        by_uid = {uid: placed.tensor for uid, placed in tensors.items()}
        only = find_unsaid(nodes, by_uid, plan, structure.context.compute_data_type)
    _add_constants(only, tensors)
    return Graph(
        dialect=document.dialect,
        tensors=tuple(tensors[uid].tensor for uid in sorted(tensors)),
        nodes=tuple(nodes),
        context=_context(structure),
        plan=plan,
        unsaid=tuple(only.unsaid),
        warnings=(*document.warnings, *find_warnings(nodes, tensors, plan)),
        source=write_structure(document, list(operands.values()), only),
    )


def _operands_of_plan(
    plan: PlanInfo, tensors: Mapping[int, Placed]
) -> Iterator[tuple[str, TensorDocument]]:
    """Yield what the plan binds and only cuDNN's text describes: operands of score modifiers."""
    described = plan.operation_graph.tensors if plan.operation_graph else {}
    for uid in sorted({*plan.variant_pack_uids} - tensors.keys() - added_uids(plan)):
        if str(uid) in described:
            path, item = described[str(uid)]
            yield (
                path,
                TensorDocument(
                    uid=uid,
                    dim=item.dim,
                    stride=item.stride,
                    data_type=item.data_type,
                    is_virtual=item.isVirtual,
                    is_pass_by_value=item.isByValue,
                    reordering_type=item.reordering.removeprefix("CUDNN_TENSOR_REORDERING_"),
                    alignment=item.ptrAlignment,
                ),
            )


def _add_constants(only: OnlyInPlan, tensors: dict[int, Placed]) -> None:
    scalars = {
        str(uid): placed
        for uid, placed in tensors.items()
        if placed.tensor.is_pass_by_value and placed.tensor.value is None
    }
    for key, written in only.constants.items():
        path = member("$.only_in_plan.constants", key)
        if key not in scalars:
            raise GraphFormatError("expected the uid of a scalar without a value", path=path)
        placed = scalars[key]
        tensor = replace(placed.tensor, constant=read_bits(written, path))
        tensors[tensor.uid] = replace(placed, tensor=tensor)


def _context(structure: StructureDocument) -> Mapping[str, Any]:
    context = structure.context
    names = (name for name in context.__struct_fields__ if name != "sm_count")
    return {name: getattr(context, name) for name in names}


def _add_tensor(
    tensors: dict[int, Placed], item: TensorDocument, path: str, structure: StructureDocument
) -> None:
    tensor = read_tensor(item, path, structure)
    if tensor.uid in tensors:
        raise GraphFormatError(
            f"expected a uid of its own, got {tensor.uid}, the uid of {tensors[tensor.uid].path} "
            "too",
            path=f"{path}.uid",
            hint="set_uid() each tensor to another number, or none of them",
        )
    tensors[tensor.uid] = Placed(tensor, path)


def _read_node(
    node: NodeDocument,
    raw: dict[str, Any],
    path: str,
    tensors: dict[int, Placed],
    structure: StructureDocument,
) -> Node:
    inputs, outputs = node.inputs or {}, node.outputs or {}
    for side, found in (("inputs", inputs), ("outputs", outputs)):
        for port, uid in found.items():
            if uid not in tensors:
                raise GraphFormatError(
                    f"expected the uid of a tensor, got {uid}", path=member(f"{path}.{side}", port)
                )
    extra: list[tuple[str, int]] = []
    for field in ports.fields_with_tensors(node.tag):
        items = check(raw.get(field, []), list[TensorDocument], f"{path}.{field}")
        for index, item in enumerate(items):
            _add_tensor(tensors, item, f"{path}.{field}[{index}]", structure)
            extra.append((field, item.uid))
    required, optional = ports.order_inputs(node.tag, inputs)
    known = {"tag", "name", "inputs", "outputs"}
    return Node(
        tag=node.tag,
        name=node.name or "",
        inputs=tuple((port, inputs[port]) for port in required),
        optional=tuple((port, inputs[port]) for port in optional),
        outputs=tuple((port, outputs[port]) for port in ports.order_outputs(node.tag, outputs)),
        extra=tuple(extra),
        attributes={key: raw[key] for key in sorted(raw) if key not in known},
    )


def _check_ragged_offsets(tensors: Mapping[int, Placed]) -> None:
    for item in tensors.values():
        uid = item.tensor.ragged_offset_uid
        if uid is not None and (uid not in tensors or tensors[uid].tensor.is_pass_by_value):
            raise GraphFormatError(
                f"expected the uid of a tensor in device memory, got {uid}",
                path=f"{item.path}.ragged_offset_uid",
                hint="give set_ragged_offset() a tensor that the caller passes by address",
            )
