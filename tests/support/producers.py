"""Producers of DLPack capsules and array interfaces that count what was not given back.

PyTorch's own capsules say that the stand-in's memory is the host's; these say what they are told.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

CUDA, VERSION = 2, (1, 0)

CODES = {
    torch.bfloat16: (4, 16),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
}
"""DLDataType: code, bits."""

TYPE_STRINGS = {
    torch.bfloat16: "|V2",
    torch.float16: "<f2",
    torch.float32: "<f4",
    torch.int32: "<i4",
    torch.int64: "<i8",
}


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


class Managed(ctypes.Structure):
    """DLManagedTensor, from before version 1."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


class Producer:
    """An object that only has `__dlpack__`; `alive` counts exports that were not given back."""

    KIND, NAME = Versioned, b"dltensor_versioned"

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.alive = tensor, 0
        rank = tensor.dim()
        self._sizes = (ctypes.c_int64 * max(rank, 1))(*tensor.shape)
        self._strides = (ctypes.c_int64 * max(rank, 1))(*tensor.stride())
        self._deleter = Deleter(self._give_back)
        self._destructor = Deleter(self._destroy)
        self.exported = self.KIND(deleter=self._deleter)
        code, bits = CODES[tensor.dtype]
        self.exported.tensor = Tensor(
            tensor.data_ptr(), CUDA, 0, rank, code, bits, 1, self._sizes, self._strides, 0
        )
        if self.KIND is Versioned:
            self.exported.major, self.exported.minor = VERSION

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        return self._capsule()

    def _capsule(self) -> Any:
        self.alive += 1
        return _new(ctypes.addressof(self.exported), self.NAME, self._destructor)

    def _give_back(self, _: int) -> None:
        self.alive -= 1

    def _destroy(self, capsule: int) -> None:
        # Renamed, it would belong to whoever did that.
        if _is_named(capsule, self.NAME):
            self._give_back(0)


class OldProducer(Producer):
    """The same, from before version 1."""

    KIND, NAME = Managed, b"dltensor"

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self._capsule()


class Array:
    """An object that only has `__cuda_array_interface__`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": TYPE_STRINGS[tensor.dtype],
            "data": (tensor.data_ptr(), False),
            "strides": tuple(step * tensor.itemsize for step in tensor.stride()),
            "version": 3,
        }


_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, Deleter)(
    ("PyCapsule_New", ctypes.pythonapi)
)
# A capsule that dies has no reference left to give to ctypes.
_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
