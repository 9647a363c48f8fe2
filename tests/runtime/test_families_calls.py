"""Compiled families on the stand-in: the right member runs, and no other does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support import families
from support.cases import Case
from support.families import GRID, ROWS, case_of
from support.standin import Standin

from cudnn_bindgen.runtime.errors import (
    CudnnError,
    OperandError,
    OperandTypeError,
    PlanMismatchError,
    PlanNotLoadedError,
)
from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]

SOME = [case_of("rows", m) for m in (16, 32, 64, 4096)]


@pytest.fixture
def rows(load: Load) -> ModuleType:
    return load("rows")


@pytest.fixture
def grid(load: Load) -> ModuleType:
    return load("grid")


def key_of(case: Case) -> tuple[int, ...]:
    dim = case.operands[0].dim
    return (dim[0], dim[2]) if case.module == "grid" else (dim[0],)


def test_each_key_runs_its_member(load: Load, place: Place, standin: Standin) -> None:
    for module, cases in (("rows", SOME), ("grid", GRID)):
        loaded = load(module)
        for case in [*cases, *reversed(cases)]:
            operands = place(case)
            for _ in range(2):  # the same key again
                loaded.execute(*operands.arguments, *key_of(case))
                operands.check()
                operands.fill()


def test_a_member_computes_what_its_own_module_does(
    load: Load, builds: Any, place: Place, policy: str
) -> None:
    from cudnn_bindgen.codegen.bind.binding import bind
    from cudnn_bindgen.codegen.compile import extension_path
    from cudnn_bindgen.codegen.read.graph import read_graph
    from cudnn_bindgen.codegen.render.module import render

    family = load("rows")
    for case in SOME[:2]:
        graph = read_graph(case.plan)
        single = f"single_{case.name}"
        with builds.lock(single):
            if not extension_path(builds.directory, single).exists():
                builds.compile(single, render(bind(graph), single, f"{case.name}.plan"))
        module = load(single)
        operands, own = place(case), place(case)
        module.execute(*operands.arguments)
        family.execute(*own.arguments, *key_of(case))
        outputs = [
            [ctypes.string_at(one.addresses[a.uid], 72) for a in case.operands]
            for one in (operands, own)
        ]
        assert outputs[0] == outputs[1]
        assert family.MEMBERS[key_of(case)].fingerprint == module.FINGERPRINT
        assert family.MEMBERS[key_of(case)].operands == module.OPERANDS
        assert family.MEMBERS[key_of(case)].graph == module.GRAPH
        assert family.MEMBERS[key_of(case)].source == f"{case.name}.plan"


def test_keywords(rows: ModuleType, grid: ModuleType, place: Place) -> None:
    operands = place(SOME[0])
    rows.execute(**operands.by_name, x_d0=16, stream=2)
    operands.check()
    operands = place(GRID[1])
    grid.execute(S=16, B=4, **operands.by_name)
    operands.check()


def test_a_number_is_any_integer(rows: ModuleType, place: Place) -> None:
    numpy = pytest.importorskip("numpy")
    operands = place(SOME[1])
    rows.execute(*operands.arguments, numpy.int32(32))
    operands.check()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (17, "x_d0: expected one of 16, 32, 0, 64, 4096, got 17"),
        (-1, "x_d0: expected one of 0, 16, 32, 64, 4096, got -1"),
        (4000, "x_d0: expected one of 4096, 64, 32, 16, 0, got 4000"),
        (2**63 - 1, f"x_d0: expected one of 4096, 64, 32, 16, 0, got {2**63 - 1}"),
        (2**63, f"x_d0: expected an int of 64 bits, got {2**63}"),
        (16.0, "x_d0: expected an int, got 16.0 of type float"),
        (None, "x_d0: expected an int, got None of type NoneType"),
    ],
)
def test_no_member_has_it(
    rows: ModuleType, place: Place, load: Load, standin: Standin, value: Any, message: str
) -> None:
    operands = place(SOME[0])
    for refused in (
        lambda: rows.execute(*operands.arguments, value),
        lambda: rows.workspace_size(value),
        lambda: rows.launch_path(value),
    ):
        with pytest.raises(OperandError) as caught:
            refused()
        assert isinstance(caught.value, OperandTypeError) == (not isinstance(value, int))
        assert str(caught.value).split(" of type")[0] == message.split(" of type")[0]
    if isinstance(value, int) and value < 2**63:
        with pytest.raises(OperandError, match="x_d0"):
            load("family_caller").execute(*operands.arguments, value)
    operands.check_untouched()
    assert standin.calls("cudnnBackendExecute") == 0
    rows.execute(*operands.arguments, 16)
    operands.check()


def test_several_numbers_that_no_member_has(grid: ModuleType, place: Place) -> None:
    with pytest.raises(OperandError) as caught:
        grid.execute(*place(GRID[0]).arguments, 4, 32)
    assert str(caught.value) == (
        "B, S: expected one of (2, 32), (4, 16), (2, 16), (8, 64), got (4, 32)"
    )


def test_a_key_has_no_default(rows: ModuleType, place: Place) -> None:
    with pytest.raises(TypeError, match=r"missing 1 required argument: x_d0$"):
        rows.execute(*place(SOME[0]).arguments)


def test_operands_are_checked_as_the_member_declares_them(rows: ModuleType, place: Place) -> None:
    operands = place(SOME[0])
    arguments = operands.arguments
    with pytest.raises(OperandError, match=r"^w_ptr: expected"):
        rows.execute(arguments[0], 0, *arguments[2:], 16)
    with pytest.raises(OperandError, match="multiple of 16"):
        rows.execute(arguments[0], arguments[1] + 8, *arguments[2:], 16)
    operands.check_untouched()


def test_a_member_without_an_element_needs_no_library(rows: ModuleType, standin: Standin) -> None:
    rows.execute(0, 0, 0, 1.0, 0)
    assert standin.calls("cudnnCreate") == 0


@pytest.mark.parametrize("policy", ["direct"])
def test_the_log_says_which_plan(rows: ModuleType, place: Place, standin: Standin) -> None:
    """One plan a member, made when it is needed."""
    sizes = []
    for case in (SOME[2], SOME[0], SOME[2], SOME[0], SOME[0]):
        operands = place(case)
        rows.execute(*operands.arguments, *key_of(case))
        operands.check()
        sizes.append(len(standin.log("cudnnBackendCreateDescriptor")))
    assert sizes == [1, 2, 2, 2, 2]
    executed = [line.split()[1:3] for line in standin.log("cudnnBackendExecute")]
    plans = [line[-1] for line in executed]
    assert plans[0] == plans[2] != plans[1] == plans[3] == plans[4]


def test_from_cython_without_the_gil(load: Load, place: Place) -> None:
    load("rows")
    caller = load("family_caller")
    for case in SOME:
        operands = place(case)
        caller.execute(*operands.arguments, *key_of(case))
        operands.check()


@pytest.mark.parametrize("way", ["execute", "enqueue"])
def test_threads_with_keys_of_their_own(
    rows: ModuleType, load: Load, place: Place, way: str
) -> None:
    execute = rows.execute if way == "execute" else load("family_caller").execute
    # Two threads a member, and each turns to another member now and then.
    operands = [[place(case, seed) for case in SOME] for seed in range(8)]

    def work(number: int) -> None:
        for turn in range(200):
            mine = operands[number][(number + turn // 50) % len(SOME)]
            execute(*mine.arguments, *key_of(mine.case), stream=2)
            mine.check()
            mine.fill(keep_scalars=True)

    at_once(8, work)
    stats = rows.launch_stats()
    assert stats["direct"] + stats["record_unchanged"] + stats["record_patched"] == 1600


# Plans


def test_sizes_of_workspace(rows: ModuleType, standin: Standin) -> None:
    largest = max(case.workspace for case in ROWS)
    assert [rows.workspace_size(*key_of(case)) for case in ROWS] == [c.workspace for c in ROWS]
    assert largest == rows.WORKSPACE_SIZE
    with pytest.raises(AttributeError, match="has no attribute 'OPERANDS'"):
        _ = rows.OPERANDS


def test_all_members_are_closed_when_one_cannot_be(
    rows: ModuleType, place: Place, standin: Standin
) -> None:
    for case in SOME[:3]:
        rows.execute(*place(case).arguments, *key_of(case))
    standin.fail("cudnnBackendDestroyDescriptor", status=4000)
    with pytest.raises(CudnnError, match=r"rows\[x_d0=16\]"):
        rows.close()
    assert standin.live("plan") == 1, "the other members' plans are destroyed all the same"
    plan = int(standin.log("cudnnBackendFinalize")[0].split()[1], 16)
    assert standin.cudnn.cudnnBackendDestroyDescriptor(ctypes.c_void_p(plan)) == 0
    for case in SOME[:3]:
        with pytest.raises(PlanNotLoadedError):
            rows.execute(*place(case).arguments, *key_of(case))


def test_an_error_names_the_member(rows: ModuleType, place: Place, standin: Standin) -> None:
    standin.set_version(91800)
    with pytest.raises(PlanMismatchError, match=r"rows\[x_d0=32\]: the plan is for cuDNN"):
        rows.execute(*place(SOME[1]).arguments, 32)


# Launching


@pytest.mark.parametrize("policy", ["direct"])
def test_policies_and_counts_are_of_all_members(rows: ModuleType, place: Place) -> None:
    for case in SOME[:3]:
        rows.execute(*place(case).arguments, *key_of(case))
    assert rows.launch_stats()["direct"] == 3
    rows.set_launch_policy("record")
    operands = [place(case) for case in SOME[:3]]
    for _ in range(4):
        for one in operands:
            one.fill(keep_scalars=True)
            rows.execute(*one.arguments, *key_of(one.case))
            one.check()
    stats = rows.launch_stats()
    assert stats["recorded"] >= 3
    assert 0 < stats["hit_rate"] < 1
    assert stats["reason"] == ""
    assert {rows.launch_path(*key_of(case)) for case in SOME[:3]} == {"record"}
    assert rows.launch_path(4096) == "direct"
    assert rows.launch_nodes(16) != []
    with pytest.raises(ValueError, match="policy"):
        rows.set_launch_policy("fast")


def test_captured(grid: ModuleType, place: Place, standin: Standin) -> None:
    stream = standin.stream()
    operands = [place(case) for case in GRID]
    for one in operands:
        grid.execute(*one.arguments, *key_of(one.case), stream=stream)
        one.check()
        one.fill()
    standin.begin_capture(stream)
    for one in operands:
        grid.execute(*one.arguments, *key_of(one.case), stream=stream)
    status, graph = standin.end_capture_graph(stream)
    assert status == 0
    for one in operands:
        one.check_untouched()
    standin.replay(graph, stream)
    for one in operands:
        one.check()
    standin.destroy_stream(stream)


def test_what_a_module_says_of_itself(rows: ModuleType, grid: ModuleType) -> None:
    assert rows.KEY == ("x_d0",)
    assert grid.KEY == ("B", "S")
    assert list(rows.MEMBERS) == [(0,), (16,), (32,), (64,), (4096,)]
    assert families.family("rows").fingerprint == rows.FINGERPRINT
    assert "x_d0: x.d0" in rows.__doc__
    assert not hasattr(rows, "execute_uids")
