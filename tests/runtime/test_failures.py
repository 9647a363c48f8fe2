"""Calls of the libraries that fail: a typed error says which, and the next call works."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.standin import CAPTURE_GLOBAL, Standin

from cudnn_bindgen.runtime.errors import CudnnError, DriverError
from cudnn_bindgen.runtime.handle import release_handles, release_workspaces

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]

CUDNN = {
    "cudnnCreate": "CUDNN_STATUS_NOT_INITIALIZED",
    "cudnnSetStream": "CUDNN_STATUS_BAD_PARAM",
    "cudnnBackendCreateDescriptor": "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "cudnnBackendSetAttribute": "CUDNN_STATUS_BAD_PARAM",
    "cudnnBackendGetAttribute": "CUDNN_STATUS_NOT_SUPPORTED",
    "cudnnBackendFinalize": "CUDNN_STATUS_NOT_SUPPORTED",
    "cudnnBackendExecute": "CUDNN_STATUS_EXECUTION_FAILED",
}
STATUSES = {
    "CUDNN_STATUS_NOT_INITIALIZED": 1001,
    "CUDNN_STATUS_BAD_PARAM": 2000,
    "CUDNN_STATUS_NOT_SUPPORTED": 3000,
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED": 4003,
    "CUDNN_STATUS_EXECUTION_FAILED": 5000,
}
DRIVER = [
    *("cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetDevice", "cuStreamGetCtx", "cuInit"),
    *("cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuStreamIsCapturing"),
    *("cuMemAlloc", "cuMemcpyHtoDAsync", "cuMemsetD8Async"),
]


def capture_mode(standin: Standin) -> int:
    """Return this thread's capture mode."""
    mode = ctypes.c_int(CAPTURE_GLOBAL)
    exchange = standin.driver.cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(mode))
    before = mode.value
    exchange(ctypes.byref(mode))
    return before


class Attempts:
    """Executions on new threads in which one call of one function fails."""

    def __init__(self, standin: Standin, load: Load, operands: Any, on_thread: Any) -> None:
        self.standin = standin
        self.load = load
        self.operands = operands
        self.on_thread = on_thread
        self.stream = 0
        self.is_first = True

    def execute(self, call: str, nth: int, status: int) -> tuple[int, Exception | None]:
        """Let the `nth` call of `call` fail, or none with 0; then execute twice more.

        Returns how often `call` succeeded in the first of these executions, and what that raised.
        """
        module = self.load("parts")
        release_handles()
        release_workspaces()
        result: tuple[int, Exception | None] = self.on_thread(
            self._execute, module, call, nth, status
        )
        module.close()
        return result

    def _execute(
        self, module: ModuleType, call: str, nth: int, status: int
    ) -> tuple[int, Exception | None]:
        operands, raised = self.operands, None
        if not self.is_first:
            module.execute(*operands.arguments, stream=self.stream)
        operands.fill()
        before = self.standin.calls(call)
        if nth:
            self.standin.fail(call, nth, status=status)
        try:
            module.execute(*operands.arguments, stream=self.stream)
        except Exception as error:
            raised = error
            operands.check_untouched()
        else:
            operands.check()
        made = self.standin.calls(call) - before
        for _ in range(2):
            operands.fill()
            module.execute(*operands.arguments, stream=self.stream)
            operands.check()
        return made, raised

    def fail_each(self, call: str, status: int) -> Iterator[Exception | None]:
        """Let each of the calls that an execution makes fail once; yield what was raised."""
        made, raised = self.execute(call, 0, status)
        assert raised is None
        for nth in range(1, made + 1):
            yield self.execute(call, nth, status)[1]


@pytest.fixture(params=["first, own stream", "first, legacy stream", "later"])
def attempts(
    request: pytest.FixtureRequest, standin: Standin, load: Load, place: Place, on_thread: Any
) -> Iterator[Attempts]:
    attempts = Attempts(standin, load, place("parts"), on_thread)
    attempts.is_first = request.param.startswith("first")
    if "own" in request.param:
        attempts.stream = standin.stream()
    yield attempts
    if attempts.stream:
        standin.destroy_stream(attempts.stream)


