"""Python code that runs in the middle of a call: finalizers, signal handlers, debuggers' hooks.

It may close or replace the plans of that very call, and call the module again.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType
from typing import Any

import pytest
from support.families import FAMILIES
from support.plan_sets import THERE, Makers, fields, made_for, other_device
from support.standin import Paths, Standin

from cudnn_bindgen.runtime import errors
from cudnn_bindgen.runtime.errors import (
    BindingError,
    CudnnError,
    DriverError,
    PlanMismatchError,
    PlanMissingError,
    PlanNotLoadedError,
    WorkspaceError,
)
from cudnn_bindgen.runtime.handle import held_bytes, release_handles, release_workspaces

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]

# What waits for itself waits without the GIL, where no signal handler could end the test.
pytestmark = pytest.mark.timeout(60, method="thread")


OBJECTS = range(1, 40)


class Garbage:
    """A cycle, whose finalizer runs when Python looks for garbage, wherever that is."""

    def __init__(self, finalize: Callable[[], Any]) -> None:
        self.finalize = finalize
        self.cycle = self

    def __del__(self) -> None:
        self.finalize()


def by_signal(function: Callable[[], Any]) -> Callable[[], Any]:
    """Let a signal handler call the function."""

    def handle(number: int, frame: FrameType | None) -> None:
        function()

    signal.signal(signal.SIGUSR1, handle)
    return lambda: signal.raise_signal(signal.SIGUSR1)


def by_finalizer(function: Callable[[], Any]) -> Callable[[], Any]:
    """Let a finalizer call the function."""
    garbage = [Garbage(function)]

    def collect() -> None:
        garbage.clear()
        gc.collect()

    return collect


def itself(function: Callable[[], Any]) -> Callable[[], Any]:
    return function


@contextmanager
def while_an_error_is_built(function: Callable[[], Any]) -> Iterator[list[None]]:
    """Call the function once, when the runtime makes an exception."""
    called: list[None] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == errors.__file__ and not called:
            called.append(None)
            function()

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield called
    finally:
        sys.setprofile(before)


@contextmanager
def at_a_collection(function: Callable[[], Any], after: int) -> Iterator[list[None]]:
    """Call the function from a finalizer once so many objects were made in the block."""
    called: list[None] = []

    def finalize() -> None:
        if armed and not called:
            called.append(None)
            function()

    armed: list[None] = []
    before = gc.get_threshold()
    gc.collect()
    Garbage(finalize)
    armed.append(None)
    gc.set_threshold(after, 1, 1)
    try:
        yield called
    finally:
        gc.set_threshold(*before)
        armed.clear()
        gc.collect()


@pytest.fixture(params=[itself, by_finalizer, by_signal])
def through(request: pytest.FixtureRequest) -> Iterator[Any]:
    """How Python comes to run a function in the middle of a call."""
    before = signal.getsignal(signal.SIGUSR1)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


def closes(module: ModuleType) -> Callable[[], Any]:
    return module.close  # type: ignore[no-any-return]


def reloads(module: ModuleType) -> Callable[[], Any]:
    return module.load_plan  # type: ignore[no-any-return]


FAILURES = {
    "cudnnBackendExecute": (4000, CudnnError),
    "cudnnSetStream": (2000, CudnnError),
    "cudnnBackendFinalize": (3000, CudnnError),
    "cudnnCreate": (1001, CudnnError),
    "cuMemAlloc": (2, DriverError),
    "cuDeviceGetAttribute": (3, DriverError),
    "cuStreamIsCapturing": (400, DriverError),
}


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
@pytest.mark.parametrize("action", [closes, reloads])
@pytest.mark.parametrize("name", FAILURES)
def test_while_a_failed_call_is_told(
    thd: ModuleType, call: Any, place: Place, standin: Standin, through: Any, action: Any, name: str
) -> None:
    operands = place("thd")
    status, error = FAILURES[name]
    function = through(action(thd))
    standin.fail(name, status=status)
    with while_an_error_is_built(function) as called, pytest.raises(error, match=name):
        call(*operands.arguments, stream=2)
    assert called
    assert standin.live("plan") == (action is reloads)
    if action is closes:
        with pytest.raises(PlanNotLoadedError):
            call(*operands.arguments)
        thd.load_plan()
    call(*operands.arguments)
    operands.check()


@pytest.mark.parametrize("action", [closes, reloads])
@pytest.mark.parametrize("entry", ["workspace_size", "launch_nodes", "load_plan"])
def test_while_another_entry_fails(
    thd: ModuleType, standin: Standin, through: Any, action: Any, entry: str
) -> None:
    standin.fail("cudnnBackendFinalize", status=3000)
    with while_an_error_is_built(through(action(thd))) as called, pytest.raises(CudnnError):
        getattr(thd, entry)()
    assert called
    thd.load_plan()
    assert getattr(thd, entry)() != 0
    thd.close()
    assert standin.live("plan") == 0


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_while_a_capture_is_refused(
    thd: ModuleType, call: Any, place: Place, standin: Standin
) -> None:
    operands = place("thd")
    stream = standin.stream()
    raised = set()
    for after in OBJECTS:
        thd.load_plan()
        standin.begin_capture(stream)
        try:
            with at_a_collection(thd.close, after):
                call(*operands.arguments, stream=stream)
        except (PlanNotLoadedError, WorkspaceError) as error:
            raised.add(type(error))
        assert standin.end_capture(stream) == 0
    assert WorkspaceError in raised
    standin.destroy_stream(stream)


def test_while_a_missing_plan_is_refused(
    load: Load, place: Place, standin: Standin, through: Any
) -> None:
    other_device(standin)
    module = load("several")
    operands = place("parts")
    standin.set_device_sm(1, 8, 0)
    module.load_plan()
    with standin.context(1):
        function = through(module.close)
        with while_an_error_is_built(function) as called, pytest.raises(PlanMissingError):
            module.execute(*operands.arguments)
    assert called
    assert standin.live("plan") == 0


def test_while_overrides_are_refused(
    product: ModuleType, arrays: Any, standin: Standin, through: Any
) -> None:
    product.load_plan()
    own = arrays()
    standin.fail("cudnnGetExecutionPlanWorkspaceSize", status=3000)
    overrides = product.Overrides()
    overrides.set(M=2)
    function = through(product.close)
    with while_an_error_is_built(function) as called, pytest.raises(CudnnError, match="overrides"):
        product.execute(*own.arguments, overrides=overrides)
    assert called
    assert standin.live("plan") == 0


def test_while_a_family_is_refused(load: Load, standin: Standin, through: Any) -> None:
    name = next(iter(FAMILIES))
    module = load(name)
    standin.fail("cudnnBackendFinalize", status=3000)
    function = through(module.close)
    with while_an_error_is_built(function) as called, pytest.raises(CudnnError):
        module.WORKSPACE_SIZE  # noqa: B018 - asking is what fails
    assert called
    assert standin.live("plan") == 0


def test_when_a_workspace_is_taken(thd: ModuleType, place: Place, standin: Standin) -> None:
    """Memory of one call is no other's, also where one begins in the middle of the other."""
    operands, others = place("thd"), place("thd", 1)

    def again() -> None:
        thd.execute(*others.arguments)
        others.check()
        thd.load_plan()

    for after in OBJECTS:
        stream = standin.stream()
        operands.fill()
        others.fill()
        with at_a_collection(again, after):
            thd.execute(*operands.arguments, stream=stream)
        operands.check()
        standin.destroy_stream(stream)
        if after % 3 == 0:
            release_workspaces()


