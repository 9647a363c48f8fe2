"""Plans that come and go while other threads call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.standin import Standin

from cudnn_bindgen.runtime.errors import PlanNotLoadedError
from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Call = Callable[..., None]


def test_eight_threads_create_one_plan(call: Call, place: Place, standin: Standin) -> None:
    operands = [place("thd", seed) for seed in range(8)]
    at_once(8, lambda number: call(*operands[number].arguments, stream=2))
    for one in operands:
        one.check()
    # Variant packs are not logged.
    assert len(standin.log("cudnnBackendCreateDescriptor")) == 1
    assert standin.live("plan") == 1


@pytest.mark.parametrize("change", ["close", "load_plan", "both"])
def test_no_plan_is_destroyed_under_a_call(
    thd: ModuleType, call: Call, place: Place, standin: Standin, change: str
) -> None:
    operands = [place("thd", seed) for seed in range(4)]
    standin.set_execute_delay(0.001)
    stop = threading.Event()

    def work(number: int) -> list[int]:
        if number == 0:
            try:
                for _ in range(25):
                    if change != "load_plan":
                        thd.close()
                    if change != "close":
                        thd.load_plan()
                    time.sleep(0.002)
            finally:
                stop.set()  # or a failure here would leave the others at work for ever
            return []
        outcomes = [0, 0]
        mine = operands[number]
        while not stop.is_set():
            mine.fill()
            try:
                call(*mine.arguments, stream=2)
            except PlanNotLoadedError:
                mine.check_untouched()
                outcomes[1] += 1
            else:
                mine.check()
                outcomes[0] += 1
        return outcomes

    thd.load_plan()
    _, *outcomes = at_once(4, work)
    executed, refused = (sum(column) for column in zip(*outcomes, strict=True))
    assert (executed > 0) or change == "close"
    assert (refused > 0) == (change != "load_plan") or change == "both"
    assert standin.live("plan") == (0 if change == "close" else 1)


def test_a_plan_is_replaced_while_others_never_stop_calling(
    thd: ModuleType, load: Load, place: Place, standin: Standin
) -> None:
    """Waiting for the calls inside the old plan is not waiting for a moment without calls."""
    caller = load("caller")
    operands = [place("thd", seed) for seed in range(4)]
    standin.set_execute_delay(0.002)
    running = [True] * 4
    thd.load_plan()

    def work(number: int) -> None:
        caller.call(*operands[number].arguments, stream=2, times=800)
        running[number] = False

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work, number) for number in range(4)]
        while standin.calls("cudnnBackendExecute") < 8:
            assert not any(future.done() for future in futures)
            time.sleep(0.001)
        for _ in range(5):
            thd.load_plan()
        assert all(running)
        thd.close()
        for future in futures:
            with pytest.raises(PlanNotLoadedError):
                future.result()
    assert CASES["thd"].workspace == 4096
