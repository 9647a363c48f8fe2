"""Plans of which a part leaves the stream that it is given, and how that is found out."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.launch_recording import counts, launched
from support.standin import CAPTURE_GLOBAL, LEAVING, Standin

from cudnn_bindgen.runtime.errors import BindingError, StreamError

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]

# A case whose plan has several outputs and a workspace.
NAME = "thd"


@pytest.fixture
def served() -> str:
    return "loaded"


@pytest.fixture(params=LEAVING)
def leaving(request: pytest.FixtureRequest, load_launch: Any, place: Place) -> tuple[Any, Any]:
    """A module whose plan leaves its stream, and operands."""
    return load_launch(NAME, request.param), place(launched(NAME, request.param))


def rehearsals(standin: Standin) -> int:
    return len(standin.log("rehearsal"))


def test_on_streams_that_wait_it_is_right_and_not_recorded(
    leaving: tuple[Any, Any], standin: Standin, policy: str
) -> None:
    module, operands = leaving
    blocking = standin.stream(blocking=True)
    for stream in [0, 0, 0, blocking, blocking, 2, 2, 1]:
        operands.fill()
        module.execute(*operands.arguments, stream=stream)
        operands.check()
    assert counts(module) == (8, 0, 0)
    reason = "it launches work outside of the stream that it is given"
    assert module.launch_stats()["reason"] == (reason if policy == "record" else "")
    with pytest.raises(BindingError, match="outside of the stream"):
        module.launch_nodes()
    standin.destroy_stream(blocking)


def test_a_stream_that_does_not_wait_is_refused(
    leaving: tuple[Any, Any], standin: Standin, stream: int
) -> None:
    module, operands = leaving
    for _ in range(3):
        with pytest.raises(StreamError, match="on a non-blocking stream: call it outside"):
            module.execute(*operands.arguments, stream=stream)
    operands.check_untouched()
    assert rehearsals(standin) == 1, "seen once"
    module.execute(*operands.arguments)
    operands.check()


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_capture_is_refused_and_goes_on(
    leaving: tuple[Any, Any], standin: Standin, stream: int, is_warm: bool
) -> None:
    module, operands = leaving
    block = standin.alloc(4096)
    if is_warm:
        module.execute(*operands.arguments)
        operands.fill()
    standin.begin_capture(stream, CAPTURE_GLOBAL)
    with pytest.raises(StreamError, match="in a stream capture: call it outside of captures"):
        module.execute(*operands.arguments, workspace_ptr=block, stream=stream)
    assert standin.end_capture(stream) == 0
    assert standin.captured_nodes(stream) == 0
    operands.check_untouched()
    module.execute(*operands.arguments, workspace_ptr=block)
    operands.check()
    standin.free(block)


def test_what_stays_is_looked_at_once(
    load_case: Load, place: Place, standin: Standin, stream: int
) -> None:
    module, operands = load_case(NAME), place(NAME)
    module.set_launch_policy("direct")
    for given, looked in ((0, 0), (2, 0), (stream, 1), (stream, 1), (0, 1), (stream, 1)):
        operands.fill()
        module.execute(*operands.arguments, stream=given)
        operands.check()
        assert rehearsals(standin) == looked
    assert standin.calls("cuStreamGetFlags") == 0


@pytest.mark.parametrize("policy", ["record"], indirect=True)
def test_a_record_has_shown_it(
    load_case: Load, place: Place, standin: Standin, stream: int
) -> None:
    module, operands = load_case(NAME), place(NAME)
    for _ in range(3):
        module.execute(*operands.arguments)
    assert module.launch_path() == "record"
    assert rehearsals(standin) == 3
    module.execute(*operands.arguments, stream=stream)
    assert rehearsals(standin) == 3, "the three captures of the record"


@pytest.mark.parametrize(
    "call",
    ["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemAllocHost"],
)
@pytest.mark.parametrize("policy", ["record"], indirect=True)
def test_without_memory_to_capture_on_calls_go_direct(
    load_case: Load, place: Place, standin: Standin, stream: int, call: str
) -> None:
    """In a context of its own, as one that there was before keeps what it has."""
    home = standin.current_context()
    standin.set_context(standin.new_context())
    module, operands = load_case(NAME), place(NAME)
    own = standin.stream()
    standin.fail(call, status=2)
    for _ in range(2):
        operands.fill()
        module.execute(*operands.arguments, stream=own)
        operands.check()
    assert module.launch_path() == "record", "the second call has memory again"
    assert standin.calls("cuMemCreate") - standin.calls("cuMemRelease") == 1
    module.close()
    standin.destroy_stream(own)
    standin.set_context(home)


@pytest.mark.parametrize("call", ["cuMemcpyDtoHAsync", "cuStreamSynchronize"])
def test_when_nobody_can_look_the_next_call_does(
    load_case: Load, place: Place, standin: Standin, stream: int, call: str
) -> None:
    other, others = load_case("parts"), place("parts")
    other.execute(*others.arguments, stream=stream)  # the memory to capture on is there from now on
    before = rehearsals(standin)
    module, operands = load_case(NAME), place(NAME)
    module.set_launch_policy("direct")
    module.execute(*operands.arguments)
    standin.fail(call, status=700)
    for number in (1, 2, 2):
        operands.fill()
        module.execute(*operands.arguments, stream=stream)
        operands.check()
        assert rehearsals(standin) == before + number


def test_looking_disturbs_no_capture_of_another_thread(
    load_case: Load, place: Place, standin: Standin, stream: int, on_thread: Callable[..., Any]
) -> None:
    module, operands = load_case(NAME), place(NAME)
    for blocking in (False, True):
        module.load_plan(launched(NAME, "split").plan)
        other = standin.stream(blocking=blocking)
        standin.begin_capture(other, CAPTURE_GLOBAL)
        operands.fill()
        on_thread(module.execute, *operands.arguments, 0, stream)
        operands.check()
        assert standin.end_capture(other) == 0
        standin.destroy_stream(other)
    assert rehearsals(standin) >= 2
