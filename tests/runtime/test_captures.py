"""Stream captures: calls inside of one, and what must not disturb one on any thread."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES, COUNT
from support.standin import CAPTURE_GLOBAL, CAPTURE_RELAXED, CAPTURE_THREAD_LOCAL, Standin

from cudnn_bindgen.runtime.errors import WorkspaceError
from cudnn_bindgen.runtime.handle import held_bytes, release_handles, release_workspaces

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
MODES = [CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED]


# Calls in a capture


@pytest.mark.parametrize("mode", MODES)
def test_a_modules_first_call_may_be_captured(
    load: Load, place: Place, standin: Standin, stream: int, mode: int
) -> None:
    module = load("parts")
    operands = place("parts")
    block = standin.alloc(2048)
    standin.begin_capture(stream, mode)
    module.execute(*operands.arguments, workspace_ptr=block, stream=stream)
    assert standin.captured_nodes(stream) == 4, "two copies, one memset, one launch"
    assert standin.end_capture(stream) == 0
    operands.check_untouched()
    module.execute(*operands.arguments, workspace_ptr=block, stream=stream)
    operands.check()
    assert held_bytes() == 0
    standin.free(block)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("warm_up", ["here", "on another thread"])
def test_a_capture_uses_the_block_from_before(
    load: Load,
    place: Place,
    standin: Standin,
    stream: int,
    mode: int,
    warm_up: str,
    on_thread: Callable[..., Any],
) -> None:
    module = load("thd")
    operands = place("thd")
    if warm_up == "here":
        module.execute(*operands.arguments, stream=stream)
    else:
        on_thread(module.execute, *operands.arguments, 0, stream)
    for _ in range(2):
        standin.begin_capture(stream, mode)
        module.execute(*operands.arguments, stream=stream)
        module.execute(*operands.arguments, stream=stream)
        assert standin.captured_nodes(stream) == 2
        assert standin.end_capture(stream) == 0
    blocks = [line.split()[-1] for line in standin.log("cudnnBackendExecute")]
    assert len(blocks) == 5
    assert len(set(blocks)) == 1


def test_a_capture_uses_its_own_streams_block(
    load: Load, place: Place, standin: Standin, stream: int
) -> None:
    module = load("thd")
    operands = place("thd")
    module.execute(*operands.arguments, stream=stream)
    module.execute(*operands.arguments)
    standin.begin_capture(stream)
    module.execute(*operands.arguments, stream=stream)
    assert standin.end_capture(stream) == 0
    mine, legacys, captured = [line.split()[-1] for line in standin.log("cudnnBackendExecute")]
    assert captured == mine != legacys


@pytest.mark.parametrize("mode", MODES)
def test_no_block_is_taken_in_a_capture(
    load: Load, place: Place, standin: Standin, stream: int, mode: int
) -> None:
    module = load("thd")
    operands = place("thd")
    sizes = (
        ("4096 bytes", "holds 0 "),
        (f"{CASES['thd_large'].workspace} bytes", "holds 1048576 "),
    )
    for needed, held in sizes:
        standin.begin_capture(stream, mode)
        with pytest.raises(WorkspaceError, match=f"^{needed} .*{held}.*workspace_ptr"):
            module.execute(*operands.arguments, stream=stream)
        assert standin.captured_nodes(stream) == 0
        assert standin.end_capture(stream) == 0, "the capture goes on"
        operands.fill()
        module.execute(*operands.arguments, stream=stream)
        operands.check()
        standin.begin_capture(stream, mode)
        module.execute(*operands.arguments, stream=stream)
        assert standin.end_capture(stream) == 0
        module.load_plan(CASES["thd_large"].plan)
    release_workspaces()
    standin.begin_capture(stream, mode)
    with pytest.raises(WorkspaceError, match="holds 0 "):
        module.execute(*operands.arguments, stream=stream)
    assert standin.end_capture(stream) == 0


def test_a_per_thread_stream_is_not_taken_for_an_ended_threads(
    load: Load, place: Place, standin: Standin, on_thread: Callable[..., Any]
) -> None:
    module = load("thd")
    operands = place("thd")
    context = standin.current_context()

    def capture() -> int:
        standin.set_context(context)
        standin.begin_capture(2)
        try:
            module.execute(*operands.arguments, stream=2)
        finally:
            assert standin.end_capture(2) == 0
        return 0

    on_thread(module.execute, *operands.arguments, 0, 2)
    with pytest.raises(WorkspaceError):
        on_thread(capture)
    assert standin.calls("cudnnCreate") == 1


def test_the_legacy_stream_beside_a_capture(load: Load, place: Place, standin: Standin) -> None:
    module = load("thd")
    operands = place("thd")
    blocking = standin.stream(blocking=True)
    standin.begin_capture(blocking)
    with pytest.raises(WorkspaceError):
        module.execute(*operands.arguments)
    assert standin.end_capture(blocking) == 0
    module.execute(*operands.arguments)
    operands.check()
    standin.destroy_stream(blocking)


def test_what_a_captured_copy_reads_outlives_the_plan(
    load: Load, place: Place, standin: Standin, stream: int
) -> None:
    module = load("parts")
    operands = place("parts")
    module.execute(*operands.arguments, stream=stream)
    standin.begin_capture(stream)
    module.execute(*operands.arguments, stream=stream)
    assert standin.end_capture(stream) == 0
    sources = [int(line.split()[2], 16) for line in standin.log("cuMemcpyHtoDAsync")]
    module.close()
    gc.collect()
    copied = [
        part
        for _, operation, _, part in CASES["parts"].binding.plans[0].workspace_parts
        if operation == 0
    ]
    assert len(set(sources)) == len(copied) == 2
    for source, part in zip(sources[-2:], copied, strict=True):
        assert list((ctypes.c_float * COUNT).from_address(source)) == list(part)


# What happens beside another thread's capture


@contextmanager
def capturing_elsewhere(standin: Standin, mode: int) -> Iterator[int]:
    """Capture on another thread during the block, and assert that nothing disturbed it."""
    context = standin.current_context()
    begun, ended = threading.Event(), threading.Event()
    results: list[int] = []

    def capture() -> None:
        standin.set_context(context)
        stream = standin.stream()
        standin.begin_capture(stream, mode)
        begun.set()
        ended.wait(60)
        results.append(standin.end_capture(stream))
        standin.destroy_stream(stream)

    thread = threading.Thread(target=capture)
    thread.start()
    begun.wait(60)
    try:
        yield mode
    finally:
        ended.set()
        thread.join()
    assert results == [0]


@pytest.mark.parametrize("mode", MODES)
def test_a_life_beside_a_capture(
    load: Load, place: Place, standin: Standin, mode: int, on_thread: Callable[..., Any]
) -> None:
    module = load("thd")
    operands = place("thd")
    steps: list[Callable[[], Any]] = [
        lambda: module.execute(*operands.arguments, 0, 2),
        operands.check,
        module.load_plan,
        lambda: on_thread(module.execute, *operands.arguments, 0, 2),
        lambda: module.load_plan(CASES["thd_large"].plan),
        lambda: module.execute(*operands.arguments, 0, 2),
        release_workspaces,
        lambda: module.execute(*operands.arguments, 0, 2),
        module.close,
        release_handles,
        module.load_plan,
        lambda: module.WORKSPACE_SIZE,
        module.close,
        release_handles,
        release_workspaces,
    ]
    for step in steps:
        with capturing_elsewhere(standin, mode):
            step()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["close", "load_plan", "release_workspaces", "release_handles"])
def test_destroying_in_this_threads_own_capture(
    load: Load, place: Place, standin: Standin, stream: int, mode: int, what: str
) -> None:
    module = load("thd")
    operands = place("thd")
    module.execute(*operands.arguments)
    destroy = {"release_workspaces": release_workspaces, "release_handles": release_handles}
    standin.begin_capture(stream, mode)
    (destroy.get(what) or getattr(module, what))()
    assert standin.end_capture(stream) == 0
