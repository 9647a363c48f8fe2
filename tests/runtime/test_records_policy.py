"""When a call is recorded, and when it is left alone: policies, scalars, captures, old drivers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.launch_recording import Moving, call_times, counts, launched
from support.standin import CAPTURE_GLOBAL, CAPTURE_RELAXED, CAPTURE_THREAD_LOCAL, Paths, Standin

from runtime.test_captures import capturing_elsewhere
from runtime.test_missing import hide

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Move = Callable[..., Moving]
MODES = [CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED]

auto = pytest.mark.parametrize("policy", ["auto"], indirect=True)
record = pytest.mark.parametrize("policy", ["record"], indirect=True)
direct = pytest.mark.parametrize("policy", ["direct"], indirect=True)


# Policies


@auto
def test_auto_records_the_fourth_same_call_of_a_stream(
    load: Load, place: Place, stream: int
) -> None:
    module = load("thd")
    operands = place("thd")
    for number in range(1, 7):
        for each in (0, stream):
            call_times(module, operands, 1, stream=each)
            assert module.launch_path() == ("direct" if number < 4 else "record")
    assert module.launch_stats() == {
        "direct": 6,
        "record_unchanged": 6,
        "record_patched": 0,
        "hit_rate": 0.5,
        "recorded": 2,
        "evicted": 0,
        "refused": 0,
        "reason": "",
    }


@record
def test_record_records_the_second_call(load: Load, place: Place) -> None:
    module = load("thd")
    operands = place("thd")
    assert module.launch_path() == "direct", "no call so far"
    for path in ("direct", "record", "record"):
        call_times(module, operands, 1)
        assert module.launch_path() == path


@direct
def test_direct_never_records(load: Load, place: Place, standin: Standin) -> None:
    module = load("thd")
    operands = place("thd")
    call_times(module, operands, 20)
    assert counts(module) == (20, 0, 0)
    module.set_launch_policy("record")
    call_times(module, operands, 2)
    module.set_launch_policy("direct")
    call_times(module, operands, 5)
    assert counts(module) == (26, 1, 0)
    assert standin.live("exec") == 1, "kept for a change of mind"
    module.set_launch_policy("auto")
    call_times(module, operands, 1)
    assert counts(module) == (26, 2, 0)


@record
@pytest.mark.parametrize("wrong", ["", "Auto", "records", None, 1, b"auto", ["auto"]])
def test_there_is_no_such_policy(load: Load, place: Place, wrong: object) -> None:
    module = load("thd")
    with pytest.raises(ValueError, match=r"^policy: expected one of auto, direct, record, got "):
        module.set_launch_policy(wrong)
    call_times(module, place("thd"), 2)
    assert module.launch_path() == "record", "still the policy from before"


PROGRAM = """
import sys
from support.standin import Paths, Standin
libraries = Standin(Paths(*sys.argv[1:]))
import thd
with libraries.context():
    operands = [libraries.alloc(128) for _ in thd.OPERANDS]
    for _ in range(5):
        thd.execute(*operands)
        print(thd.launch_path(), end=" ")
    thd.close()
