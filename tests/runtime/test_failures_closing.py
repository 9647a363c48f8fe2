"""Closing and releasing when calls of the libraries fail: all else is destroyed all the same."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.standin import Standin

from cudnn_bindgen.runtime.errors import CudnnError, DriverError, PlanNotLoadedError
from cudnn_bindgen.runtime.handle import held_bytes, release_handles, release_workspaces

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]


@pytest.mark.parametrize("call", ["cuCtxGetCurrent", "cuCtxSetCurrent"])
@pytest.mark.parametrize("what", ["close", "release_workspaces", "release_handles"])
def test_destroying_when_the_context_cannot_be_switched(
    load_case: Load, place: Place, standin: Standin, call: str, what: str
) -> None:
    module = load_case("thd")
    operands = place("thd")
    module.execute(*operands.arguments)
    destroy = {"close": module.close, "release_workspaces": release_workspaces}
    with standin.context(1) as context:
        standin.fail(call, status=201)
        destroy.get(what, release_handles)()
        assert standin.current_context() == context


def test_closing_when_cudnn_fails(load_case: Load, place: Place, standin: Standin) -> None:
    module = load_case("thd")
    operands = place("thd")
    for device in (0, 1):
        with standin.context(device):
            assert module.workspace_size() == 4096
    assert standin.live("plan") == 2
    standin.fail("cudnnBackendDestroyDescriptor", status=4000)
    with pytest.raises(CudnnError, match="cudnnBackendDestroyDescriptor"):
        module.close()
    assert standin.live("plan") == 1, "the other device's plan is destroyed all the same"
    plan = int(standin.log("cudnnBackendFinalize")[0].split()[1], 16)
    assert standin.cudnn.cudnnBackendDestroyDescriptor(ctypes.c_void_p(plan)) == 0
    module.close()
    with pytest.raises(PlanNotLoadedError):
        module.execute(*operands.arguments)
    module.load_plan()
    module.execute(*operands.arguments)
    operands.check()


def test_releasing_when_memory_cannot_be_freed(
    load_case: Load, place: Place, standin: Standin
) -> None:
    module = load_case("thd")
    operands = place("thd")
    before = standin.live("memory")
    for device in (0, 1):
        with standin.context(device):
            module.execute(*operands.arguments)
    blocks = [int(line.split()[1], 16) for line in standin.log("cuMemAlloc")[-2:]]
    assert standin.live("memory") == before + 2
    standin.fail("cuMemFree", status=2)
    with pytest.raises(DriverError, match="cuMemFree: CUDA_ERROR_OUT_OF_MEMORY"):
        release_workspaces()
    assert held_bytes() == 0
    release_workspaces()
    assert standin.live("memory") == before + 1, "only the block is lost that cannot be freed"
    freed = {int(line.split()[1], 16) for line in standin.log("cuMemFree")}
    (lost,) = set(blocks) - freed
    standin.free(lost)


def test_releasing_when_a_handle_cannot_be_destroyed(
    load_case: Load, place: Place, standin: Standin
) -> None:
    module = load_case("thd")
    operands = place("thd")
    handles = []
    for device in (0, 1):
        with standin.context(device):
            module.execute(*operands.arguments)
        handles.append(int(standin.log("cudnnCreate")[-1].split()[1], 16))
    standin.fail("cudnnDestroy", status=4000)
    with pytest.raises(CudnnError, match=r"^cudnnDestroy: CUDNN_STATUS_INTERNAL_ERROR") as caught:
        release_handles()
    assert caught.value.module == ""
    release_handles()
    assert standin.live("handle") == 1
    (gone,) = [int(line.split()[1], 16) for line in standin.log("cudnnDestroy")]
    handles.remove(gone)
    assert standin.cudnn.cudnnDestroy(ctypes.c_void_p(handles[0])) == 0
    module.execute(*operands.arguments)
    operands.check()


@pytest.mark.parametrize("name", ["thd", "parts"])
def test_a_closed_plan_is_let_go(load: Load, standin: Standin, name: str) -> None:
    module = load(name)
    counts = [sys.getrefcount(module._binding.data[0].plans[0].text)]
    for _ in range(3):
        module.load_plan()
    counts.append(sys.getrefcount(module._binding.data[0].plans[0].text))
    standin.fail("cudnnBackendFinalize", status=3000)
    with pytest.raises(CudnnError):
        module.load_plan()
    counts.append(sys.getrefcount(module._binding.data[0].plans[0].text))
    module.close()
    counts.append(sys.getrefcount(module._binding.data[0].plans[0].text))
    assert counts == [*[counts[0]] * 3, counts[0] - 1]
