"""Plans of families: loaded for one member, for all of them, of several devices, or made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.cases import EMPTY, Case, edited
from support.families import BARE, GRID, ROWS, case_of
from support.plan_sets import HERE, THERE, Kind, Sets, fields, made_for, other_device
from support.standin import Standin

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.runtime.errors import OperandError, PlanMismatchError, PlanNotLoadedError
from runtime.test_families_calls import SOME, key_of

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]

OTHER = {"pass_by_values": {"900": {"index": 3, "value": "44FA0000"}}}
"""Fields of a plan that computes something else."""


@pytest.fixture
def rows(load: Load) -> ModuleType:
    return load("rows")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int], Kind]]:
    """What was asked of planning, which makes the plan of the member that it is asked for."""
    calls: list[tuple[str, list[int], Kind]] = []

    def plan_maker(source: bytes, uids: list[int]) -> Callable[..., dict[str, Any]]:
        graph = read_graph(source)
        shapes = {tensor.uid: tensor.dim for tensor in graph.tensors}
        [case] = [
            case
            for case in [*ROWS, *BARE]
            if {a.uid: a.dim for a in case.operands}.items() <= shapes.items()
            and len(case.binding.arguments) == len(uids)
        ]

        def make(*kind: int) -> dict[str, Any]:
            calls.append((case.name, uids, kind))  # type: ignore[arg-type]
            return fields(made_for(case, kind))  # type: ignore[arg-type]

        return make

    planning = ModuleType("cudnn_bindgen.frontend.planning.missing")
    planning.__dict__["plan_maker"] = plan_maker
    monkeypatch.setitem(sys.modules, planning.__name__, planning)
    return calls


def check(module: ModuleType, place: Place, case: Case) -> None:
    operands = place(case)
    module.execute(*operands.arguments, *key_of(case))
    operands.check()


def differs(module: ModuleType, place: Place, case: Case) -> bool:
    operands = place(case)
    module.execute(*operands.arguments, *key_of(case))
    try:
        operands.check()
    except AssertionError:
        return True
    return False


def test_a_plan_is_loaded_for_its_member(rows: ModuleType, place: Place) -> None:
    """The other members keep theirs."""
    case = SOME[1]
    rows.load_plan(edited(case, **OTHER))
    assert differs(rows, place, case)
    for other in (SOME[0], SOME[2]):
        check(rows, place, other)
    rows.load_plan()  # the embedded ones
    check(rows, place, case)


def test_a_plan_of_no_member(rows: ModuleType, place: Place) -> None:
    with pytest.raises(OperandError) as caught:
        rows.load_plan(GRID[0].plan)
    known = [member.fingerprint for member in rows.MEMBERS.values()]
    assert str(caught.value) == (
        f"plan: expected one of a graph among {', '.join(known)}, "
        f"got graph {GRID[0].binding.fingerprint}"
    )
    with pytest.raises(GraphFormatError):
        rows.load_plan(EMPTY)
    with pytest.raises(ValueError, match="on_missing"):
        rows.load_plan(on_missing="make")
    check(rows, place, SOME[0])


def test_a_plan_cannot_be_made_of_a_file_that_says_no_member(
    rows: ModuleType, place: Place, asked: list[Any]
) -> None:
    with pytest.raises(OperandError, match="plan: expected a file with plans of one member, got"):
        rows.load_plan(EMPTY, on_missing="plan")
    assert asked == []
    check(rows, place, SOME[0])


def test_each_device_gets_its_own_of_a_members_plans(
    rows: ModuleType, place: Place, standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_device(standin)
    case = SOME[0]
    plans = [made_for(case, HERE), made_for(case, THERE)]
    rows.load_plan(Sets(monkeypatch).file(*plans))
    for device in (0, 1):
        with standin.context(device):
            check(rows, place, case)
    with standin.context(1), pytest.raises(PlanMismatchError, match=r"rows\[x_d0=32\]"):
        check(rows, place, SOME[1])
    check(rows, place, SOME[1])


def test_missing_plans_are_made_for_each_member(
    rows: ModuleType, place: Place, standin: Standin, asked: list[Any]
) -> None:
    other_device(standin)
    rows.load_plan(on_missing="plan")
    assert asked == []  # the embedded ones are for this device
    with standin.context(1):
        for _ in range(2):
            for case in (SOME[2], SOME[0]):
                check(rows, place, case)
    uids = [argument.uid for argument in SOME[0].binding.arguments]
    assert asked == [(SOME[2].name, uids, THERE), (SOME[0].name, uids, THERE)]
    check(rows, place, SOME[1])


def test_a_family_of_structures(
    load: Load, place: Place, standin: Standin, asked: list[Any]
) -> None:
    module = load("bare")
    with pytest.raises(PlanNotLoadedError, match=r"bare\[x_d0=16\]"):
        module.execute(*place(BARE[0]).arguments, 16)
    with pytest.raises(PlanNotLoadedError, match="there is no plan to load"):
        module.load_plan()
    module.load_plan(BARE[1].plan)
    check(module, place, case_of("bare", 32))
    with pytest.raises(PlanNotLoadedError, match=r"bare\[x_d0=16\]"):
        module.execute(*place(BARE[0]).arguments, 16)
    module.load_plan(on_missing="plan")
    assert [name for name, _, _ in asked] == ["bare_0", "bare_1"]
    for case in BARE:
        check(module, place, case)


def test_close_closes_all(rows: ModuleType, place: Place, standin: Standin) -> None:
    for case in SOME:
        check(rows, place, case)
    assert standin.live("plan") == len(SOME)
    rows.close()
    assert standin.live("plan") == 0
    for case in SOME:
        with pytest.raises(PlanNotLoadedError):
            rows.execute(*place(case).arguments, *key_of(case))
    rows.load_plan(SOME[2].plan)
    check(rows, place, SOME[2])
    with pytest.raises(PlanNotLoadedError, match=r"rows\[x_d0=16\]"):
        rows.execute(*place(SOME[0]).arguments, 16)
