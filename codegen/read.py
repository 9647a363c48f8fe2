"""Document → Graph: every rule a graph must keep, checked here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cudnn_bindgen.codegen import ports
from cudnn_bindgen.codegen.dialects import read_document
from cudnn_bindgen.codegen.dialects.decode import located
from cudnn_bindgen.codegen.dialects.document import (
    Document,
    NodeDocument,
    StructureDocument,
    TensorDocument,
)
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.graph import BITS, SCALAR_TYPES, Graph, Node, Tensor
from cudnn_bindgen.codegen.read_plan import read_plan
from cudnn_bindgen.codegen.scalar import read_scalar
from cudnn_bindgen.codegen.text import shorten

UNSET_UID = -1


def read_graph(data: bytes, file: str = "") -> Graph:
    """Read the bytes of a graph file.

    Parameters
    ----------
    data
        Content of the file, in any dialect of `cudnn_bindgen.codegen.dialects`.
    file
        Its name, for error messages only.

    Raises
    ------
    GraphFormatError
        With file, JSON path and what was expected there.
    """
    try:
        return build_graph(read_document(data))
    except GraphFormatError as error:
        error.file = file
        raise


def build_graph(document: Document) -> Graph:
    """Check a document and build the model from it."""
    structure = document.structure
    tensors: dict[int, tuple[Tensor, str]] = {}
    for index, item in enumerate(structure.tensors):
        _add_tensor(tensors, item, f"$.tensors[{index}]", structure)
    nodes = []
    for index, (node, raw) in enumerate(zip(structure.nodes, document.raw["nodes"], strict=True)):
        nodes.append(_read_node(node, raw, f"$.nodes[{index}]", tensors, structure))
    if not nodes:
        raise GraphFormatError("expected at least one node, got none", path="$.nodes")
    _check_references(tensors)
    _check_operands(nodes, tensors)
    in_order = tuple(tensors[uid][0] for uid in sorted(tensors))
    return Graph(
        dialect=document.dialect,
        tensors=in_order,
        nodes=tuple(nodes),
        context=_context(structure),
        plan=read_plan(document.plan, in_order) if document.plan else None,
    )


def _context(structure: StructureDocument) -> Mapping[str, Any]:
    context = structure.context
    return {name: getattr(context, name) for name in context.__struct_fields__}


def _add_tensor(
    tensors: dict[int, tuple[Tensor, str]],
    item: TensorDocument,
    path: str,
    structure: StructureDocument,
) -> None:
    tensor = _read_tensor(item, path, structure)
    if tensor.uid in tensors:
        raise GraphFormatError(
            f"expected a uid of its own, got {tensor.uid}, the uid of {tensors[tensor.uid][1]} too",
            path=f"{path}.uid",
        )
    tensors[tensor.uid] = (tensor, path)


def _read_tensor(item: TensorDocument, path: str, structure: StructureDocument) -> Tensor:
    if item.uid == UNSET_UID:
        raise GraphFormatError(
            "expected an assigned uid, got -1",
            path=f"{path}.uid",
            hint="call graph.validate() before dumping the graph",
        )
    half_inferred = item.is_virtual and not (item.dim and item.stride)
    if len(item.dim) != len(item.stride) and not half_inferred:
        raise GraphFormatError(
            f"expected {len(item.dim)} entries as in dim, got {len(item.stride)}",
            path=f"{path}.stride",
        )
    if item.alignment & (item.alignment - 1):
        raise GraphFormatError(
            f"expected a power of two, got {item.alignment}", path=f"{path}.alignment"
        )
    data_type = item.data_type or structure.context.io_data_type or ""
    if data_type and data_type not in BITS:
        raise GraphFormatError(
            f"expected a data type such as BFLOAT16, got {shorten(data_type)}",
            path=f"{path}.data_type" if item.data_type else "$.context.io_data_type",
        )
    value = item.pass_by_value
    if value and not item.is_pass_by_value:
        raise GraphFormatError(
            "expected true beside a pass_by_value, got false", path=f"{path}.is_pass_by_value"
        )
    return Tensor(
        uid=item.uid,
        name=item.name or "",
        data_type=data_type,
        dim=tuple(item.dim),
        stride=tuple(item.stride),
        is_virtual=item.is_virtual,
        is_pass_by_value=item.is_pass_by_value,
        value=read_scalar(value, f"{path}.pass_by_value") if value else None,
        reordering_type=item.reordering_type or "NONE",
        alignment=item.alignment,
        ragged_offset_uid=item.ragged_offset_uid,
        ragged_offset_multiplier=item.ragged_offset_multiplier,
    )


def _read_node(
    node: NodeDocument,
    raw: dict[str, Any],
    path: str,
    tensors: dict[int, tuple[Tensor, str]],
    structure: StructureDocument,
) -> Node:
    for side, found in (("inputs", node.inputs), ("outputs", node.outputs)):
        for port, uid in found.items():
            if uid not in tensors:
                raise GraphFormatError(
                    f"expected the uid of a tensor, got {uid}", path=f"{path}.{side}.{port}"
                )
    extra: list[tuple[str, int]] = []
    for field in ports.fields_with_tensors(node.tag):
        items = located(raw.get(field, []), list[TensorDocument], f"{path}.{field}")
        for index, item in enumerate(items):
            _add_tensor(tensors, item, f"{path}.{field}[{index}]", structure)
            extra.append((field, item.uid))
    required, optional = ports.order_inputs(node.tag, node.inputs)
    outputs = ports.order_outputs(node.tag, node.outputs)
    known = {"tag", "name", "inputs", "outputs"}
    return Node(
        tag=node.tag,
        name=node.name or "",
        inputs=tuple((port, node.inputs[port]) for port in required),
        optional=tuple((port, node.inputs[port]) for port in optional),
        outputs=tuple((port, node.outputs[port]) for port in outputs),
        extra=tuple(extra),
        attributes={key: raw[key] for key in sorted(raw) if key not in known},
    )


def _check_references(tensors: Mapping[int, tuple[Tensor, str]]) -> None:
    for tensor, path in tensors.values():
        uid = tensor.ragged_offset_uid
        if uid is not None and uid not in tensors:
            raise GraphFormatError(
                f"expected the uid of a tensor, got {uid}", path=f"{path}.ragged_offset_uid"
            )


def _check_operands(nodes: Iterable[Node], tensors: Mapping[int, tuple[Tensor, str]]) -> None:
    """Check what must be true of tensors because nodes and callers use them."""
    written: dict[int, str] = {}
    read: list[tuple[int, str]] = []
    for index, node in enumerate(nodes):
        for port, uid in node.outputs:
            place = f"$.nodes[{index}].outputs.{port}"
            if uid in written:
                raise GraphFormatError(
                    f"expected a tensor that no other port writes, got {uid}, "
                    f"which {written[uid]} writes too",
                    path=place,
                )
            written[uid] = place
        read += [(uid, f"$.nodes[{index}].inputs.{port}") for port, uid in node.inputs]
        read += [(uid, f"$.nodes[{index}].inputs.{port}") for port, uid in node.optional]
    for tensor, path in tensors.values():
        if tensor.ragged_offset_uid is not None:
            read.append((tensor.ragged_offset_uid, f"{path}.ragged_offset_uid"))
    for uid, place in read:
        if tensors[uid][0].is_virtual and uid not in written:
            raise GraphFormatError(
                f"expected a tensor that a node writes, got virtual tensor {uid}, which none does",
                path=place,
            )
    if all(tensors[uid][0].is_virtual for uid in written):
        raise GraphFormatError(
            "expected an output that is not virtual, got none",
            path="$.nodes",
            hint="call set_output(True) on what the graph computes",
        )
    # Whether a port names them or not: callers bind all of them (binding.py).
    for tensor, path in tensors.values():
        if tensor.is_virtual:
            continue
        if tensor.data_type not in BITS:
            raise GraphFormatError(
                "expected a data type, got null and no context.io_data_type to inherit",
                path=f"{path}.data_type",
            )
        if tensor.is_pass_by_value and tensor.data_type not in SCALAR_TYPES:
            raise GraphFormatError(
                f"expected one of {', '.join(SCALAR_TYPES)} for a scalar, got {tensor.data_type}",
                path=f"{path}.data_type",
            )
        if not tensor.dim:
            raise GraphFormatError(
                "expected the shape of an operand, got []: the graph was dumped before its shapes "
                "were inferred",
                path=f"{path}.dim",
                hint="call graph.validate() first, or set dim and stride of this tensor",
            )
