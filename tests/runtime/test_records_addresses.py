"""Launch records and addresses: less aligned ones, the same one twice, sets that come again."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.launch_recording import Moving, counts, launched
from support.standin import Standin

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Move = Callable[..., Moving]

pytestmark = pytest.mark.parametrize("policy", ["record"], indirect=True)


@pytest.fixture
def moving(move: Move) -> Moving:
    return move("thd")


def execute(module: ModuleType, moving: Moving, **options: Any) -> None:
    """Call with the addresses as they are and fresh contents."""
    moving.operands.fill(keep_scalars=True)
    module.execute(**moving.operands.by_name, **options)
    moving.operands.check()


def less_aligned() -> list[int]:
    return [operand.uid for operand in CASES["thd"].operands if operand.alignment <= 8]


@pytest.mark.parametrize("uid", less_aligned())
def test_an_address_below_the_proof_goes_direct(load: Load, moving: Moving, uid: int) -> None:
    module = load("thd")
    for _ in range(3):
        moving.move()
        execute(module, moving)
    assert counts(module) == (1, 1, 1)
    for number in range(1, 20):
        moving.move()
        moving.operands.addresses[uid] += 8
        execute(module, moving)
        assert module.launch_path() == "direct"
        moving.operands.addresses[uid] += 8
        execute(module, moving)
        assert counts(module) == (1 + number, 1, 1 + number)
    assert module.launch_stats()["recorded"] == 1
    assert module.launch_stats()["refused"] == 0


def test_calls_below_the_proof_do_not_count(load: Load, moving: Moving) -> None:
    module = load("thd")
    moving.move()
    moving.operands.addresses[less_aligned()[0]] += 8
    for _ in range(10):
        execute(module, moving)
    moving.move()
    execute(module, moving)
    assert counts(module) == (11, 0, 0)
    execute(module, moving)
    assert counts(module) == (11, 1, 0)


@pytest.mark.parametrize("name", ["thd", "parts"])
def test_workspace_below_the_proof_goes_direct(
    load: Load, move: Move, standin: Standin, name: str
) -> None:
    module = load(name)
    moving = move(name)
    block = standin.alloc(8192)
    for _ in range(2):
        execute(module, moving, workspace_ptr=block)
    for number in range(1, 10):
        moving.move()
        execute(module, moving, workspace_ptr=block + 128 + 256 * number)
        assert module.launch_path() == "direct"
        execute(module, moving, workspace_ptr=block + 256 * number)
        assert counts(module) == (1 + number, 1, number)
    standin.free(block)


@pytest.mark.parametrize("recorded_as_one", [True, False])
def test_two_operands_in_one_buffer(load: Load, moving: Moving, recorded_as_one: bool) -> None:
    module = load("thd")
    operands = moving.operands
    inputs = [operand.uid for operand in CASES["thd"].operands if operand.role == "input"]
    pairs = [(a, b) for a in inputs for b in inputs if a != b]

    def call(as_one: bool, pair: tuple[int, int]) -> None:
        moving.move()
        if as_one:
            source, target = pair
            operands.addresses[target] = operands.addresses[source]
            operands.values[target] = operands.values[source]
        module.execute(*operands.arguments)
        operands.check()

    for _ in range(2):
        call(recorded_as_one, pairs[0])
    for pair in pairs:
        call(not recorded_as_one, pair)
        call(recorded_as_one, pair)
    stats = module.launch_stats()
    assert (stats["direct"], stats["recorded"]) == (1, 1)


# Sets of addresses that come again


def patches(standin: Standin) -> int:
    sets = [f"cuGraphExec{kind}NodeSetParams" for kind in ("Kernel", "Memset", "Memcpy")]
    return sum(standin.calls(call) for call in sets)


@pytest.mark.parametrize("launch", ["split", "fork", "packed"])
@pytest.mark.parametrize("sets", [2, 5, 31])
def test_sets_that_come_again_are_patched_no_more(
    load: Load, move: Move, standin: Standin, launch: str, sets: int
) -> None:
    case = launched("parts", launch)
    module = load("parts")
    module.load_plan(case.plan)
    moving = move(case)
    places = []
    for _ in range(sets):
        moving.move()
        places.append(moving.operands.addresses)
    for turn in range(6):
        before = patches(standin)
        for number in range(sets):
            moving.operands.addresses = places[number * (turn + 1) % sets if turn > 3 else number]
            execute(module, moving)
        assert patches(standin) == before or turn < 3
    assert module.launch_stats()["recorded"] == 1
    assert module.launch_stats()["record_unchanged"] >= 3 * sets
    assert standin.live("exec") <= sets + 1


def test_many_sets_share_a_bounded_number_of_executables(
    load: Load, move: Move, standin: Standin
) -> None:
    """More sets than executables, in turn and at random, some of them often."""
    case = launched("thd", "split")
    module = load("thd")
    module.load_plan(case.plan)
    moving = move(case)
    places = []
    for _ in range(100):
        moving.move()
        places.append(moving.operands.addresses)
    choose = moving.random
    order = [*range(100), *range(100), *[choose.randrange(100) for _ in range(300)]]
    order += [min(choose.randrange(100), choose.randrange(100)) for _ in range(300)]
    for number in order:
        moving.operands.addresses = places[number]
        execute(module, moving)
    assert counts(module)[0] == 1
    assert standin.live("exec") <= 32
    module.close()
    assert standin.live("exec") == 0
