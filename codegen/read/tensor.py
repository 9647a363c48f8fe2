"""One tensor document → Tensor, with all that a tensor must keep by itself."""

from __future__ import annotations

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.model.graph import Tensor
from cudnn_bindgen.codegen.model.scalar import read_scalar
from cudnn_bindgen.codegen.read.dialects.document import StructureDocument, TensorDocument
from cudnn_bindgen.codegen.text import shorten

UNSET_UID = -1

VALIDATE = "call graph.validate() before dumping the graph"

# cuDNN computes sizes and offsets in int64.
_LIMIT = 1 << 63


def read_tensor(item: TensorDocument, path: str, structure: StructureDocument) -> Tensor:
    """Check `item`, which stands at `path`, and build the model of it."""
    if item.uid == UNSET_UID:
        raise GraphFormatError(
            "expected an assigned uid, got -1", path=f"{path}.uid", hint=VALIDATE
        )
    half_inferred = item.is_virtual and not (item.dim and item.stride)
    if len(item.dim) != len(item.stride) and not half_inferred:
        raise GraphFormatError(
            f"expected {len(item.dim)} entries as in dim, got {len(item.stride)}",
            path=f"{path}.stride",
            hint="set dim and stride of this tensor to the same rank",
        )
    if item.alignment & (item.alignment - 1):
        raise GraphFormatError(
            f"expected a power of two, got {item.alignment}", path=f"{path}.alignment"
        )
    if item.ragged_offset_uid == item.uid:
        raise GraphFormatError(
            "expected the uid of another tensor, got this one's",
            path=f"{path}.ragged_offset_uid",
            hint="give set_ragged_offset() a tensor of its own",
        )
    tensor = _build(item, path, structure)
    _check_sizes(tensor, path)
    return tensor


def _build(item: TensorDocument, path: str, structure: StructureDocument) -> Tensor:
    if item.pass_by_value and not item.is_pass_by_value:
        raise GraphFormatError(
            "expected true beside a pass_by_value, got false", path=f"{path}.is_pass_by_value"
        )
    value = read_scalar(item.pass_by_value, f"{path}.pass_by_value") if item.pass_by_value else None
    inherited = value.data_type if value else structure.context.io_data_type or ""
    return Tensor(
        uid=item.uid,
        name=item.name or "",
        data_type=_data_type(item, path, inherited),
        dim=tuple(item.dim),
        stride=tuple(item.stride),
        is_virtual=item.is_virtual,
        is_pass_by_value=item.is_pass_by_value,
        value=value,
        reordering_type=item.reordering_type or "NONE",
        alignment=item.alignment,
        ragged_offset_uid=item.ragged_offset_uid,
        ragged_offset_multiplier=item.ragged_offset_multiplier,
    )


def _data_type(item: TensorDocument, path: str, inherited: str) -> str:
    data_type = item.data_type or inherited
    if data_type and data_type not in BITS:
        raise GraphFormatError(
            f"expected a data type such as BFLOAT16, got {shorten(data_type)}",
            path=f"{path}.data_type" if item.data_type else "$.context.io_data_type",
            hint=f"set it to one of {', '.join(BITS)}",
        )
    return data_type


def _check_sizes(tensor: Tensor, path: str) -> None:
    """Refuse what int64 cannot hold; how much memory a tensor spans is not asked.

    A stride of INT_MAX on a batch axis, as nested tensors have it, is no claim to such a span.
    """
    if tensor.elements * BITS.get(tensor.data_type, 8) // 8 >= _LIMIT:
        raise GraphFormatError(
            f"expected at most 2**63 bytes, got {shorten(str(tensor.dim))}",
            path=f"{path}.dim",
            hint="cuDNN counts in int64: set a smaller dim",
        )
    span = sum(
        abs(stride) * (size - 1)
        for size, stride in zip(tensor.dim, tensor.stride, strict=False)
        if size
    )
    if span >= _LIMIT:
        raise GraphFormatError(
            f"expected offsets below 2**63 elements, got {shorten(str(tensor.stride))}",
            path=f"{path}.stride",
            hint="cuDNN counts in int64: set a smaller stride",
        )
