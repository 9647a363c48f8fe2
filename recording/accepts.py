"""Whether `run` takes what a program passed: the rules of docs/tensors.md, for a report.

The runtime decides, in C++ (runtime/tensor_layout.hpp); this says so before anything is built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cudnn_bindgen.codegen.graph import Tensor
from cudnn_bindgen.codegen.layouts import Layout as Rule
from cudnn_bindgen.recording.observe import Layout

Axis = tuple[int, int]  # extent and stride

_NAMES = {
    "bfloat16": "BFLOAT16",
    "bool": "BYTE_BOOLEAN",
    "float16": "HALF",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float8_e4m3fn": "FP8_E4M3",
    "float8_e5m2": "FP8_E5M2",
    "float8_e8m0fnu": "FP8_E8M0",
    "int32": "INT32",
    "int64": "INT64",
    "int8": "INT8",
    "uint8": "UINT8",
}
# What raw bytes may stand for; packed types are not compared.
_BYTES = frozenset({"FP8_E4M3", "FP8_E5M2", "FP8_E5M3", "FP8_E8M0", "BYTE_BOOLEAN"})
_PACKED = frozenset({"FP4_E2M1", "INT4", "BOOLEAN"})


def explain_refusal(tensor: Tensor, rule: Rule, seen: Layout) -> str | None:
    """Return why `run` would refuse a buffer; empty if it would not, None if that is not known."""
    if seen.shape is None or seen.stride is None or tensor.data_type in _PACKED:
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
    if rule.kind in ("ragged", "paged"):
        return None  # the free axis may be split and joined in ways that only the runtime knows
    return f"is {_show(seen.shape, seen.stride)}, declared {_show(tensor.dim, tensor.stride)}"


def _fits(tensor: Tensor, rule: Rule, shape: Sequence[int], stride: Sequence[int]) -> bool:
    declared = list(zip(tensor.dim, tensor.stride, strict=True))
    given = [axis for axis in zip(shape, stride, strict=True) if axis[0] != 1]
    if 0 in tensor.dim or 0 in shape:
        return 0 in tensor.dim and 0 in shape
    if given == [axis for axis in declared if axis[0] != 1]:
        return True
    if rule.kind == "dense":
        return math.prod(shape) >= tensor.elements and _lies_as([(math.prod(shape), 1)], given)
    if rule.kind in ("ragged", "paged"):
        return _fits_with_any_number(declared, rule, given)
    order = declared[:-2] + declared[-2:][::-1] if rule.kind == "swapped" else declared
    order = [axis for axis in order if axis[0] != 1]
    if given == order:
        return True
    if [size for size, _ in given] == [size for size, _ in order]:
        return False  # equal extents in equal order: the strides had to be equal
    return _lies_as([axis for axis in declared if axis[0] != 1], given)


def _fits_with_any_number(declared: Sequence[Axis], rule: Rule, given: Sequence[Axis]) -> bool:
    """Whether all but the number of tokens or pages is as declared, wherever that axis stands."""
    left_out = {rule.free_axis, 0} if rule.kind == "ragged" else {rule.free_axis}
    fixed = [axis for index, axis in enumerate(declared) if index not in left_out]
    fixed = [axis for axis in fixed if axis[0] != 1]
    size, step = declared[rule.free_axis]
    for at, axis in enumerate(given):
        is_free = axis[1] == step if size > 1 else axis[1] > _reach(fixed)
        others = [*given[:at], *given[at + 1 :]]
        if is_free and _is_nested([*fixed, axis]) and _lies_as(fixed, others):
            return True
    return _lies_as(fixed, given)


def _reach(axes: Sequence[Axis]) -> int:
    return sum((size - 1) * step for size, step in axes)


def _is_nested(axes: Sequence[Axis]) -> bool:
    """Whether each axis steps over all that is further in."""
    inner = sorted((axis for axis in axes if axis[1]), key=lambda axis: axis[1])
    return all(axis[1] > _reach(inner[:at]) for at, axis in enumerate(inner))


def _lies_as(declared: Sequence[Axis], given: Sequence[Axis]) -> bool:
    """Whether both are the same memory, and neither cuts across an axis of the other."""
    left = sorted(declared, key=lambda axis: (axis[1], axis[0]))
    right = sorted(given, key=lambda axis: (axis[1], axis[0]))
    while left and right:
        (size, step), (other, other_step) = left.pop(0), right.pop(0)
        if step != other_step:
            return False
        # One side's axis may be several of the other's, which lie densely.
        shorter = left if size < other else right
        small, large = min(size, other), max(size, other)
        while small < large:
            if not shorter or shorter[0][1] != step * small:
                return False
            small *= shorter.pop(0)[0]
        if small != large:
            return False
    return not left and not right


def _show(dim: Sequence[int], stride: Sequence[int]) -> str:
    return f"{list(dim)} by {list(stride)}"