def test_when_workspaces_are_released_meanwhile(
    thd: ModuleType, place: Place, standin: Standin
) -> None:
    operands = place("thd")

    def release() -> None:
        release_workspaces()
        release_handles()

    def call() -> None:
        thd.execute(*operands.arguments, stream=stream)

    for after in OBJECTS:
        stream = standin.stream()
        operands.fill()
        with at_a_collection(release, after):
            call()
        operands.check()
        with at_a_collection(call, after):
            held_bytes()
            release_workspaces()
        operands.fill()
        thd.execute(*operands.arguments, stream=stream)
        operands.check()
        standin.destroy_stream(stream)


def test_when_nodes_are_described(thd: ModuleType, standin: Standin) -> None:
    expected = thd.launch_nodes()
    for after in OBJECTS:
        thd.load_plan()
        nodes = None
        with at_a_collection(thd.close, after), suppress(PlanNotLoadedError):
            nodes = thd.launch_nodes()
        assert nodes in (None, expected)
    assert nodes == expected


# What makes a missing plan


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> Makers:
    return Makers(monkeypatch)


@pytest.mark.parametrize("action", ["close", "load_plan"])
def test_a_maker_that_retires_the_plans(
    load: Load, place: Place, standin: Standin, makers: Makers, through: Any, action: str
) -> None:
    other_device(standin)
    module = load("parts")
    operands = place("kept")
    module.load_plan(on_missing="plan")

    def reload() -> None:
        with standin.context(0):
            module.load_plan()

    function = through(module.close if action == "close" else reload)

    def make(*kind: int) -> dict[str, Any]:
        function()
        return fields(made_for("kept", THERE))

    makers.make = make
    error = PlanNotLoadedError if action == "close" else PlanMismatchError
    with standin.context(1), pytest.raises(error):
        module.execute(*operands.arguments)
    operands.check_untouched()
    module.close()
    assert standin.live("plan") == 0


def test_a_maker_that_calls_the_module(
    load: Load, place: Place, standin: Standin, makers: Makers, through: Any
) -> None:
    other_device(standin)
    module = load("parts")
    operands = place("kept")
    module.load_plan(on_missing="plan")
    raised: list[str] = []

    def call() -> None:
        with pytest.raises(BindingError) as caught:
            module.execute(*operands.arguments)
        raised.append(str(caught.value))

    function = through(call)

    def make(*kind: int) -> dict[str, Any]:
        function()
        return fields(made_for("kept", THERE))

    makers.make = make
    with standin.context(1):
        module.execute(*operands.arguments)
    operands.check()
    assert raised == ["parts: what makes the missing plan has called the module itself"]


# Finding the libraries

PROGRAM = """
import sys, thd
operands = [16 * slot for slot in range(1, 13)]
seen = []

def look(frame, event, _):
    if event == "call" and frame.f_code.co_name == "join" and not seen:
        seen.append(None)
        thd.workspace_size()

sys.setprofile(look)
print(thd.workspace_size(), len(seen))
"""


def test_while_cudnn_is_looked_for(builds: Any, standin_paths: Paths) -> None:
    """A signal handler that calls a module while another call looks for the libraries."""
    builds.path("thd")
    environment = os.environ | {
        "PYTHONPATH": str(builds.directory),
        "LD_LIBRARY_PATH": str(standin_paths.cudnn.parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.returncode) == ("4096 1\n", 0), done.stderr
