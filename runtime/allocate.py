"""Outputs that a caller of `run` left out: made by the framework of the first tensor it gave.

PyTorch and CuPy make tensors of any strides. For other frameworks there is the allocator of the
DLPack exchange API, which makes row-major ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cudnn_bindgen.module_data import Operand
from cudnn_bindgen.runtime.errors import OperandError
from cudnn_bindgen.runtime.tensor_types import FRAMEWORK_NAMES, STORED

Sizes = tuple[int, ...]


def allocate_output(
    like: Any,
    name: str,
    operand: Operand,
    dim: Sizes,
    stride: Sizes,
    is_ragged: bool,
    by_exchange: Callable[[Sizes, tuple[int, int, int]], Any],
) -> Any:
    """Return an uninitialised tensor on the device of `like`.

    Parameters
    ----------
    like
        The first tensor of the call; None if it has only addresses.
    name, operand
        The output: its parameter, its declaration.
    dim, stride
        What they are in this call, in elements of cuDNN's data type.
    is_ragged
        Its sequences lie where offsets say: only a layout without gaps is sure to hold them.
    by_exchange
        Makes a row-major tensor of dims and DLDataType by the exchange API of `like`.

    Raises
    ------
    OperandError
        The framework cannot make such a tensor: the caller has to pass one.
    """
    if like is None:
        raise OperandError(name, "a tensor, where no input is one to take the framework of", "None")
    found = _find_stored(operand.data_type, dim, stride, is_ragged)
    if isinstance(found, str):
        raise OperandError(name, found, "None")
    type_name, dim, stride = found
    if hasattr(like, "new_empty_strided"):
        return _by_torch(like, name, type_name, dim, stride)
    if type(like).__module__.partition(".")[0] == "cupy":
        return _by_cupy(sys.modules["cupy"], name, type_name, dim, stride)
    if not _is_row_major(dim, stride):
        raise OperandError(
            name, f"a tensor; its framework can make no strides {list(stride)} for it", "None"
        )
    return by_exchange(dim, STORED[operand.data_type][0][:3])


@lru_cache(maxsize=1024)
def _find_stored(
    data_type: str, dim: Sizes, stride: Sizes, is_ragged: bool
) -> tuple[str, Sizes, Sizes] | str:
    """Return type, dims and strides of what holds an output; or what is expected instead."""
    if is_ragged and not _is_dense(dim, stride):
        return "a tensor, since its declared layout does not say how large it is"
    type_name = FRAMEWORK_NAMES.get(data_type)
    if type_name is None:
        return f"a tensor; frameworks have no {data_type}"
    pack = STORED[data_type][0].pack
    if pack == 1:
        return type_name, dim, stride
    packed = _pack(pack, dim, stride)
    if packed is None:
        return f"a tensor; {pack} elements a byte do not fit dims {dim}, strides {stride}"
    return type_name, *packed


def _by_torch(like: Any, name: str, type_name: str, dim: Sizes, stride: Sizes) -> Any:
    data_type = getattr(sys.modules["torch"], type_name, None)
    if data_type is None:
        raise OperandError(name, f"a tensor; this PyTorch has no {type_name}", "None")
    return like.new_empty_strided(dim, stride, dtype=data_type)


def _by_cupy(cupy: Any, name: str, type_name: str, dim: Sizes, stride: Sizes) -> Any:
    try:
        data_type = cupy.dtype(type_name)
    except TypeError as error:
        raise OperandError(name, f"a tensor; CuPy has no {type_name}", "None") from error
    bytes_of = [step * data_type.itemsize for step in stride]
    reach = sum((extent - 1) * step for extent, step in zip(dim, bytes_of, strict=True))
    size = 0 if 0 in dim else reach + data_type.itemsize
    memory = cupy.cuda.alloc(size)
    return cupy.ndarray(dim, data_type, memory, strides=bytes_of)


def _pack(pack: int, dim: Sizes, stride: Sizes) -> tuple[Sizes, Sizes] | None:
    """Dims and strides where an element holds `pack` of cuDNN's, along the axis of stride 1."""
    inner = [axis for axis, step in enumerate(stride) if step == 1 and dim[axis] > 1]
    others = [step for axis, step in enumerate(stride) if axis not in inner and dim[axis] > 1]
    if len(inner) != 1 or dim[inner[0]] % pack or any(step % pack for step in others):
        return None
    packed = list(dim)
    packed[inner[0]] //= pack
    return tuple(packed), tuple(
        step if axis == inner[0] else max(1, step // pack) for axis, step in enumerate(stride)
    )


def _is_row_major(dim: Sizes, stride: Sizes) -> bool:
    following = 1
    for extent, step in zip(reversed(dim), reversed(stride), strict=True):
        if extent > 1 and step != following:
            return False
        following *= extent
    return True


def _is_dense(dim: Sizes, stride: Sizes) -> bool:
    """Whether the elements fill a range of memory."""
    following = 1
    for step, extent in sorted(zip(stride, dim, strict=True)):
        if extent > 1 and step != following:
            return False
        following *= extent
    return True
