"""Several plans of one graph: each device gets its own, and one that has none is told of all."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.plan_sets import HERE, THERE, Kind, Sets, fields, made_for, other_device
from support.standin import Standin

from cudnn_bindgen.codegen.bind import plan_file
from cudnn_bindgen.module_data import PlanParts
from cudnn_bindgen.runtime.errors import (
    CudnnError,
    DriverError,
    OperandError,
    PlanMismatchError,
    PlanMissingError,
    PlanNotLoadedError,
)
from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Call = Callable[..., None]


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> Sets:
    return Sets(monkeypatch)


def check_on(standin: Standin, module: ModuleType, place: Place, device: int, case: str) -> None:
    """Check that a device runs the plan of a case."""
    operands = place(case)
    with standin.context(device):
        for _ in range(3):
            operands.fill()
            module.execute(*operands.arguments, stream=2)
            operands.check()


# Choosing


@pytest.mark.parametrize("order", [1, -1])
def test_two_devices_have_plans_of_their_own(
    load: Load, place: Place, standin: Standin, sets: Sets, order: int
) -> None:
    other_device(standin)
    module = load("parts")
    plans = [made_for("parts", HERE), made_for("kept", THERE)][::order]
    module.load_plan(sets.file(*plans))
    assert standin.live("plan") == 1, "that of the current device"
    for device, case in ((0, "parts"), (1, "kept"), (0, "parts")):
        check_on(standin, module, place, device, case)
    assert standin.live("plan") == 2
    module.close()
    assert standin.live("plan") == 0


def test_a_module_with_several_plans_in_it(load: Load, place: Place, standin: Standin) -> None:
    other_device(standin)
    module = load("several")
    assert [plan[:3] for plan in module.GRAPH["plans"]] == [HERE, THERE]
    for device, case in ((1, "kept"), (0, "parts")):
        check_on(standin, module, place, device, case)
    module.close()
    with pytest.raises(PlanNotLoadedError):
        module.workspace_size()
    with standin.context(1):
        module.load_plan()
    assert standin.live("plan") == 1
    for device, case in ((0, "parts"), (1, "kept")):
        check_on(standin, module, place, device, case)
    module.load_plan(CASES["parts"].plan)
    check_on(standin, module, place, 0, "parts")


CHOICES: dict[str, tuple[list[tuple[str, Kind]], Kind, str]] = {
    "SM count": ([("kept", (90, 114, 91900)), ("parts", HERE)], HERE, "parts"),
    "other SM count": ([("kept", (90, 114, 91900)), ("parts", HERE)], (90, 114, 91900), "kept"),
    "count not stated": ([("kept", (90, 114, 91900)), ("parts", (90, 0, 91900))], HERE, "parts"),
    "stated after not stated": ([("kept", (90, 0, 91900)), ("parts", HERE)], HERE, "parts"),
    "stated before not stated": ([("parts", HERE), ("kept", (90, 0, 91900))], HERE, "parts"),
    "two not stated": ([("parts", (90, 0, 91900)), ("kept", (90, 0, 91900))], HERE, "parts"),
    "version": ([("kept", (90, 132, 92700)), ("parts", HERE)], HERE, "parts"),
    "other version": ([("kept", HERE), ("parts", (90, 132, 92700))], (90, 132, 92700), "parts"),
    "SM": ([("kept", (100, 132, 91900)), ("parts", HERE)], HERE, "parts"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_plan_that_fits_is_taken(
    load: Load, place: Place, standin: Standin, sets: Sets, name: str
) -> None:
    plans, (sm, sm_count, version), chosen = CHOICES[name]
    standin.set_version(version)
    standin.set_device_sm(0, sm // 10, sm % 10)
    standin.set_device_sm_count(0, sm_count)
    module = load("parts")
    module.load_plan(sets.file(*(made_for(case, kind) for case, kind in plans)))
    check_on(standin, module, place, 0, chosen)
    standin.set_version(91900)


def test_a_plan_alone_is_tried_on_every_number_of_multiprocessors(
    load: Load, place: Place, standin: Standin, sets: Sets
) -> None:
    module = load("parts")
    module.load_plan(made_for("kept", (90, 114, 91900)))
    check_on(standin, module, place, 0, "kept")
    standin.set_device_sm_count(1, 16)
    check_on(standin, module, place, 1, "kept")


def test_devices_of_one_kind_share_a_plan_and_its_records(
    load: Load, place: Place, standin: Standin, sets: Sets, policy: str
) -> None:
    module = load("parts")
    module.load_plan(sets.file(made_for("kept", THERE), made_for("parts", HERE)))
    for device in (0, 1, 0):
        check_on(standin, module, place, device, "parts")
    assert standin.live("plan") == 2, "one on each device"
    recorded = module.launch_stats()["recorded"]
    assert recorded == (2 if policy == "record" else 0)


# Refusing

REFUSAL = (
    "parts: there are plans for SM 100 with 148 multiprocessors under cuDNN 9.19.0; SM 90 with any "
    "number of multiprocessors under cuDNN 9.27.0; here is SM 90 with 132 multiprocessors under "
    'cuDNN 9.19.0: load_plan(on_missing="plan") makes one where nvidia-cudnn-frontend is installed'
    "; cudnn-bindgen plan parts.plan --for sm_90:132 makes one on any machine"
)


def test_a_device_without_a_plan_is_told_of_all(
    load: Load, place: Place, standin: Standin, sets: Sets
) -> None:
    other_device(standin)
    module = load("parts")
    operands = place("kept")
    plans = [made_for("kept", THERE), made_for("parts", (90, 0, 92700)), made_for("kept", THERE)]
    source = sets.file(*plans)
    with standin.context(1):
        module.load_plan(source)
    for call in (
        lambda: module.execute(*operands.arguments),
        lambda: module.execute_uids(operands.by_uid),
        module.workspace_size,
        lambda: module.WORKSPACE_SIZE,
        module.launch_nodes,
        lambda: module.load_plan(source),
    ):
        with pytest.raises(PlanMissingError) as caught:
            call()
        assert str(caught.value) == REFUSAL
    error = caught.value
    assert isinstance(error, PlanMismatchError)
    assert error.what == "device"
    assert error.here == "SM 90 with 132 multiprocessors under cuDNN 9.19.0"
    assert error.plan.count(";") == 1, "each kind once"
    operands.check_untouched()
    check_on(standin, module, place, 1, "kept")
    standin.set_version(92700)
    check_on(standin, module, place, 0, "parts")
    standin.set_version(91900)


def test_loading_a_set_that_lacks_this_device_changes_nothing(
    load: Load, place: Place, standin: Standin, sets: Sets
) -> None:
    module = load("parts")
    check_on(standin, module, place, 0, "parts")
    both = sets.file(made_for("kept", THERE), made_for("kept", (90, 114, 91900)))
    with pytest.raises(PlanMissingError, match="SM 90 with 114 multiprocessors"):
        module.load_plan(both)
    check_on(standin, module, place, 0, "parts")
    module.close()
    with pytest.raises(PlanMissingError):
        module.load_plan(both)
    with pytest.raises(PlanNotLoadedError):
        module.workspace_size()
    assert standin.live("plan") == 0


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_set_with_a_plan_of_another_graph_is_not_loaded(
    load: Load, place: Place, standin: Standin, sets: Sets, position: int
) -> None:
    module = load("parts")
    plans = [made_for("parts", HERE), made_for("kept", THERE)]
    plans.insert(position, CASES["scalars"].plan)
    with pytest.raises(PlanMismatchError, match="the plan is for graph"):
        module.load_plan(sets.file(*plans))
    check_on(standin, module, place, 0, "parts")
    assert standin.live("plan") == 1


def test_a_plan_that_cudnn_refuses_is_not_passed_over_for_another(
    load: Load, place: Place, standin: Standin, sets: Sets
) -> None:
    """Its key says that it is for this device: what is wrong with it must be seen."""
    module = load("parts")
    source = sets.file(made_for("parts", HERE), made_for("kept", (90, 0, 91900)))
    standin.fail("cudnnBackendFinalize", status=3000)
    with pytest.raises(CudnnError):
        module.load_plan(source)
    module.load_plan(source)
    check_on(standin, module, place, 0, "parts")


@pytest.mark.parametrize(
    ("call", "nth"),
    [*(("cuDeviceGetAttribute", nth) for nth in (1, 2, 3)), ("cudnnBackendFinalize", 1)],
)
def test_a_device_whose_choice_fails_chooses_again(
    load: Load, place: Place, standin: Standin, sets: Sets, call: str, nth: int
) -> None:
    other_device(standin)
    module = load("parts")
    module.load_plan(sets.file(made_for("parts", HERE), made_for("kept", THERE)))
    operands = place("kept")
    with standin.context(1):
        standin.fail(call, nth, status=3000)
        with pytest.raises((CudnnError, DriverError), match=call):
            module.execute(*operands.arguments, stream=2)
        operands.check_untouched()
        module.execute(*operands.arguments, stream=2)
        operands.check()


def test_what_cannot_be_asked_for(load: Load, sets: Sets) -> None:
    module = load("parts")
    for value in ("Plan", "", None, True, 1, [], b"plan"):
        with pytest.raises(
            OperandError, match=r'^on_missing: expected "refuse" or "plan", got '
        ) as caught:
            module.load_plan("/nonexistent/a.plan", value)
        assert caught.value.argument == "on_missing"


def test_plans_of_a_set_are_let_go(
    load: Load, standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_device(standin)
    module = load("parts")
    texts = [fields(made_for(case, kind)) for case, kind in (("parts", HERE), ("kept", THERE))]
    monkeypatch.setattr(plan_file, "read_plans", lambda *_: texts)
    before = [sys.getrefcount(parts.text) for parts in texts]
    for _ in range(3):
        module.load_plan(b"")
        with standin.context(1):
            module.workspace_size()
    assert [sys.getrefcount(parts.text) for parts in texts] == [n + 1 for n in before]
    module.close()
    assert [sys.getrefcount(parts.text) for parts in texts] == before


def test_closing_goes_on_where_destroying_fails(
    load: Load, place: Place, standin: Standin, sets: Sets
) -> None:
    other_device(standin)
    module = load("parts")
    module.load_plan(sets.file(made_for("parts", HERE), made_for("kept", THERE)))
    with standin.context(1):
        module.workspace_size()
    first = int(standin.log("cudnnBackendFinalize")[0].split()[1], 16)
    standin.fail("cudnnBackendDestroyDescriptor", status=4000)
    with pytest.raises(CudnnError, match="cudnnBackendDestroyDescriptor"):
        module.close()
    assert standin.live("plan") == 1, "the other plan is destroyed all the same"
    assert standin.cudnn.cudnnBackendDestroyDescriptor(ctypes.c_void_p(first)) == 0
    module.load_plan()
    check_on(standin, module, place, 0, "parts")


# Threads and records


@pytest.mark.parametrize("change", ["sets", "close"])
def test_sets_are_replaced_while_calls_run(
    thd: ModuleType, call: Call, place: Place, standin: Standin, sets: Sets, change: str
) -> None:
    other_device(standin)
    files = [
        sets.file(made_for("thd", HERE), made_for("thd_large", THERE)),
        sets.file(made_for("thd", THERE), made_for("thd_large", HERE)),
        sets.file(*(made_for("thd", kind) for kind in ((90, 1, 91900), THERE, HERE))),
    ]
    operands = [place("thd", seed) for seed in range(4)]
    standin.set_execute_delay(0.001)
    running = [True]

    def work(number: int) -> tuple[int, int]:
        executed = refused = 0
        if number == 0:
            try:
                for turn in range(30):
                    if change == "close":
                        thd.close()
                    with standin.context(turn % 2):
                        thd.load_plan(files[turn % len(files)])
                    time.sleep(0.002)
            finally:
                running[0] = False
            return 0, 0
        mine = operands[number]
        with standin.context(number % 2):
            while running[0]:
                mine.fill()
                try:
                    call(*mine.arguments, stream=2)
                except PlanNotLoadedError:
                    mine.check_untouched()
                    refused += 1
                else:
                    mine.check()
                    executed += 1
        return executed, refused

    thd.load_plan(files[0])
    _, *outcomes = at_once(4, work)
    executed, refused = zip(*outcomes, strict=True)
    assert all(executed)
    assert change == "close" or not any(refused)
    thd.close()
    assert standin.live("plan") == 0


def test_records_belong_to_the_plan_of_their_device(
    load: Load, place: Place, standin: Standin, sets: Sets, policy: str
) -> None:
    other_device(standin)
    module = load("parts")
    source = sets.file(made_for("parts", HERE), made_for("kept", THERE))
    swapped = sets.file(made_for("kept", HERE), made_for("parts", THERE))
    cases = ["parts", "kept"]
    for turn, each in enumerate((source, swapped, source)):
        module.load_plan(each)
        for device in (0, 1, 1, 0):
            check_on(standin, module, place, device, cases[(device + turn) % 2])
    stats = module.launch_stats()
    if policy == "record":
        assert stats["recorded"] == 6, "one for each plan on each device"
        assert stats["direct"] == 6
        assert standin.live("exec") > 0
    else:
        assert stats["direct"] == 36
    module.close()
    assert standin.live("exec") == 0


# Numbers of multiprocessors, and sizes that no device has


@pytest.mark.parametrize("entry", ["execute", "workspace_size", "load_plan"])
def test_a_plan_alone_for_another_number_of_multiprocessors(
    load: Load, place: Place, standin: Standin, entry: str
) -> None:
    """Where cuDNN refuses it, both numbers are told; cuDNN is asked, as it takes some."""
    module = load("parts")
    operands = place("parts")
    plan = made_for("parts", (90, 114, 91900))
    calls = {
        "execute": lambda: module.execute(*operands.arguments),
        "workspace_size": module.workspace_size,
        "load_plan": lambda: module.load_plan(plan),
    }
    with standin.context(1):
        module.load_plan(plan)
    standin.fail("cudnnBackendFinalize", status=3007)
    with pytest.raises(PlanMismatchError) as caught:
        calls[entry]()
    error = caught.value
    assert (error.what, error.plan, error.here) == ("a number of multiprocessors of", "114", "132")
    operands.check_untouched()
    calls[entry]()
    module.execute(*operands.arguments)
    operands.check()


@pytest.mark.parametrize("sm_count", [132, 0])
@pytest.mark.parametrize("status", [3007, 3000])
def test_what_cudnn_says_otherwise_of_a_plan_alone(
    load: Load, standin: Standin, sm_count: int, status: int
) -> None:
    module = load("parts")
    standin.fail("cudnnBackendFinalize", status=status)
    with pytest.raises(CudnnError, match=str(status)):
        module.load_plan(made_for("parts", (90, sm_count, 91900)))


def resized(case: str, frontend: int, own: int) -> PlanParts:
    """Return a case's plan with other sizes of workspace: the frontend's and cuDNN's."""
    parts = fields(CASES[case].plan)
    text = json.loads(parts.text)
    text["standin"]["workspace"] = own
    return parts._replace(workspace_size=frontend, text=json.dumps(text).encode())