print(thd.launch_stats()["refused"], thd.launch_stats()["reason"], libraries.live("exec"))
"""


def run_program(builds: Any, paths: Paths, policy: str | None) -> subprocess.CompletedProcess[str]:
    builds.path("thd")
    environment = dict(os.environ)
    environment.pop("CUDNN_BINDGEN_LAUNCH", None)
    environment["PYTHONPATH"] = os.pathsep.join([str(builds.directory), *sys.path])
    if policy is not None:
        environment["CUDNN_BINDGEN_LAUNCH"] = policy
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(paths.cudnn), str(paths.driver)],
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("policy", "recorded_from"), [(None, 4), ("", 4), ("auto", 4), ("record", 2), ("direct", 6)]
)
def test_the_environment_chooses(
    builds: Any, standin_paths: Paths, policy: str | None, recorded_from: int
) -> None:
    done = run_program(builds, standin_paths, policy)
    paths = ["record" if number >= recorded_from else "direct" for number in range(1, 6)]
    assert done.stdout.split() == [*paths, "0", "0"], done.stderr


@pytest.mark.parametrize("wrong", ["on", "Record", "0"])
def test_a_wrong_environment_is_an_error_at_import(
    builds: Any, standin_paths: Paths, wrong: str
) -> None:
    done = run_program(builds, standin_paths, wrong)
    message = f"CUDNN_BINDGEN_LAUNCH: expected one of auto, direct, record, got '{wrong}'"
    assert done.stderr.splitlines()[-1].endswith(f"OperandError: {message}")
    assert done.stdout == ""


@pytest.mark.parametrize(
    "function", ["cuGraphAddDependencies_v2", "cuKernelGetParamInfo", "cuGraphLaunch"]
)
def test_a_driver_without_what_records_need(builds: Any, own_standin: Paths, function: str) -> None:
    hide(own_standin.driver, function)
    done = run_program(builds, own_standin, "record")
    expected = f"{'direct ' * 5}1 the driver has no {function} 0"
    assert done.stdout.strip() == expected, done.stderr


# Scalars


@record
def test_new_scalars_go_direct_until_they_come_again(load: Load, place: Place) -> None:
    module = load("scalars")
    one, two = place("scalars"), place("scalars", seed=1)
    call_times(module, one, 3)
    assert counts(module) == (1, 2, 0)
    call_times(module, two, 1)
    assert counts(module) == (2, 2, 0)
    call_times(module, one, 1)
    assert counts(module) == (2, 3, 0), "the record of the first scalars is still there"
    call_times(module, two, 2)
    assert counts(module) == (2, 5, 0)
    for _ in range(5):
        call_times(module, one, 1)
        call_times(module, two, 1)
    assert counts(module) == (2, 15, 0)
    assert module.launch_stats()["recorded"] == 2


@record
@pytest.mark.parametrize("used", range(4))
def test_the_scalars_not_used_for_longest_lose_their_record(
    load: Load, place: Place, standin: Standin, used: int
) -> None:
    module = load("scalars")
    *variants, new = (place("scalars", seed) for seed in range(5))
    for variant in variants:
        call_times(module, variant, 2)
    assert standin.live("exec") == 4
    call_times(module, variants[used], 1)
    call_times(module, new, 2)
    assert standin.live("exec") == 4
    oldest = variants[0 if used else 1]
    directs = counts(module)[0]
    for variant in (*variants, new):
        if variant is not oldest:
            call_times(module, variant, 1)
            assert module.launch_path() == "record"
    assert counts(module)[0] == directs
    call_times(module, oldest, 1)
    assert module.launch_path() == "direct"


@pytest.mark.parametrize("policy", ["auto", "record"], indirect=True)
def test_scalars_that_always_change_are_never_recorded(
    load: Load, place: Place, standin: Standin
) -> None:
    module = load("scalars")
    operands = place("scalars")
    for _ in range(100):
        operands.fill()
        module.execute(*operands.arguments)
        operands.check()
    assert counts(module) == (100, 0, 0)
    assert standin.calls("cuStreamBeginCapture") == 0


@record
def test_no_more_than_sixteen_recordings(load: Load, place: Place, standin: Standin) -> None:
    module = load("scalars")
    variants = [place("scalars", seed) for seed in range(20)]
    for variant in variants:
        call_times(module, variant, 4)
        assert standin.live("exec") <= 4
    assert module.launch_stats()["recorded"] == 16
    assert counts(module) == (16 + 4 * 4, 16 * 3, 0)
    call_times(module, variants[15], 1)
    assert module.launch_path() == "record", "what has a record keeps it"


# Captures


@record
@pytest.mark.parametrize("mode", MODES)
def test_a_captured_call_leaves_ordinary_nodes(
    load: Load, place: Place, standin: Standin, stream: int, mode: int
) -> None:
    module = load("parts")
    operands = place("parts")
    call_times(module, operands, 3, stream=stream)
    for _ in range(3):
        operands.fill()
        standin.begin_capture(stream, mode)
        module.execute(*operands.arguments, stream=stream)
        status, graph = standin.end_capture_graph(stream)
        assert status == 0
        assert module.launch_path() == "direct"
        assert [node["type"] for node in standin.graph_nodes(graph)] == [1, 2, 1, 0]
        operands.check_untouched()
        standin.replay(graph, stream)
        operands.check()
        call_times(module, operands, 1, stream=stream)
        assert module.launch_path() == "record"


@record
def test_captured_calls_do_not_count(
    load: Load, place: Place, standin: Standin, stream: int
) -> None:
    module = load("thd")
    operands = place("thd")
    call_times(module, operands, 1, stream=stream)
    standin.begin_capture(stream)
    for _ in range(5):
        module.execute(*operands.arguments, stream=stream)
    assert standin.end_capture(stream) == 0
    assert module.launch_stats()["recorded"] == 0
    call_times(module, operands, 1, stream=stream)
    assert module.launch_stats()["recorded"] == 1


@record
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("launch", ["split", "hash"])
def test_recording_beside_a_capture(
    load: Load, move: Move, standin: Standin, stream: int, mode: int, where: str, launch: str
) -> None:
    case = launched("parts", launch)
    module = load("parts")
    module.load_plan(case.plan)
    moving = move(case)
    moving.call(module)
    steps: list[Callable[[], Any]] = [
        *[lambda: moving.call(module)] * 4,
        module.load_plan,
    ]
    for step in steps:
        if where == "here":
            standin.begin_capture(stream, mode)
            step()
            assert standin.end_capture(stream) == 0
        else:
            with capturing_elsewhere(standin, mode):
                step()
    assert module.launch_stats()["recorded"] == (launch == "split")
    assert standin.live("exec") == 0, "the plan and its records are gone"
