"""PyTorch tensors on the CPU that say they are on a CUDA device, for the stand-in libraries.

The product has no hook for this: a type tells about its tensors through an exchange API, and here
is a type with one of its own, which is PyTorch's but for the device and the current stream.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from cudnn_bindgen.codegen.bind.binding import Argument

_CAPSULE = "__dlpack_c_exchange_api__"
_NAME = b"dlpack_exchange_api"
# The stand-in reads and writes this many bytes of each operand.
_LEAST_BYTES = 128

DATA_TYPES = {
    "BFLOAT16": torch.bfloat16,
    "BOOLEAN": torch.uint8,
    "DOUBLE": torch.float64,
    "FLOAT": torch.float32,
    "FP4_E2M1": torch.float4_e2m1fn_x2,
    "FP8_E4M3": torch.float8_e4m3fn,
    "FP8_E5M2": torch.float8_e5m2,
    "HALF": torch.float16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "INT8": torch.int8,
    "UINT8": torch.uint8,
}


class DeviceTensor(torch.Tensor):
    """A tensor of the stand-in's device."""


class HostTensor(torch.Tensor):
    """A tensor that is where it is, also after `pretend_everywhere`."""


def on_device(tensor: torch.Tensor) -> DeviceTensor:
    """The same memory, on the stand-in's device."""
    _give_api()
    return tensor.as_subclass(DeviceTensor)


def make_tensor(argument: Argument, seed: int = 0) -> DeviceTensor:
    """A tensor as the argument is declared, reproducible bytes at its start, aligned to 256."""
    return strided(argument.dim, argument.stride, DATA_TYPES[argument.data_type], seed)


def strided(
    dim: tuple[int, ...], stride: tuple[int, ...], data_type: torch.dtype, seed: int = 0
) -> DeviceTensor:
    """A tensor of these dims and strides at the start of memory that is large enough."""
    reach = sum((extent - 1) * step for extent, step in zip(dim, stride, strict=True) if extent)
    size = max(_LEAST_BYTES, (reach + 1) * data_type.itemsize) + 256
    generator = torch.Generator().manual_seed(seed)
    memory = torch.empty(size, dtype=torch.uint8)
    start = -memory.data_ptr() % 256
    memory[start : start + _LEAST_BYTES].random_(0, 100, generator=generator)
    usable = memory[start : start + (size - 256) // 16 * 16].view(data_type)
    return on_device(usable.as_strided(dim, stride, usable.storage_offset()))


def set_stream(stream: int) -> None:
    """Make a stream the current one of DeviceTensor's framework."""
    _library().set_stream(ctypes.c_void_p(stream))


def set_device(device: int) -> None:
    """Say that all tensors are on that device."""
    _library().set_device(device)


def set_direct(is_there: bool) -> None:
    """Give or take the API's function that borrows; without it a managed tensor is made."""
    _library().set_direct(int(is_there))


def pretend_everywhere() -> None:
    """Give torch.Tensor itself the API: for operators, whose tensors lose their subclass.

    Holds for the process: call it in one of its own.
    """
    HostTensor.__dlpack_c_exchange_api__ = getattr(torch.Tensor, _CAPSULE)
    HostTensor.__dlpack_device__ = torch.Tensor.__dlpack_device__
    torch.Tensor.__dlpack_c_exchange_api__ = _capsule()
    torch.Tensor.__dlpack_device__ = lambda _: (2, 0)


def set_strides(are_there: bool) -> None:
    """Give or take the strides of what the API borrows: all of it must be row-major then."""
    _library().set_strides(int(are_there))


def adopt(kind: type[torch.Tensor]) -> None:
    """Give another type the API; what the API makes is of that type then."""
    kind.__dlpack_c_exchange_api__ = _capsule()
    _library().set_kind(ctypes.py_object(kind))


def _give_api() -> None:
    if _CAPSULE not in vars(DeviceTensor):
        DeviceTensor.__dlpack_c_exchange_api__ = _capsule()


@cache
def _capsule() -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    pretend = _library().pretend
    pretend.restype, pretend.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return new(pretend(get(getattr(torch.Tensor, _CAPSULE), _NAME)), _NAME, None)


@cache
def _library() -> ctypes.CDLL:
    import cudnn_bindgen.runtime

    source = Path(__file__).with_suffix(".cpp")
    headers = Path(cudnn_bindgen.runtime.__file__).parent / "cpp"
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "device_tensors.so"
        compiler = os.environ.get("CXX", "g++")
        includes = [f"-I{headers}", f"-I{sysconfig.get_path('include')}"]
        options = ["-std=c++17", "-O2", "-fPIC", "-shared", *includes, "-o", str(output)]
        subprocess.run([compiler, *options, str(source)], check=True)
        # Functions that are called with the GIL held keep it: ctypes.CDLL lets go of it only for
        # those that Python calls itself, and they touch no Python object.
        return ctypes.CDLL(str(output))
