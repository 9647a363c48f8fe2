"""What a generated module's `run` takes, for type checkers: its stub is written in these words.

Structural types, so that no framework is imported. What only a call can see (memory of a GPU, data
type, layout) is checked there: a NumPy array is a tensor here and refused at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias


class DLPackTensor(Protocol):
    """PyTorch's, JAX's, CuPy's and NumPy's arrays, and everything else that speaks DLPack.

    Without ``__dlpack_device__`` and the method's arguments: JAX's own stub leaves both out.
    """

    def __dlpack__(self) -> Any:
        """Return a capsule that holds a DLPack structure."""


class CudaArray(Protocol):
    """An array with Numba's interface: CuPy's and others."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """The dict that describes the array."""


class DataPointer(Protocol):
    """An object that knows its address and nothing else: trusted, as an address is."""

    def data_ptr(self) -> int:
        """Return the address on the device."""


class CudaStream(Protocol):
    """A stream by CUDA's protocol for Python: that of cuda.core and others."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the cudaStream_t."""


class TorchStream(Protocol):
    """PyTorch's stream."""

    @property
    def cuda_stream(self) -> int:
        """The cudaStream_t."""


class CupyStream(Protocol):
    """CuPy's stream."""

    @property
    def ptr(self) -> int:
        """The cudaStream_t."""


Tensor: TypeAlias = DLPackTensor | CudaArray
"""What has a layout to check, and a framework that can make outputs."""

Address: TypeAlias = DataPointer | int
"""What is trusted."""

Stream: TypeAlias = CudaStream | TorchStream | CupyStream | int

FloatScalar: TypeAlias = SupportsFloat | SupportsIndex
"""A number, or an array of one element in host memory."""

IntScalar: TypeAlias = SupportsIndex
"""An integer, or an array of one element in host memory."""
