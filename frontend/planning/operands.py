"""Operands that a graph can be executed with: random inputs, poisoned outputs.

Data is in every type that cuDNN has; what PyTorch has no type for, or packs, is bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.frontend.planning.port_values import Values
from cudnn_bindgen.frontend.planning.torch_types import Tensor, Torch, element_type
from cudnn_bindgen.frontend.planning.wanted import Wanted, packed_stride, span

# Every byte of an output, before it is written: a NaN in all types of 8 bits and more.
POISON = 0xFF


def make_operands(
    torch: Torch, wanted: Sequence[Wanted], generator: Any, device: Any
) -> dict[int, Tensor]:
    """Return fresh operands: uid → tensor.

    Inputs are random, what lies between their elements included; every byte of an output is POISON.
    Scalars are on the CPU. A type that PyTorch lacks, or packs, comes as bytes without a shape.

    Raises
    ------
    PlanError
        There is no rule for the values that a port takes.
    """
    values = Values(torch, wanted, generator, device)
    ports = {item.port for item in wanted}
    return {
        item.uid: values.scalar(item)
        if item.role == "scalar"
        else _make(torch, item, ports, values, device)
        for item in wanted
    }


def bytes_needed(torch: Torch, wanted: Sequence[Wanted]) -> int:
    """Return how many bytes on the device `make_operands` takes."""
    ports = {item.port for item in wanted}
    return sum(_size(torch, item, ports) for item in wanted if item.role != "scalar")


def _make(torch: Torch, item: Wanted, ports: set[str], values: Values, device: Any) -> Tensor:
    dtype = element_type(torch, item.data_type)
    stride = packed_stride(item, ports)
    if item.role == "output" and not item.is_read:
        size = _size(torch, item, ports)
        flat = torch.full((size,), POISON, dtype=torch.uint8, device=device)
        flat = flat if dtype is None else flat.view(dtype)
    elif dtype is None:
        flat = values.packed(item, _size(torch, item, ports))
    else:
        flat = values.elements(item, span(item.dim, stride)).to(device=device, dtype=dtype)
    return flat if dtype is None else flat.as_strided(item.dim, stride)


def _size(torch: Torch, item: Wanted, ports: set[str]) -> int:
    dtype = element_type(torch, item.data_type)
    bits = BITS[item.data_type] if dtype is None else 8 * dtype.itemsize
    return -(-span(item.dim, packed_stride(item, ports)) * bits // 8)
