"""A plan that is kernels: what an engine of the frontend's own launches, written down.

Such an engine is Python code that compiles kernels and launches them. `frontend/planning/trace.py`
writes down what it launches, in a process without a GPU; a plan file carries that as text beside
the structure, and the runtime launches the same without the engine.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.limits import Int64

# Its key in a plan file's object.
KEY = "kernel_plan"

_Int = Annotated[int, Meta(ge=0, lt=2**31)]
_Size = Annotated[int, Meta(ge=0, lt=2**62)]
_Three = tuple[_Int, _Int, _Int]
_Rank = Meta(min_length=1, max_length=5)


class TensorMap(msgspec.Struct, frozen=True):
    """As in `module_data`."""

    data_type: _Int
    dims: Annotated[list[_Size], _Rank]
    strides: Annotated[list[_Size], Meta(max_length=4)]
    box: Annotated[list[_Int], _Rank]
    element_strides: Annotated[list[_Int], _Rank]
    interleave: _Int
    swizzle: _Int
    l2_promotion: _Int
    fill: _Int
    source: Int64 | None
    offset: Int64


class KernelLaunch(msgspec.Struct, frozen=True):
    """As in `module_data`."""

    binary: _Int
    kernel: Annotated[str, Meta(min_length=1, max_length=4096)]
    grid: _Three
    block: _Three
    shared: _Int
    attributes: list[tuple[_Int, bytes]]
    parameters: Annotated[list[bytes], Meta(max_length=4096)]
    addresses: list[tuple[_Int, _Int, Int64 | None, Int64]]
    tensor_maps: list[tuple[_Int, _Int, _Int]]


class KernelPlan(msgspec.Struct, frozen=True):
    """What the text in a plan file says.

    `engine`, `name` and `knobs` are the frontend's; `sm` is 90 for SM 9.0. The rest is as in
    `module_data`, in base64 where it is bytes.
    """

    engine: _Int
    name: Annotated[str, Meta(max_length=200)]
    knobs: Annotated[dict[Annotated[str, Meta(max_length=100)], Int64], Meta(max_length=1000)]
    sm: _Int
    sm_count: _Int
    binaries: Annotated[list[bytes], Meta(min_length=1, max_length=1000)]
    tensor_maps: list[TensorMap]
    launches: Annotated[list[KernelLaunch], Meta(min_length=1, max_length=1000)]
    workspace_size: _Size

    def describe(self) -> str:
        """Return engine and knobs as `PlanInfo.engine` has them."""
        knobs = (f"{name}={value}" for name, value in sorted(self.knobs.items()))
        return " ".join([f"engine {self.engine}", *knobs])

    @property
    def digest(self) -> str:
        """SHA-256 of the device code."""
        return hashlib.sha256(b"".join(self.binaries)).hexdigest()

    @property
    def sources(self) -> set[int]:
        """The uids whose addresses the kernels take."""
        maps = {each.source for each in self.tensor_maps}
        words = {source for each in self.launches for _, _, source, _ in each.addresses}
        return {uid for uid in maps | words if uid is not None}


def read_kernel_plan(text: str) -> KernelPlan:
    """Read a plan file's text.

    Raises
    ------
    GraphFormatError
        It is no such text.
    """
    try:
        return msgspec.json.decode(text.encode(), type=KernelPlan)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise GraphFormatError(
            f"expected a plan that is kernels, as JSON text: {error}", path=f"$.{KEY}"
        ) from None


def write_kernel_plan(plan: KernelPlan) -> str:
    """Return the text for a plan file."""
    return msgspec.json.encode(plan).decode()
