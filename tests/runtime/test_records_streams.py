"""Launch records on streams, threads and devices."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support.launch_recording import Moving, call_times, counts, launched
from support.standin import Standin

from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Move = Callable[..., Moving]

pytestmark = pytest.mark.parametrize("policy", ["record"], indirect=True)


@pytest.fixture
def streams(standin: Standin) -> Iterator[list[int]]:
    made = [standin.stream(), standin.stream(blocking=True), standin.stream(priority=-5)]
    yield [0, 1, 2, *made]
    for stream in made:
        standin.destroy_stream(stream)


def launches(standin: Standin) -> list[tuple[str, int]]:
    """(what, stream) of each launch so far, direct ones and those of records."""
    found = []
    for line in standin.log("cudnnBackendExecute", "cuGraphLaunch"):
        name, *arguments = line.split()
        found.append((name, int(arguments[3 if name == "cudnnBackendExecute" else 1], 16)))
    return found


def test_each_stream_has_its_record(
    thd: ModuleType, move: Move, standin: Standin, streams: list[int]
) -> None:
    moving = move("thd")
    for stream in (*streams, *streams):
        moving.call(thd, [stream])
    assert thd.launch_stats()["recorded"] == len(streams) == standin.live("exec")
    choose = random.Random(5)
    order = [choose.choice(streams) for _ in range(200)]
    for stream in order:
        moving.call(thd, [stream])
    assert launches(standin)[-200:] == [("cuGraphLaunch", stream) for stream in order]
    executables: dict[str, str] = {}
    for line in standin.log("cuGraphLaunch"):
        _, executable, stream = line.split()
        assert executables.setdefault(executable, stream) == stream


def test_a_direct_call_after_recording_goes_to_its_own_stream(
    thd: ModuleType, move: Move, standin: Standin, streams: list[int]
) -> None:
    moving = move("thd")
    before = 0
    for first in streams:
        for second in streams:
            thd.load_plan()
            moving.call(thd, [first])
            moving.call(thd, [first])
            assert thd.launch_path() == "record"
            moving.call(thd, [second])
            if second == first:
                thd.set_launch_policy("direct")
                moving.call(thd, [second])
                thd.set_launch_policy("record")
            assert thd.launch_path() == "direct"
            assert launches(standin)[-1] == ("cudnnBackendExecute", second)
            assert standin.violations("stale stream") == 0
            before += 1
    assert thd.launch_stats()["recorded"] == before


@pytest.mark.parametrize("launch", ["plain", "split", "fork", "descriptor"])
@pytest.mark.parametrize("priority", [0, -1, -5])
def test_kernels_have_the_streams_priority(
    thd: ModuleType, place: Place, standin: Standin, launch: str, priority: int
) -> None:
    case = launched("thd", launch)
    thd.load_plan(case.plan)
    stream = standin.stream(priority=priority)
    call_times(thd, place(case), 3, stream=stream)
    (line,) = standin.log("cuGraphInstantiateWithFlags")
    nodes = standin.graph_nodes(int(line.split()[2], 16))
    kernels = [node for node in nodes if node["type"] == 0]
    assert {struct.unpack_from("i", node["attributes"][8]) for node in kernels} == {(priority,)}
    assert len(kernels) >= (3 if launch in ("split", "fork") else 1)
    if launch == "split":
        assert {struct.unpack_from("3I", node["attributes"][4]) for node in kernels} == {(2, 1, 1)}
        assert [data[2] for node in nodes for _, data in node["after"]].count(1) == 1
    standin.destroy_stream(stream)


def test_more_streams_than_records_are_kept_for(
    thd: ModuleType, place: Place, standin: Standin
) -> None:
    operands = place("thd")
    streams = [standin.stream() for _ in range(300)]
    for number, stream in enumerate(streams):
        call_times(thd, operands, 3, stream=stream)
        assert standin.live("exec") == standin.live("graph") == min(number + 1, 256)
    assert counts(thd) == (300, 2 * 300, 0)
    call_times(thd, operands, 1, stream=streams[-256])
    assert thd.launch_path() == "record", "the oldest of those that are kept"
    call_times(thd, operands, 1, stream=streams[0])
    assert thd.launch_path() == "direct"
    call_times(thd, operands, 1, stream=streams[-256])
    assert thd.launch_path() == "record", "used since, so another one had to go"
    call_times(thd, operands, 1, stream=streams[-255])
    assert thd.launch_path() == "direct"
    thd.close()
    assert standin.live("exec") == standin.live("graph") == 0
    for stream in streams:
        standin.destroy_stream(stream)


def test_many_plans_of_one_thread(load: Load, place: Place, standin: Standin) -> None:
    """Entries of plans that are gone make room like any others."""
    modules = [load("thd"), load("parts")]
    operands = [place("thd"), place("parts")]
    for turn in range(200):
        for module, one in zip(modules, operands, strict=True):
            call_times(module, one, 3, stream=2)
            assert module.launch_path() == "record"
            if turn % 3:
                module.load_plan()
    assert standin.live("exec") <= 2


# Devices and threads


def test_devices_in_turn(thd: ModuleType, move: Move, standin: Standin) -> None:
    moving = move("thd")
    contexts = [standin.retain_context(device) for device in (0, 1)]
    choose = random.Random(3)
    for turn in range(100):
        device = turn % 2 if turn < 8 else choose.randrange(2)
        standin.set_context(contexts[device])
        # Each device's workspace is its own.
        moving.move()
        thd.execute(*moving.operands.arguments, stream=choose.choice([0, 2]))
        moving.operands.check()
        assert standin.current_context() == contexts[device]
    assert thd.launch_stats()["recorded"] == 4
    assert thd.launch_stats()["direct"] == 4
    standin.set_context(contexts[0])


@pytest.mark.parametrize("launch", ["split", "descriptor", "hash"])
def test_threads_with_streams_of_their_own(
    thd: ModuleType, move: Move, standin: Standin, launch: str
) -> None:
    count = 5
    case = launched("thd", launch)
    thd.load_plan(case.plan)
    moving = [move(case, seed) for seed in range(count)]
    streams = [[2, standin.stream(), standin.stream(priority=-1)] for _ in range(count)]
    context = standin.current_context()

    def work(number: int) -> None:
        standin.set_context(context)
        for _ in range(80):
            moving[number].move()
            stream = moving[number].random.choice(streams[number])
            thd.execute(*moving[number].operands.arguments, stream=stream)
            moving[number].operands.check()

    at_once(count, work)
    stats = thd.launch_stats()
    recorded = 0 if launch == "hash" else 3 * count
    assert (stats["recorded"], stats["refused"]) == (recorded, 3 * count - recorded)
    assert stats["direct"] == (3 * count if recorded else 80 * count)
    assert standin.calls("cudnnCreate") == count + 1, "this thread's loaded the plan"
    thd.close()
    for _, *made in streams:
        for stream in made:
            standin.destroy_stream(stream)


def test_threads_without_the_gil(thd: ModuleType, load: Load, place: Place) -> None:
    call = load("caller").call
    operands = [place("thd", seed) for seed in range(4)]

    def work(number: int) -> None:
        for _ in range(20):
            operands[number].fill()
            call(*operands[number].arguments, stream=2, times=50)
            operands[number].check()

    at_once(4, work)
    stats = thd.launch_stats()
    assert (stats["direct"], stats["recorded"]) == (4, 4)
    assert stats["record_unchanged"] == 4 * 999


def test_the_legacy_stream_and_each_threads_own(
    thd: ModuleType, place: Place, standin: Standin
) -> None:
    """Several threads on stream 0 have a record each: an executable is one thread's."""
    operands = [place("thd", seed) for seed in range(3)]
    context = standin.current_context()
    workspaces = [standin.alloc(4096) for _ in range(3)]

    def work(number: int) -> None:
        standin.set_context(context)
        for turn in range(60):
            one, stream = operands[number], turn % 3
            call_times(thd, one, 1, stream=stream, workspace_ptr=workspaces[number])

    at_once(3, work)
    assert thd.launch_stats()["recorded"] == 9
    assert counts(thd) == (9, 180 - 9, 0)
    for workspace in workspaces:
        standin.free(workspace)
