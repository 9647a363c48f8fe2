"""Launch records: which plans get one, and that calls compute the same with it as without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.launch_recording import REASONS, RECORDABLE, Moving, call_times, counts, launched
from support.standin import LEAVING, Standin

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
Move = Callable[..., Moving]

pytestmark = pytest.mark.parametrize("policy", ["record"], indirect=True)


@pytest.fixture(params=["parts", "thd", "norm"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def streams(standin: Standin) -> Iterator[list[int]]:
    made = [standin.stream(), standin.stream(blocking=True), standin.stream(priority=-2)]
    yield [0, 1, 2, *made]
    for stream in made:
        standin.destroy_stream(stream)


@pytest.mark.parametrize("launch", RECORDABLE)
def test_any_addresses(
    load_launch: Any, move: Move, standin: Standin, streams: list[int], name: str, launch: str
) -> None:
    module = load_launch(name, launch)
    moving = move(launched(name, launch))
    for _ in range(2):
        moving.call(module)
    assert module.launch_path() == "record"
    assert module.launch_stats()["recorded"] == 1
    for _ in range(200):
        moving.call(module)
    assert counts(module) == (1, 1, 200)
    for _ in range(200):
        moving.call(module, streams)
    stats = module.launch_stats()
    assert stats["recorded"] == stats["direct"] == len(streams)
    assert (stats["refused"], stats["reason"]) == (0, "")
    assert standin.calls("cudnnBackendExecute") == 4 * len(streams), "one direct, three captured"


@pytest.mark.parametrize("launch", [launch for launch in REASONS if launch not in LEAVING])
def test_what_depends_on_more_than_addresses(
    load_launch: Any, move: Move, streams: list[int], name: str, launch: str
) -> None:
    module = load_launch(name, launch)
    moving = move(launched(name, launch))
    for _ in range(2):
        moving.call(module)
    stats = module.launch_stats()
    assert re.search(REASONS[launch], stats["reason"])
    assert (stats["recorded"], stats["refused"]) == (0, 1)
    for _ in range(150):
        moving.call(module, streams)
    assert module.launch_path() == "direct"
    stats = module.launch_stats()
    assert (stats["recorded"], stats["refused"], stats["direct"]) == (0, len(streams), 152)


def test_a_call_of_many_operands(load: Load, move: Move) -> None:
    """More than a call keeps on its stack; one of them is null."""
    module = load("wide")
    moving = move("wide")
    for _ in range(20):
        moving.call(module)
    assert counts(module) == (1, 1, 18)


@pytest.mark.parametrize("name", CASES)
def test_the_same_call_again(load_case: Load, place: Place, standin: Standin, name: str) -> None:
    module = load_case(name)
    call_times(module, place(name), 10)
    assert counts(module) == (1, 9, 0)
    sets = [f"cuGraphExec{kind}NodeSetParams" for kind in ("Kernel", "Memset", "Memcpy")]
    assert [standin.calls(call) for call in sets] == [0, 0, 0], "nothing changed"


def test_only_what_changed_is_patched(load_launch: Any, place: Place, standin: Standin) -> None:
    """Of a memset of the workspace and a chain of kernels, those with the moved address."""
    module = load_launch("norm", "split")
    operands = place(launched("norm", "split"))
    call_times(module, operands, 2)
    outputs = [argument for argument in operands.case.operands if argument.role == "output"]
    last = outputs[-1].uid
    home = operands.addresses[last]
    block = standin.alloc(128)
    for address in (block, home, block):
        operands.addresses[last] = address
        before = standin.calls("cuGraphExecKernelNodeSetParams")
        operands.fill(keep_scalars=True)
        module.execute(*operands.arguments)
        operands.check()
        assert standin.calls("cuGraphExecKernelNodeSetParams") == before + 2, "sum and scale"
    assert standin.calls("cuGraphExecMemsetNodeSetParams") == 0
    operands.addresses[last] = home
    standin.free(block)
