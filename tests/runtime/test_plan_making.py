"""A plan that is missing on a device is made there, once, at the first call that needs it."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES, edited
from support.overriding import VERSION, product_plan
from support.plan_sets import HERE, THERE, Makers, Sets, fields, made_for, other_device
from support.standin import CAPTURE_GLOBAL, CAPTURE_RELAXED, Standin

from cudnn_bindgen.runtime.errors import (
    BindingError,
    CudnnError,
    PlanMismatchError,
    PlanMissingError,
    PlanNotLoadedError,
)
from cudnn_bindgen.runtime.handle import release_handles
from runtime.test_captures import capturing_elsewhere
from runtime.test_failures import capture_mode
from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Call = Callable[..., None]

SECONDS = 60
"""Longer than anything here takes: a thread that waits for so long would wait for ever."""


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> Makers:
    return Makers(monkeypatch)


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> Sets:
    return Sets(monkeypatch)


@pytest.fixture
def lacking(load: Load, standin: Standin, makers: Makers) -> ModuleType:
    """The module `parts` with its plan on device 0, and none for device 1 but what is made."""
    other_device(standin)
    module = load("parts")
    module.load_plan(on_missing="plan")
    assert makers.calls == []
    return module


def check(module: ModuleType, operands: Any, stream: int = 2) -> None:
    operands.fill()
    module.execute(*operands.arguments, stream=stream)
    operands.check()


# Who is asked, and when


def test_a_module_of_structure_only(
    load: Load, place: Place, standin: Standin, makers: Makers
) -> None:
    module = load("norm")
    makers.makes("norm")
    module.load_plan(on_missing="plan")
    assert makers.asked == [
        (module._binding.data[0].structure, [operand.uid for operand in module.OPERANDS])
    ]
    assert makers.calls == [HERE], "at once, as a plan in a file would be created"
    assert standin.live("plan") == 1
    for _ in range(3):
        check(module, place("norm"))
    with standin.context(1):
        check(module, place("norm"))
    assert makers.calls == [HERE], "the other device is of the same kind"
    assert standin.live("plan") == 2


def test_a_plan_that_fits_is_not_made(
    load: Load, place: Place, standin: Standin, makers: Makers, sets: Sets
) -> None:
    other_device(standin)
    module = load("parts")
    source = sets.file(made_for("parts", HERE), made_for("kept", THERE))
    module.load_plan(source, "plan")
    assert makers.asked == [(source, [operand.uid for operand in module.OPERANDS])]
    check(module, place("parts"))
    with standin.context(1):
        check(module, place("kept"))
    assert makers.calls == []


def test_a_plan_alone_for_another_count_is_not_tried_where_one_can_be_made(
    load: Load, place: Place, makers: Makers
) -> None:
    module = load("parts")
    makers.makes("parts")
    module.load_plan(made_for("kept", (90, 114, 91900)), "plan")
    assert makers.calls == [HERE]
    check(module, place("parts"))


def test_a_file_of_structure_only(load: Load, place: Place, makers: Makers) -> None:
    module = load("norm")
    makers.makes("norm")
    structure = CASES["norm"].graph
    module.load_plan(structure, on_missing="plan")
    assert [source for source, _ in makers.asked] == [structure]
    check(module, place("norm"))


ENTRIES: dict[str, Callable[[ModuleType, Any], object]] = {
    "execute": lambda module, operands: module.execute(*operands.arguments, stream=2),
    "execute_uids": lambda module, operands: module.execute_uids(operands.by_uid, stream=2),
    "workspace_size": lambda module, operands: module.workspace_size(),
    "WORKSPACE_SIZE": lambda module, operands: module.WORKSPACE_SIZE,
    "launch_nodes": lambda module, operands: module.launch_nodes(),
    "load_plan": lambda module, operands: module.load_plan(on_missing="plan"),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_whatever_needs_the_plan_first_has_it_made(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers, entry: str
) -> None:
    makers.makes("kept")
    operands = place("kept")
    with standin.context(1):
        ENTRIES[entry](lacking, operands)
        assert makers.calls == [THERE]
        check(lacking, operands)
    if entry != "load_plan":
        check(lacking, place("parts"))
    lacking.close()
    assert standin.live("plan") == 0


def test_overridden_calls(
    standin: Standin, makers: Makers, product: ModuleType, arrays: Callable[..., Any]
) -> None:
    makers.make = lambda *kind: fields(product_plan())
    module = product
    module.load_plan(product_plan(version=VERSION - 1), "plan")
    assert makers.calls == [(90, 132, VERSION)]
    assert module.workspace_size(module.Overrides()) == module.workspace_size()


# Threads


@pytest.mark.parametrize("kinds", [1, 2])
def test_threads_at_once_have_one_plan_made_for_each_kind(
    thd: ModuleType, call: Call, place: Place, standin: Standin, makers: Makers, kinds: int
) -> None:
    standin.set_device_count(3)
    other_device(standin, 1)
    other_device(standin, 2)
    if kinds == 2:
        standin.set_device_sm_count(2, 100)
    thd.load_plan(on_missing="plan")

    def make(sm: int, sm_count: int, version: int) -> dict[str, Any]:
        time.sleep(0.05)  # the others come meanwhile
        return fields(made_for("thd", (sm, sm_count, version)))

    makers.make = make
    operands = [place("thd", seed) for seed in range(8)]

    def work(number: int) -> None:
        with standin.context(1 + number % 2):
            for _ in range(5):
                operands[number].fill()
                call(*operands[number].arguments, stream=2)
                operands[number].check()

    at_once(8, work)
    assert sorted(makers.calls) == [(100, 100, 91900), THERE][2 - kinds :]
    assert standin.live("plan") == 3


class Slow:
    """A maker that says when it has begun, and goes on when it may."""

    def __init__(self, makers: Makers, plan: bytes) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.plan = plan
        makers.make = self.make

    def make(self, *kind: int) -> dict[str, Any]:
        self.begun.set()
        assert self.may_go_on.wait(SECONDS)
        return fields(self.plan)


def test_closing_does_not_wait_for_what_is_made(
    thd: ModuleType, call: Call, place: Place, standin: Standin, makers: Makers
) -> None:
    other_device(standin)
    thd.load_plan(on_missing="plan")
    slow = Slow(makers, made_for("thd", THERE))
    operands = place("thd")

    def work() -> None:
        with standin.context(1):
            call(*operands.arguments, stream=2)

    with ThreadPoolExecutor(2) as pool:
        future = pool.submit(work)
        assert slow.begun.wait(SECONDS)
        pool.submit(thd.close).result(SECONDS)
        assert standin.live("plan") == 0
        slow.may_go_on.set()
        with pytest.raises(PlanNotLoadedError):
            future.result(SECONDS)
    operands.check_untouched()
    assert standin.live("plan") == 0, "what was made for nobody is gone"


@pytest.mark.parametrize("lacks", [False, True])
def test_plans_are_replaced_while_one_is_made(
    load: Load, place: Place, standin: Standin, makers: Makers, sets: Sets, lacks: bool
) -> None:
    """The call goes on with what is loaded by then, which may lack its plan as well."""
    other_device(standin)
    module = load("parts")
    module.load_plan(on_missing="plan")
    slow = Slow(makers, made_for("kept", THERE))
    operands = place("no_parts")

    def work() -> None:
        with standin.context(1):
            module.execute(*operands.arguments, stream=2)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        assert slow.begun.wait(SECONDS)
        makers.makes("no_parts")
        if lacks:
            module.load_plan(made_for("parts", HERE), "plan")
        else:
            module.load_plan(sets.file(made_for("parts", HERE), made_for("no_parts", THERE)))
        slow.may_go_on.set()
        future.result(SECONDS)
    operands.check()
    assert makers.calls == [THERE] * (2 if lacks else 1)
    check(module, place("parts"))
    assert standin.live("plan") == 2


def test_plans_come_and_go_while_they_are_made(
    thd: ModuleType, call: Call, place: Place, standin: Standin, makers: Makers
) -> None:
    other_device(standin)
    makers.makes("thd")
    operands = [place("thd", seed) for seed in range(4)]
    running = [True]
    executed = [0] * 4

    def work(number: int) -> None:
        if number == 0:
            try:
                for turn in range(40):
                    if turn % 3 == 0:
                        thd.close()
                    thd.load_plan(on_missing="plan")
                    time.sleep(0.002)
            finally:
                running[0] = False
            return
        mine = operands[number]
        with standin.context(1):
            while running[0]:
                mine.fill()
                try:
                    call(*mine.arguments, stream=2)
                except PlanNotLoadedError:
                    mine.check_untouched()
                else:
                    mine.check()
                    executed[number] += 1

    thd.load_plan(on_missing="plan")
    at_once(4, work)
    assert all(executed[1:])
    assert set(makers.calls) == {THERE}
    thd.close()
    assert standin.live("plan") == 0


# What goes wrong


class OddError(Exception):
    """One that no code knows."""


@pytest.mark.parametrize("error", [OddError("no"), KeyboardInterrupt(), PlanNotLoadedError("x")])
def test_what_the_maker_raises_is_raised_and_the_next_call_tries_again(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers, error: BaseException
) -> None:
    def make(*kind: int) -> dict[str, Any]:
        standin.set_context(None)
        raise error

    operands = place("kept")
    with standin.context(1) as context:
        for times in (1, 2):
            makers.make = make
            with pytest.raises(type(error)) as caught:
                lacking.execute(*operands.arguments, stream=2)
            assert caught.value is error
            assert makers.calls == [THERE] * times
            assert standin.current_context() == context
            assert capture_mode(standin) == CAPTURE_GLOBAL
        with pytest.raises(type(error)) as caught:
            lacking.load_plan(on_missing="plan")
        assert caught.value is error
        operands.check_untouched()
        makers.makes("kept")
        check(lacking, operands)
    check(lacking, place("parts"))


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "other SM": (
        lambda: fields(made_for("kept", (90, 148, 91900))),
        PlanMismatchError,
        "SM 90, here is SM 100",
    ),
    "other cuDNN": (
        lambda: fields(made_for("kept", (100, 148, 92700))),
        PlanMismatchError,
        "cuDNN 92700, here is cuDNN 91900",
    ),
    "other graph": (
        lambda: fields(made_for("scalars", THERE)),
        PlanMismatchError,
        "the plan is for graph",
    ),
    "other uids": (
        lambda: fields(made_for("kept", THERE))._replace(uids=(1, 2)),
        PlanMismatchError,
        "the plan is for uids 1, 2",
    ),
    "alignment": (
        lambda: fields(made_for("kept", THERE))._replace(alignments=((1, 256),)),
        PlanMismatchError,
        "alignment of",
    ),
    "no text of cuDNN": (
        lambda: fields(made_for("kept", THERE))._replace(text=b"{}"),
        CudnnError,
        "cudnnBackend",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("entry", ["execute", "load_plan"])
def test_a_wrong_plan_is_not_added(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers, name: str, entry: str
) -> None:
    wrong, error, message = WRONG[name]
    makers.make = lambda *kind: wrong()
    operands = place("kept")
    with standin.context(1):
        for _ in range(2):
            with pytest.raises(error, match=message):
                ENTRIES[entry](lacking, operands)
        operands.check_untouched()
        assert standin.live("plan") == 1
        makers.makes("kept")
        check(lacking, operands)
    assert makers.calls == [THERE] * 3
    check(lacking, place("parts"))


def test_a_made_plan_that_cudnn_refuses_is_made_again(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers
) -> None:
    makers.makes("kept")
    with standin.context(1):
        standin.fail("cudnnBackendFinalize", status=3000)
        with pytest.raises(CudnnError):
            lacking.workspace_size()
        check(lacking, place("kept"))
    assert makers.calls == [THERE] * 2


def test_a_maker_that_fails_leaves_what_was_loaded(
    load: Load, place: Place, standin: Standin, makers: Makers
) -> None:
    module = load("parts")
    check(module, place("parts"))

    def make(*kind: int) -> dict[str, Any]:
        raise OddError

    makers.make = make
    with pytest.raises(OddError):
        module.load_plan(made_for("kept", THERE), "plan")
    check(module, place("parts"))
    assert standin.live("plan") == 1


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry != "load_plan"])
def test_a_maker_that_calls_the_module(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers, entry: str
) -> None:
    operands = place("kept")

    def make(*kind: int) -> dict[str, Any]:
        ENTRIES[entry](lacking, operands)
        raise AssertionError("it has no plan")

    makers.make = make
    with standin.context(1):
        with pytest.raises(BindingError, match=r"^parts: what makes the missing plan has called"):
            lacking.execute(*operands.arguments, stream=2)
        makers.makes("kept")
        check(lacking, operands)


def test_a_maker_that_closes_and_loads_the_module(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers
) -> None:
    def make(*kind: int) -> dict[str, Any]:
        lacking.close()
        return fields(made_for("kept", THERE))

    makers.make = make
    with standin.context(1), pytest.raises(PlanNotLoadedError):
        lacking.workspace_size()
    assert standin.live("plan") == 0

    def make_another(*kind: int) -> dict[str, Any]:
        lacking.load_plan(made_for("no_parts", THERE))
        return fields(made_for("kept", THERE))

    lacking.load_plan(on_missing="plan")
    makers.make = make_another
    with standin.context(1):
        check(lacking, place("no_parts"))
    assert standin.live("plan") == 1


@pytest.mark.parametrize("change", ["other context", "no context", "handles", "all"])
def test_what_a_maker_changes_on_its_thread_is_as_before(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers, change: str
) -> None:
    other = standin.retain_context(0)

    def make(*kind: int) -> dict[str, Any]:
        if change in ("handles", "all"):
            release_handles()
        if change in ("other context", "all"):
            standin.set_context(other)
            lacking.workspace_size()
        if change == "no context":
            standin.set_context(None)
        return fields(made_for("kept", THERE))

    makers.make = make
    operands = place("kept")
    with standin.context(1) as context:
        check(lacking, operands)
        assert standin.current_context() == context
        check(lacking, operands)
    check(lacking, place("parts"))


def test_a_context_that_cannot_be_restored_is_told_of(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers
) -> None:
    def make(*kind: int) -> dict[str, Any]:
        standin.set_context(None)
        standin.fail("cuCtxSetCurrent", status=201)
        return fields(made_for("kept", THERE))

    makers.make = make
    operands = place("kept")
    with standin.context(1) as context:
        with pytest.raises(BindingError, match="cuCtxSetCurrent"):
            lacking.execute(*operands.arguments, stream=2)
        operands.check_untouched()
        standin.set_context(context)
        makers.makes("kept")
        check(lacking, operands)


# Captures


def test_no_plan_is_made_in_a_capture(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers
) -> None:
    operands = place("kept")
    with standin.context(1):
        stream = standin.stream()
        block = standin.alloc(4096)
        standin.begin_capture(stream)
        with pytest.raises(
            PlanMissingError,
            match=r"here is SM 100 with 148 .*: none is made while a stream is being captured; "
            r"call load_plan\(\) or the module once on this device before the capture; "
            r"cudnn-bindgen plan parts\.plan --for sm_100:148 makes one on any machine$",
        ):
            lacking.execute(*operands.arguments, workspace_ptr=block, stream=stream)
        assert standin.captured_nodes(stream) == 0
        assert standin.end_capture(stream) == 0, "the capture goes on"
        assert makers.calls == []
        makers.makes("kept")
        lacking.load_plan(on_missing="plan")
        standin.begin_capture(stream)
        lacking.execute(*operands.arguments, workspace_ptr=block, stream=stream)
        assert standin.captured_nodes(stream) > 0
        assert standin.end_capture(stream) == 0
        standin.destroy_stream(stream)
        standin.free(block)
    assert makers.calls == [THERE]


def test_no_plan_is_made_where_the_legacy_stream_is_drawn_into_a_capture(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers
) -> None:
    with standin.context(1):
        blocking = standin.stream(blocking=True)
        standin.begin_capture(blocking)
        for call in (lacking.workspace_size, lambda: lacking.load_plan(on_missing="plan")):
            with pytest.raises(PlanMissingError, match="before the capture"):
                call()
        assert standin.end_capture(blocking) == 0
        standin.destroy_stream(blocking)
        makers.makes("kept")
        check(lacking, place("kept"), stream=0)


def test_a_capture_does_not_wait_for_what_another_thread_makes(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers
) -> None:
    slow = Slow(makers, made_for("kept", THERE))
    operands = place("kept")

    def work() -> None:
        with standin.context(1):
            lacking.execute(*operands.arguments, stream=2)

    with ThreadPoolExecutor(1) as pool, standin.context(1):
        future = pool.submit(work)
        assert slow.begun.wait(SECONDS)
        stream = standin.stream()
        standin.begin_capture(stream)
        with pytest.raises(PlanMissingError):
            lacking.execute(*operands.arguments, stream=stream)
        assert standin.end_capture(stream) == 0
        standin.destroy_stream(stream)
        slow.may_go_on.set()
        future.result(SECONDS)
    operands.check()
    assert makers.calls == [THERE]


def test_what_is_made_beside_a_capture_does_not_disturb_it(
    lacking: ModuleType, place: Place, standin: Standin, makers: Makers
) -> None:
    def make(*kind: int) -> dict[str, Any]:
        assert capture_mode(standin) == CAPTURE_RELAXED
        standin.free(standin.alloc(64))  # forbidden in any other mode
        return fields(made_for("kept", THERE))

    makers.make = make
    operands = place("kept")
    with capturing_elsewhere(standin, CAPTURE_GLOBAL), standin.context(1):
        lacking.execute(*operands.arguments, stream=2)
    operands.check()
    assert makers.calls == [THERE]
    assert capture_mode(standin) == CAPTURE_GLOBAL


# Nothing stays


def test_a_maker_is_let_go(load: Load, standin: Standin, makers: Makers) -> None:
    module = load("parts")

    class Held:
        """What a maker holds on to."""

    held: list[weakref.ref[Held]] = []
    maker = makers.plan_maker

    def plan_maker(source: Any, bound: list[int]) -> Callable[[int, int, int], Any]:
        one = Held()
        held.append(weakref.ref(one))
        make = maker(source, bound)
        return lambda *kind: (one, make(*kind))[1]

    makers.makes("kept")
    sys.modules["cudnn_bindgen.frontend.planning.missing"].__dict__["plan_maker"] = plan_maker
    other_device(standin)
    for _ in range(3):
        module.load_plan(on_missing="plan")
        with standin.context(1):
            module.workspace_size()
    gc.collect()
    assert [one() is None for one in held] == [True, True, False]
    module.close()
    gc.collect()
    assert held[-1]() is None


def test_edited_plans_of_a_file_are_refused_as_before(lacking: ModuleType, makers: Makers) -> None:
    with pytest.raises(PlanMismatchError, match="alignment of"):
        lacking.load_plan(edited(CASES["parts"], aligned_operands={"1": [256, 2]}), "plan")
    assert makers.calls == []
