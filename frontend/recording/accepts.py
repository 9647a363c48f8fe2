"""Whether `run` takes what a program passed: the rules of docs/tensors.md, for a report."""

from __future__ import annotations

from collections.abc import Sequence

from cudnn_bindgen.codegen.bind.layouts import LayoutRule
from cudnn_bindgen.codegen.model.data_types import BITS, DATA_TYPES
from cudnn_bindgen.codegen.model.graph import Tensor
from cudnn_bindgen.frontend.recording.observe import Layout
from cudnn_bindgen.runtime.tensor_checks import compare_layouts

# Not compared are packed and complex types.
_NAMES = {
    row.torch: name
    for name, row in DATA_TYPES.items()
    if row.torch and row.pack == 1 and not name.startswith("COMPLEX")
}
# What raw bytes may stand for.
_BYTES = frozenset({"FP8_E4M3", "FP8_E5M2", "FP8_E5M3", "FP8_E8M0", "BYTE_BOOLEAN"})


def explain_refusal(tensor: Tensor, rule: LayoutRule, seen: Layout) -> str | None:
    """Return why `run` would refuse a buffer; empty if it would not, None if that is not known."""
    is_packed = BITS[tensor.data_type] < 8
    if seen.shape is None or seen.stride is None or is_packed:
        return None
    if seen.device.startswith("cpu"):
        return None if tensor.is_pass_by_value else "is on the CPU"
    name = _NAMES.get(seen.data_type)
    if name is None:
        return None
    if name != tensor.data_type and not (name == "UINT8" and tensor.data_type in _BYTES):
        return f"has data type {name}, declared {tensor.data_type}"
    if seen.alignment and seen.alignment < tensor.alignment:
        return f"is aligned to {seen.alignment}, declared {tensor.alignment}"
    if _fits(tensor, rule, seen.shape, seen.stride):
        return ""
    return f"is {_show(seen.shape, seen.stride)}, declared {_show(tensor.dim, tensor.stride)}"


def _fits(tensor: Tensor, rule: LayoutRule, shape: Sequence[int], stride: Sequence[int]) -> bool:
    found = compare_layouts(rule.kind, rule.free_axis, tensor.dim, tensor.stride, shape, stride)
    return found == "same"


def _show(dim: Sequence[int], stride: Sequence[int]) -> str:
    return f"{list(dim)} by {list(stride)}"
