"""cuDNN's element types as PyTorch has them. PyTorch comes as an argument, from who loaded it."""

from __future__ import annotations

from typing import Any, TypeAlias

from cudnn_bindgen.codegen.model.data_types import DATA_TYPES

# PyTorch and what is of it.
Torch: TypeAlias = Any
Tensor: TypeAlias = Any

# As operands are made here, not as `run` takes them: an element each.
_TORCH_NAMES = {
    **{name: row.torch for name, row in DATA_TYPES.items() if row.pack == 1},
    "BOOLEAN": "bool",
    "FAST_FLOAT_FOR_FP8": "float32",
}


def storage(torch: Torch, tensor: Tensor) -> Tensor:
    """Return every byte behind a tensor as a view."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def element_type(torch: Torch, data_type: str) -> Any:
    """Return PyTorch's type of one element, or None if it has none or packs several into one."""
    return getattr(torch, _TORCH_NAMES.get(data_type, ""), None)
