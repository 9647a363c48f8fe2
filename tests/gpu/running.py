"""Calls of `run` for conftest's cases, and objects other than PyTorch's around their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import graphs  # on the path since conftest
import pytest
import torch

TYPE_STRINGS = {
    torch.bfloat16: "|V2",
    torch.float16: "<f2",
    torch.float32: "<f4",
    torch.float8_e4m3fn: "|V1",
    torch.int32: "<i4",
    torch.int64: "<i8",
    torch.uint8: "|u1",
}
"""Raw bytes for what NumPy has no type for."""


def bare(operand: Any) -> str:
    """Return the name of `run`'s parameter."""
    return str(operand.argument.removesuffix("_ptr"))


class Call:
    """One round of a case: fresh operands, the frontend's bytes, and `run`'s arguments by name."""

    def __init__(self, case: Any, tensors: dict[int, Any] | None = None) -> None:
        self.case, self.module = case, case.module
        self.tensors = case.fresh() if tensors is None else tensors
        self.expected = case.expected(self.tensors)
        given = [o for o in case.module.OPERANDS if o.uid in self.tensors]
        self.operands = [o for o in given if o.role != "scalar"]
        self.outputs = [o for o in self.operands if o.role == "output"]
        self.passed = {bare(o): as_passed(o, self.tensors[o.uid]) for o in self.operands}
        self.scalars = {o.argument: self.tensors[o.uid].item() for o in given if o.role == "scalar"}

    def run(self, *left_out: Any, **changed: Any) -> Any:
        """Call `run` by names, without some operands and with other arguments."""
        arguments = {**self.passed, **self.scalars, **changed}
        for operand in left_out:
            del arguments[bare(operand)]
        return self.module.run(**arguments)

    def poison(self) -> None:
        self.case.poison(self.tensors)
        torch.cuda.synchronize()

    def check(self) -> None:
        """Compare all bytes with the frontend's."""
        torch.cuda.synchronize()
        self.case.assert_same(self.tensors, self.expected)

    def check_untouched(self) -> None:
        """See that nothing was written since `poison`."""
        torch.cuda.synchronize()
        for operand in self.outputs:
            assert bool((graphs.storage(self.tensors[operand.uid]) == 0xFF).all()), operand.argument

    def check_works(self, **changed: Any) -> None:
        """Poison, call and compare: whatever was before, this call is right."""
        self.poison()
        self.run(**changed)
        self.check()

    def written(self) -> dict[int, Any]:
        """Return which bytes of the outputs the frontend writes, whatever they held before."""
        copies = graphs.clone(self.tensors)
        for operand in self.outputs:
            graphs.storage(copies[operand.uid]).fill_(0)
        self.case.graph.execute(copies, self.case.frontend_workspace, handle=self.case.handle)
        torch.cuda.synchronize()
        return {o.uid: graphs.storage(copies[o.uid]) == self.expected[o.uid] for o in self.outputs}

    def check_returned(self, returned: Any) -> None:
        """Compare outputs that nobody poisoned where the frontend writes."""
        torch.cuda.synchronize()
        written = self.written()
        whole = returned if isinstance(returned, tuple) else (returned,)
        for operand, tensor in zip(self.outputs, whole, strict=True):
            found, mask = graphs.storage(tensor), written[operand.uid]
            assert bool(mask.any())
            size = min(len(found), len(mask))
            assert not bool(mask[size:].any()), f"{operand.argument}: too small"
            mask = mask[:size]
            same = torch.equal(found[:size][mask], self.expected[operand.uid][:size][mask])
            assert same, f"{operand.argument} differs from the frontend's"


def found_case(cases: dict[str, Any], name: str) -> Any:
    """Return one case by name, or skip, as the fixture `case` does."""
    found = cases[name]
    if isinstance(found, str):
        pytest.skip(found)
    if isinstance(found, Exception):
        raise found
    return found


def as_passed(operand: Any, tensor: Any) -> Any:
    """Return what stands for an operand: a bit mask is bytes of eight elements each."""
    if operand.data_type != "BOOLEAN":
        return tensor
    return graphs.storage(tensor)[: -(-math.prod(operand.dim) // 8)]


def moved(tensors: dict[int, Any], device: int) -> dict[int, Any]:
    """Return the same operands on another device, padding included; scalars stay on the host."""
    place = torch.device("cuda", device)
    return {
        uid: graphs.storage(t).to(place).view(t.dtype).as_strided(t.shape, t.stride())
        if t.is_cuda
        else t
        for uid, t in tensors.items()
    }


def is_ragged(case: Any, operand: Any) -> bool:
    names = {bare(o) for o in case.module.OPERANDS}
    return f"{bare(operand)}_ragged_offset" in names


def views(case: Any, operand: Any, tensor: Any) -> Iterator[tuple[str, Any]]:
    """Yield other descriptions of the same memory that `run` takes for the operand."""
    order = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), axis))
    in_memory = tensor.permute(order)
    found = {
        "in memory order": in_memory,
        "axes reversed": tensor.permute(*reversed(range(tensor.dim()))),
        "more axes of one": tensor.unsqueeze(0).unsqueeze(-1),
        "fewer axes of one": tensor.squeeze(),
    }
    has_axes = tensor.dim() > 1  # a bit mask is passed as one, which cuts across no other
    if has_axes and in_memory.shape[0] > 2 and in_memory.shape[0] % 2 == 0:
        found["outermost axis split"] = in_memory.unflatten(0, (2, -1))
    if has_axes and in_memory.is_contiguous():
        found["tokens"] = in_memory.flatten(0, 1)  # [tokens, h, d] of [b, s, h, d]
        if not is_ragged(case, operand):
            found["joined"] = in_memory.reshape(-1)
    for name, view in found.items():
        assert view.data_ptr() == tensor.data_ptr()
        if not _looks_the_other_way(operand, view):
            yield name, view


def _looks_the_other_way(operand: Any, view: Any) -> bool:
    """Whether the declared extents come with other strides: refused, however dense both are."""
    axes = list(zip(operand.dim, operand.stride, strict=True))
    # K, and V of the backward pass, are declared with their last two axes swapped.
    for declared in (axes, [*axes[:-2], *axes[:-3:-1]]):
        wanted = [axis for axis in declared if axis[0] != 1]
        given = [a for a in zip(view.shape, view.stride(), strict=True) if a[0] != 1]
        if [dim for dim, _ in wanted] == [dim for dim, _ in given]:
            return wanted != given
    return False


class ArrayInterface:
    """An object that only has `__cuda_array_interface__`."""

    def __init__(self, tensor: Any, **changed: Any) -> None:
        self.tensor, self.changed = tensor, changed

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        tensor = self.tensor
        return {
            "shape": tuple(tensor.shape),
            "typestr": TYPE_STRINGS[tensor.dtype],
            "data": (tensor.data_ptr(), False),
            "strides": tuple(stride * tensor.itemsize for stride in tensor.stride()),
            "version": 3,
            **self.changed,
        }


class Dlpack:
    """An object that only has `__dlpack__`, and remembers for which streams it was asked."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.streams = tensor, []

    def __dlpack__(self, *, stream: Any = None, **how: Any) -> Any:
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, **how)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.tensor.__dlpack_device__()


class OldDlpack(Dlpack):
    """The same, from before versions: its capsules hold a DLManagedTensor."""

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)


class Address:
    """An object that only has `data_ptr()`."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def data_ptr(self) -> int:
        return int(self.tensor.data_ptr())
