"""cuDNN's element types as PyTorch has them. PyTorch comes as an argument, from who loaded it."""

from __future__ import annotations

from typing import Any, TypeAlias

# PyTorch and what is of it.
Torch: TypeAlias = Any
Tensor: TypeAlias = Any

_TORCH_NAMES = {
    "BFLOAT16": "bfloat16",
    "BOOLEAN": "bool",
    "BYTE_BOOLEAN": "bool",
    "COMPLEX_FP32": "complex64",
    "COMPLEX_FP64": "complex128",
    "DOUBLE": "float64",
    "FAST_FLOAT_FOR_FP8": "float32",
    "FLOAT": "float32",
    "FP8_E4M3": "float8_e4m3fn",
    "FP8_E5M2": "float8_e5m2",
    "FP8_E8M0": "float8_e8m0fnu",
    "HALF": "float16",
    "INT32": "int32",
    "INT64": "int64",
    "INT8": "int8",
    "UINT8": "uint8",
}


def storage(torch: Torch, tensor: Tensor) -> Tensor:
    """Return every byte behind a tensor as a view."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def element_type(torch: Torch, data_type: str) -> Any:
    """Return PyTorch's type of one element, or None if it has none or packs several into one."""
    return getattr(torch, _TORCH_NAMES.get(data_type, ""), None)