MOST = 2**60


@pytest.mark.parametrize(
    ("frontend", "own"),
    [
        *((2**63 - 1, 4096), (2**63, 0), (10**5000, 0), (-1, 4096), (MOST + 1, 0), (MOST, 4096)),
        *((4096, MOST), (4096, 2**63 - 1), (0, MOST + 1)),
    ],
    ids=range(9),  # Python refuses to print one of the sizes
)
def test_workspace_that_no_device_has(
    load: Load,
    place: Place,
    standin: Standin,
    monkeypatch: pytest.MonkeyPatch,
    frontend: int,
    own: int,
) -> None:
    module = load("thd")
    operands = place("thd")
    plan = resized("thd", frontend, own)
    monkeypatch.setattr(plan_file, "read_plans", lambda *_: [plan])
    with pytest.raises(PlanMismatchError, match=f"here is a workspace of at most {MOST} bytes"):
        module.load_plan(b"")
    assert standin.live("plan") == 0
    module.load_plan()
    module.execute(*operands.arguments)
    operands.check()


@pytest.mark.parametrize(("frontend", "own"), [(MOST, 0), (0, MOST), (MOST - 4096, 4096)])
def test_workspace_that_nobody_has_memory_for(
    load: Load,
    place: Place,
    standin: Standin,
    monkeypatch: pytest.MonkeyPatch,
    frontend: int,
    own: int,
) -> None:
    module = load("thd")
    operands = place("thd")
    plan = resized("thd", frontend, own)
    monkeypatch.setattr(plan_file, "read_plans", lambda *_: [plan])
    module.load_plan(b"")
    assert module.workspace_size() == MOST
    with pytest.raises(DriverError, match="cuMemAlloc"):
        module.execute(*operands.arguments)
    operands.check_untouched()


@pytest.mark.parametrize(
    "part", [(50, 1, 0, (513.0,)), (50, 0, 509, (1.0,)), (50, 2, 513, ()), (50, 2, -1, ())]
)
def test_workspace_parts_outside_of_the_workspace(
    load: Load, place: Place, standin: Standin, monkeypatch: pytest.MonkeyPatch, part: Any
) -> None:
    module = load("parts")
    operands = place("parts")
    parts = fields(CASES["parts"].plan)
    assert parts.workspace_size == 512
    changed = parts._replace(workspace_parts=(*parts.workspace_parts, part))
    monkeypatch.setattr(plan_file, "read_plans", lambda *_: [changed])
    with pytest.raises(PlanMismatchError, match="here is bytes of workspace from 0 to 512"):
        module.load_plan(b"")
    module.execute(*operands.arguments)
    operands.check()
