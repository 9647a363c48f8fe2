"""Driver and cuDNN calls that fail while a launch is recorded or its record launched."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from support.launch_recording import Moving, launched
from support.standin import CAPTURE_GLOBAL, Standin

from cudnn_bindgen.runtime.handle import release_handles
from runtime.test_failures import capture_mode

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Move = Callable[..., Moving]

pytestmark = pytest.mark.parametrize("policy", ["record"], indirect=True)

RECORDING = [
    *("cuStreamGetPriority", "cuStreamCreateWithPriority", "cuStreamBeginCapture"),
    *("cuStreamEndCapture", "cuGraphGetNodes"),
    *("cuGraphGetEdges", "cuGraphNodeGetType", "cuGraphKernelNodeGetParams"),
    *("cuGraphMemsetNodeGetParams", "cuGraphMemcpyNodeGetParams", "cuFuncGetParamInfo"),
    *("cuGraphKernelNodeGetAttribute", "cuGraphKernelNodeCopyAttributes", "cuGraphCreate"),
    *("cuGraphAddKernelNode", "cuGraphAddMemsetNode", "cuGraphAddMemcpyNode"),
    *("cuGraphAddDependencies", "cuGraphInstantiateWithFlags", "cuGraphUpload", "cuGraphLaunch"),
    *("cudnnSetStream", "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute"),
    *("cudnnBackendFinalize", "cudnnBackendExecute", "cuMemcpyHtoDAsync", "cuMemsetD8Async"),
]
MODE = "cuThreadExchangeStreamCaptureMode"
PATCHING = [
    *("cuGraphExecKernelNodeSetParams", "cuGraphExecMemsetNodeSetParams"),
    *("cuGraphExecMemcpyNodeSetParams", "cuGraphLaunch", "cuGraphInstantiateWithFlags"),
]
DESTROYING = {"cuStreamDestroy": "stream", "cuGraphDestroy": "graph", "cuGraphExecDestroy": "exec"}
"""Whose object then stays: nothing can be done about it."""


@dataclass
class Attempts:
    """Lives of a module, in one of whose calls one call of one function fails."""

    standin: Standin
    load: Load
    moving: Moving
    stream: int

    def live(self) -> list[int]:
        return [self.standin.live(kind) for kind in ("stream", "graph", "exec", "pack")]

    def run(self, call: str, nth: int, status: int, before: int) -> int:
        """Let the `nth` call of `call` after `before` calls of the module fail, or none with 0.

        Returns how often `call` was made in the module's call that it failed in.
        """
        case = self.moving.operands.case
        module = self.load(case.module)
        module.load_plan(case.plan)
        live = self.live()
        for _ in range(before):
            self.moving.call(module, [self.stream])
        made = self.standin.calls(call)
        if nth:
            self.standin.fail(call, nth, status=status)
        self.moving.call(module, [self.stream])
        made = self.standin.calls(call) - made
        if call != MODE:
            assert capture_mode(self.standin) == CAPTURE_GLOBAL
        recorded = module.launch_stats()["recorded"]
        for _ in range(4):
            self.moving.call(module, [self.stream, 0])
        stats = module.launch_stats()
        assert stats["recorded"] in (recorded, recorded + 1), "the other stream's"
        assert (stats["reason"] != "") == (stats["refused"] > 0)
        module.close()
        release_handles()
        if call not in DESTROYING:
            assert self.live() == live
        return made


@pytest.fixture(params=["parts", "thd"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def attempts(
    standin: Standin, load: Load, move: Move, name: str, launch: str
) -> Iterator[Attempts]:
    moving = move(launched(name, launch))
    stream = standin.stream()
    yield Attempts(standin, load, moving, stream)
    standin.destroy_stream(stream)


@pytest.mark.parametrize("launch", ["split", "packed"])
@pytest.mark.parametrize("call", RECORDING)
def test_a_recording_that_fails(attempts: Attempts, call: str, launch: str) -> None:
    made = attempts.run(call, 0, 0, before=1)
    # Those that ask until there is no more are made more often than they succeed.
    asks = call in ("cuFuncGetParamInfo", "cuGraphKernelNodeGetAttribute")
    for nth in range(1, (2 * made if asks else made) + 1):
        # An invalid value means that there is no more.
        for status in (2, 1) if asks else (2,):
            attempts.run(call, nth, status, before=1)


@pytest.mark.parametrize("launch", ["split"])
@pytest.mark.parametrize("name", ["thd"])
def test_a_capture_mode_that_cannot_be_changed(attempts: Attempts, launch: str) -> None:
    """The thread gets its mode back, unless the very call fails that gives it back."""
    standin = attempts.standin
    modes = []
    for nth in range(1, attempts.run(MODE, 0, 0, before=1) + 1):
        attempts.run(MODE, nth, 1, before=1)
        modes.append(capture_mode(standin))
        standin.reset()  # the mode, too
    assert modes[0] == CAPTURE_GLOBAL
    assert modes.count(CAPTURE_GLOBAL) >= len(modes) / 2


@pytest.mark.parametrize("launch", ["plain", "descriptor"])
@pytest.mark.parametrize("name", ["thd"])
def test_parameters_that_cannot_be_asked_for(attempts: Attempts, launch: str) -> None:
    """In each of the three captures: what is known of them is the same, and not all."""
    call = "cuKernelGetParamInfo" if launch == "descriptor" else "cuFuncGetParamInfo"
    each = attempts.run(call, 0, 0, before=1) // 3
    for known in range(1, each + 1):
        for repeat in (1, 2):
            attempts.standin.fail(call, known * repeat, status=2)
        attempts.run(call, known * 3, 2, before=1)


@pytest.mark.parametrize("launch", ["split"])
@pytest.mark.parametrize("call", PATCHING)
@pytest.mark.parametrize("before", [2, 4])
def test_a_record_that_cannot_be_launched(
    attempts: Attempts, call: str, launch: str, before: int
) -> None:
    made = attempts.run(call, 0, 0, before=before)
    for nth in range(1, made + 1):
        attempts.run(call, nth, 2, before=before)


@pytest.mark.parametrize("launch", ["split"])
@pytest.mark.parametrize("call", ["cuGraphInstantiateWithFlags", "cuGraphUpload"])
def test_no_memory_for_an_executable_of_its_own(attempts: Attempts, call: str, launch: str) -> None:
    """Which a set of addresses gets that comes again: it shares one with the others then."""
    standin, moving = attempts.standin, attempts.moving
    case = moving.operands.case
    module = attempts.load(case.module)
    module.load_plan(case.plan)
    for _ in range(3):
        moving.call(module)
    homes = [dict(moving.operands.addresses)]
    moving.move()
    homes.append(dict(moving.operands.addresses))
    standin.fail(call, status=2)
    for turn in range(20):
        moving.operands.addresses = homes[turn % 2]
        moving.operands.fill(keep_scalars=True)
        module.execute(*moving.operands.arguments)
        moving.operands.check()
        assert module.launch_path() == "record"
    assert standin.live("exec") == 1


@pytest.mark.parametrize("launch", ["split"])
@pytest.mark.parametrize("name", ["thd"])
@pytest.mark.parametrize("call", DESTROYING)
def test_what_cannot_be_destroyed_stays(attempts: Attempts, call: str, launch: str) -> None:
    standin, moving = attempts.standin, attempts.moving
    before = dict(zip(("stream", "graph", "exec", "pack"), attempts.live(), strict=True))
    case = moving.operands.case
    module = attempts.load(case.module)
    module.load_plan(case.plan)
    moving.call(module)
    standin.fail(call, status=2)
    for _ in range(3):
        moving.call(module)
    module.close()
    kind = DESTROYING[call]
    before[kind] += 1
    assert dict(zip(before, attempts.live(), strict=True)) == before
    assert capture_mode(standin) == CAPTURE_GLOBAL
    # Clean up what is left, for the fixture: the driver lists what was created and never destroyed.
    standin.driver.standin_set_live(kind.encode(), ctypes.c_long(before[kind] - 1))