@pytest.mark.parametrize("call", CUDNN)
def test_executing_when_cudnn_fails(attempts: Attempts, call: str, policy: str) -> None:
    name = CUDNN[call]
    failures = list(attempts.fail_each(call, STATUSES[name]))
    if policy == "record" and not attempts.is_first:
        assert not any(failures), "no record is made, and the direct path is taken"
        return
    if attempts.stream:
        # Those of the capture that shows what stream the plan uses; the next call asks again.
        failures = [error for error in failures if error]
    is_needed = attempts.is_first or call.removeprefix("cudnnBackend") in (
        *("CreateDescriptor", "SetAttribute", "Finalize", "Execute"),
    )
    assert bool(failures) == is_needed
    for error in failures:
        assert isinstance(error, CudnnError)
        assert (error.call, error.status, error.status_name) == (call, STATUSES[name], name)
        assert (error.module, error.fingerprint) == ("parts", CASES["parts"].binding.fingerprint)
        for part in (call, name, "parts", error.fingerprint, "failure asked for by the test"):
            assert part in str(error)


@pytest.mark.parametrize("call", DRIVER)
def test_executing_when_the_driver_fails(attempts: Attempts, call: str, policy: str) -> None:
    failures = list(attempts.fail_each(call, 2))
    if attempts.stream:
        failures = [error for error in failures if error]
    elif policy == "record":
        # What only a record needs, or to make one, sends the call to the direct path.
        assert None not in failures or not attempts.is_first
        failures = [error for error in failures if error]
    if attempts.is_first and call not in ("cuStreamGetCtx", "cuInit", "cuDeviceGet"):
        assert failures or (attempts.stream and call == "cuDevicePrimaryCtxRetain")
    for error in failures:
        assert isinstance(error, DriverError), call
        assert (error.call, error.status) == (call, 2)
        assert str(error) == f"{call}: CUDA_ERROR_OUT_OF_MEMORY (2)"


def test_executing_when_a_streams_id_is_unknown(attempts: Attempts) -> None:
    failures = list(attempts.fail_each("cuStreamGetId", 2))
    assert set(failures) == {None}


def test_a_status_without_a_name(load_case: Load, place: Place, standin: Standin) -> None:
    module = load_case("thd")
    operands = place("thd")
    for status, also_fails in ((98765, False), (2, True)):
        standin.fail("cuCtxGetCurrent", status=status)
        if also_fails:
            standin.fail("cuGetErrorName", status=1)
        with pytest.raises(DriverError, match=rf"cuCtxGetCurrent: unknown CUresult \({status}\)"):
            module.execute(*operands.arguments)
    standin.fail("cudnnBackendExecute", status=98765)
    with pytest.raises(CudnnError, match=r"CUDNN_STATUS_UNKNOWN \(98765\)"):
        module.execute(*operands.arguments)
    module.execute(*operands.arguments)
    operands.check()


@pytest.mark.parametrize("policy", ["direct"], indirect=True)  # reads the log of executions
def test_a_pack_that_cannot_be_destroyed(load_case: Load, place: Place, standin: Standin) -> None:
    module = load_case("thd")
    operands = place("thd")
    module.execute(*operands.arguments)
    standin.fail("cudnnBackendDestroyDescriptor", status=4000)
    with pytest.raises(CudnnError, match="DestroyDescriptor") as caught:
        module.execute(*operands.arguments)
    assert caught.value.call == "cudnnBackendDestroyDescriptor"
    pack = int(standin.log("cudnnBackendExecute")[-1].split()[3], 16)
    assert standin.cudnn.cudnnBackendDestroyDescriptor(ctypes.c_void_p(pack)) == 0
    operands.fill()
    module.execute(*operands.arguments)
    operands.check()


def test_capture_mode_after_it_could_not_be_relaxed(
    load_case: Load, place: Place, standin: Standin
) -> None:
    module = load_case("thd")
    operands = place("thd")
    standin.fail("cuThreadExchangeStreamCaptureMode", status=1)
    module.execute(*operands.arguments)
    assert capture_mode(standin) == CAPTURE_GLOBAL
    standin.fail("cuThreadExchangeStreamCaptureMode", status=1)
    module.close()
    assert capture_mode(standin) == CAPTURE_GLOBAL
    operands.check()
