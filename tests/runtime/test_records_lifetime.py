"""How long records live: plans and handles that come and go under calls on other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from support.launch_recording import Moving, call_times, counts, launched
from support.standin import Standin

from cudnn_bindgen.runtime.errors import PlanNotLoadedError
from cudnn_bindgen.runtime.handle import release_handles
from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Move = Callable[..., Moving]

pytestmark = pytest.mark.parametrize("policy", ["record"], indirect=True)


@pytest.mark.parametrize("change", ["close", "load_plan"])
def test_records_go_before_their_plan(
    load: Load, place: Place, standin: Standin, change: str
) -> None:
    module = load("thd")
    operands = place("thd")
    streams = [0, 2, standin.stream()]
    functions = standin.live("function")
    for stream in streams:
        call_times(module, operands, 3, stream=stream)
    assert standin.live("exec") == standin.live("graph") == 3
    assert standin.live("function") == functions + 1
    getattr(module, change)()
    assert standin.live("exec") == standin.live("graph") == 0
    names = [line.split()[0] for line in standin.log()]
    last_record = len(names) - names[::-1].index("cuGraphExecDestroy")
    assert last_record < names.index("cudnnBackendDestroyDescriptor")
    module.load_plan()
    assert standin.live("function") == functions + 1
    for stream in streams:
        call_times(module, operands, 3, stream=stream)
    assert module.launch_stats()["recorded"] == 6
    assert counts(module) == (6, 12, 0)
    standin.destroy_stream(streams[-1])


def test_a_plan_of_another_kind(load: Load, move: Move) -> None:
    """No call meets a record of the plan before; what could not be recorded then is tried again."""
    module = load("parts")
    for number, launch in enumerate(("plain", "hash", "split", "host", "fork") * 3):
        case = launched("parts", launch)
        module.load_plan(case.plan)
        moving = move(case, number)
        for _ in range(5):
            moving.call(module)
    stats = module.launch_stats()
    assert (stats["recorded"], stats["refused"]) == (9, 6)


def test_releasing_handles_destroys_their_records(
    load: Load, place: Place, standin: Standin, on_thread: Callable[..., Any]
) -> None:
    module = load("thd")
    operands = place("thd")
    context = standin.current_context()

    def work() -> None:
        standin.set_context(context)
        call_times(module, operands, 2)

    work()
    on_thread(work)
    assert standin.live("exec") == 2
    release_handles()
    assert standin.live("exec") == standin.live("graph") == 0
    call_times(module, operands, 3)
    assert standin.live("exec") == 1
    assert module.launch_stats()["recorded"] == 3
    module.close()
    assert standin.live("exec") == standin.live("graph") == 0


def test_the_next_thread_takes_the_records_over(
    load: Load, place: Place, standin: Standin, on_thread: Callable[..., Any]
) -> None:
    module = load("thd")
    operands = place("thd")
    for _ in range(4):
        on_thread(lambda: module.execute(*operands.arguments, stream=2))
        operands.check()
        operands.fill()
    # Workspace of the runtime's belongs to a thread's own stream, so it lies elsewhere each time.
    assert standin.calls("cudnnCreate") == 1
    assert counts(module) == (1, 1, 2)


@pytest.mark.parametrize("change", ["close", "load_plan", "both"])
def test_no_plan_is_destroyed_under_a_record(
    load: Load, move: Move, standin: Standin, change: str
) -> None:
    module = load("thd")
    moving = [move("thd", seed) for seed in range(4)]
    streams = [standin.stream() for _ in moving]
    context = standin.current_context()
    standin.set_execute_delay(0.0005)
    stop = threading.Event()
    module.load_plan()

    def work(number: int) -> int:
        standin.set_context(context)
        if number == 0:
            for _ in range(20):
                # Each thread's record is in use by now; those of a closed plan have no successor.
                launched, deadline = counts(module)[2], time.monotonic() + 5
                while counts(module)[2] < launched + 12 and time.monotonic() < deadline:
                    time.sleep(0.001)
                if change != "load_plan":
                    module.close()
                if change == "close":
                    time.sleep(0.01)
                    break
                module.load_plan()
            stop.set()
            return 0
        refused = 0
        mine = moving[number]
        while not stop.is_set():
            mine.move()
            try:
                module.execute(*mine.operands.arguments, stream=streams[number])
            except PlanNotLoadedError:
                mine.operands.check_untouched()
                refused += 1
            else:
                mine.operands.check()
        return refused

    refused = sum(at_once(4, work))
    standin.set_execute_delay(0)
    assert (refused > 0) == (change != "load_plan") or change == "both"
    assert standin.violations() == 0
    assert module.launch_stats()["recorded"] >= (1 if change == "close" else 20)
    module.close()
    assert standin.live("exec") == standin.live("graph") == 0
    for stream in streams:
        standin.destroy_stream(stream)


def test_handles_and_plans_released_at_once(load: Load, place: Place, standin: Standin) -> None:
    """Each record is known to a handle and to a plan; either may go first, or both together."""
    modules = [load("thd") for _ in range(4)]
    operands = [place("thd", seed) for seed in range(4)]
    context = standin.current_context()

    def work(number: int) -> None:
        standin.set_context(context)
        for turn in range(40):
            modules[number].load_plan()
            with suppress(PlanNotLoadedError):
                call_times(modules[number], operands[number], 3, stream=2)
            if (number + turn) % 2:
                release_handles()
            else:
                modules[(number + 1) % 4].close()

    at_once(4, work)
    for module in modules:
        module.close()
    assert standin.live("exec") == standin.live("graph") == 0
    assert standin.violations() == 0
