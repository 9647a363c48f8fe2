"""Threads, handles, streams and devices: what is shared, and what never is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from support.standin import Standin

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Call = Callable[..., None]


def at_once(count: int, function: Callable[[int], Any]) -> list[Any]:
    """Call `function` with 0, 1 ... on threads of their own, which begin together."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> Any:
        barrier.wait()
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def launches(standin: Standin) -> list[list[str]]:
    """[handle, plan, pack, stream, workspace] of each execution so far."""
    return [line.split()[1:] for line in standin.log("cudnnBackendExecute")]


# Threads and handles


def test_threads_with_streams_of_their_own(
    thd: ModuleType, call: Call, place: Place, standin: Standin, policy: str
) -> None:
    count, times = 6, 40
    operands = [place("thd", seed) for seed in range(count)]
    streams = [standin.stream() for _ in range(count)]
    standin.set_execute_delay(0.0002)

    def work(number: int) -> None:
        for _ in range(times):
            operands[number].fill()
            call(*operands[number].arguments, stream=streams[number])
            operands[number].check()

    at_once(count, work)
    for stream in streams:
        standin.destroy_stream(stream)
    assert standin.calls("cudnnCreate") <= count
    if policy == "record":
        assert standin.calls("cuGraphLaunch") == count * (times - 1)
        assert thd.launch_stats()["recorded"] == count
        return
    used = {(stream, workspace) for _, _, _, stream, workspace in launches(standin)}
    assert len(used) == count, "each stream has one block of workspace"
    assert len({workspace for _, workspace in used}) == count, "and none is another's"
    assert len({plan for _, plan, *_ in launches(standin)}) == 1
    assert len(launches(standin)) == count * times
    assert standin.calls("cudnnSetStream") <= count * 4, "and once or twice to rehearse"


def test_one_handle_for_each_thread(
    thd: ModuleType, place: Place, standin: Standin, on_thread: Callable[..., Any]
) -> None:
    operands = place("thd")
    for _ in range(5):
        operands.fill()
        on_thread(thd.execute, *operands.arguments)
        operands.check()
    assert standin.calls("cudnnCreate") == 1, "the next thread takes the handle over"
    thd.execute(*operands.arguments)
    assert standin.calls("cudnnCreate") == 1
    on_thread(thd.execute, *operands.arguments)
    assert standin.calls("cudnnCreate") == 2, "this thread keeps its handle"
    assert len({handle for handle, *_ in launches(standin)}) == 2


def test_threads_that_come_and_go_at_once(call: Call, place: Place, standin: Standin) -> None:
    operands = [place("thd", seed) for seed in range(4)]
    streams = [standin.stream() for _ in range(4)]

    def work(number: int) -> None:
        operands[number].fill()
        call(*operands[number].arguments, stream=streams[number])
        operands[number].check()

    for _ in range(10):
        at_once(4, work)
    # A thread may begin before the last round's have handed over.
    assert standin.calls("cudnnCreate") <= 12
    for stream in streams:
        standin.destroy_stream(stream)


@pytest.mark.parametrize("device", [0, 1])
def test_a_thread_without_a_context_takes_the_streams(
    thd: ModuleType, place: Place, standin: Standin, on_thread: Callable[..., Any], device: int
) -> None:
    operands = place("thd")
    with standin.context(device) as context:
        stream = standin.stream()

    def work() -> tuple[int | None, int | None]:
        before = standin.current_context()
        thd.execute(*operands.arguments, stream=stream)
        return before, standin.current_context()

    assert on_thread(work) == (None, context)
    operands.check()
    standin.destroy_stream(stream)


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_thread_without_a_context_takes_device_0(
    thd: ModuleType, place: Place, standin: Standin, on_thread: Callable[..., Any], stream: int
) -> None:
    operands = place("thd")

    def work() -> int | None:
        thd.execute(*operands.arguments, stream=stream)
        return standin.current_context()

    standin.set_context(standin.retain_context(1))
    assert on_thread(work) == standin.retain_context(0)
    operands.check()
    assert on_thread(lambda: (thd.workspace_size(), standin.current_context())) == (
        4096,
        standin.retain_context(0),
    )
    standin.set_context(standin.retain_context(0))


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_the_stream_is_set_only_when_it_changes(call: Call, place: Place, standin: Standin) -> None:
    operands = place("thd")
    a, b = standin.stream(), standin.stream()
    call(*operands.arguments, stream=a)  # the first call looks what stream the plan uses
    standin.reset()
    call(*operands.arguments)
    order = [a, a, b, b, b, a, 0, 0, 2, 2, a]
    for stream in order:
        call(*operands.arguments, stream=stream)
    given = [int(line.split()[2], 16) for line in standin.log("cudnnSetStream")]
    assert given == [0, a, b, a, 0, 2, a]
    assert [int(stream, 16) for *_, stream, _ in launches(standin)] == [0, *order]
    standin.fail("cudnnSetStream", status=2000)
    with pytest.raises(Exception, match="cudnnSetStream"):
        call(*operands.arguments, stream=b)
    call(*operands.arguments, stream=a)
    again = [int(line.split()[2], 16) for line in standin.log("cudnnSetStream")]
    assert again == [*given, a], "nobody knows what the failed call left there"
    standin.destroy_stream(a)
    standin.destroy_stream(b)


# Devices


def test_two_devices_in_turn(call: Call, place: Place, standin: Standin, policy: str) -> None:
    operands = place("thd")
    for device in (0, 1, 1, 0, 1, 0):
        with standin.context(device):
            operands.fill()
            call(*operands.arguments)
            operands.check()
    assert standin.calls("cudnnCreate") == 2
    assert standin.live("plan") == 2
    if policy == "record":
        assert standin.calls("cuGraphLaunch") == 4
        assert standin.live("exec") == 2
        return
    seen = [(handle, plan, workspace) for handle, plan, _, _, workspace in launches(standin)]
    assert [seen.index(item) for item in seen] == [0, 1, 1, 0, 1, 0]
    first, second = seen[:2]
    assert all(mine != others for mine, others in zip(first, second, strict=True))


def test_two_contexts_of_one_device(
    call: Call, place: Place, standin: Standin, policy: str
) -> None:
    operands = place("thd")
    contexts = [standin.current_context(), standin.new_context(0)]
    for number in (0, 1, 0, 1):
        standin.set_context(contexts[number])
        operands.fill()
        call(*operands.arguments)
        operands.check()
    standin.set_context(contexts[0])
    assert standin.calls("cudnnCreate") == 2
    assert standin.live("plan") == 1
    if policy == "record":
        # The plan's functions belong to the first context: the other one's go direct.
        assert standin.calls("cuGraphLaunch") == 1
    else:
        assert len({workspace for *_, workspace in launches(standin)}) == 2


def test_devices_at_once(call: Call, place: Place, standin: Standin) -> None:
    operands = [place("thd", seed) for seed in range(4)]

    def work(number: int) -> None:
        for turn in range(40):
            with standin.context((number + turn // 10) % 2):
                operands[number].fill()
                call(*operands[number].arguments, stream=2)
                operands[number].check()

    at_once(4, work)
    assert standin.live("plan") == 2
    assert standin.calls("cudnnCreate") <= 8
