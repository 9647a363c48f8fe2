"""The runtime's own workspace: one block for each stream, kept as long as work may use it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.standin import Standin

from cudnn_bindgen.runtime.handle import held_bytes, release_handles, release_workspaces

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
MEBIBYTE = 1 << 20


def blocks(standin: Standin) -> list[int]:
    """The workspace of each direct execution so far, and of those that were captured."""
    return [int(line.split()[-1], 16) for line in standin.log("cudnnBackendExecute")]


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_streams_have_blocks_of_their_own(
    load: Load, place: Place, standin: Standin, stream: int
) -> None:
    module = load("thd")
    operands = place("thd")
    for each in (0, stream, 0, 1, stream, 2, 2):
        module.execute(*operands.arguments, stream=each)
    a, b, *_, c = blocks(standin)
    assert len({a, b, c}) == 3
    assert blocks(standin) == [a, b, a, a, b, c, c], "0 and 1 are the same stream"
    assert held_bytes() == 3 * MEBIBYTE


def test_graphs_share_a_streams_block(load: Load, place: Place, standin: Standin) -> None:
    thd, parts = load("thd"), load("parts")
    operands, others = place("thd"), place("parts")
    for _ in range(2):
        thd.execute(*operands.arguments)
        parts.execute(*others.arguments)
        others.check()
        others.fill()
    a, b = blocks(standin)[:2]
    assert b == a + 512, "cuDNN's share lies after the frontend's"
    assert held_bytes() == MEBIBYTE


def test_a_block_grows_and_the_old_one_stays(load: Load, place: Place, standin: Standin) -> None:
    module = load("thd")
    operands = place("thd")
    module.execute(*operands.arguments)
    module.load_plan(CASES["thd_large"].plan)
    module.execute(*operands.arguments)
    module.load_plan()
    module.execute(*operands.arguments)
    small, large, again = blocks(standin)
    assert small != large == again
    assert held_bytes() == 3 * MEBIBYTE
    assert standin.log("cuMemFree") == [], "queued work may still use it"
    release_workspaces()
    assert {int(line.split()[1], 16) for line in standin.log("cuMemFree")} == {small, large}
    assert held_bytes() == 0
    module.execute(*operands.arguments)
    assert held_bytes() == MEBIBYTE


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_a_new_stream_at_an_old_address_has_its_own_block(
    load: Load, place: Place, standin: Standin
) -> None:
    module = load("thd")
    operands = place("thd")
    first = standin.stream()
    module.execute(*operands.arguments, stream=first)
    standin.destroy_stream(first)
    second = standin.stream()
    assert second == first
    module.execute(*operands.arguments, stream=second)
    old, new = blocks(standin)
    assert old != new
    assert standin.log("cuMemFree") == [], "the old stream's work may still run"
    standin.begin_capture(second)
    module.execute(*operands.arguments, stream=second)
    assert standin.end_capture(second) == 0
    assert blocks(standin)[-1] == new
    standin.destroy_stream(second)


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_per_thread_streams_have_blocks_of_their_own(
    load: Load, place: Place, standin: Standin, on_thread: Callable[..., Any]
) -> None:
    module = load("thd")
    operands = place("thd")
    for _ in range(2):
        on_thread(module.execute, *operands.arguments, 0, 2)
        module.execute(*operands.arguments, stream=2)
    there, here, there_again, here_again = blocks(standin)
    assert here == here_again
    assert len({here, there, there_again}) == 3, "another thread's stream, though its handle"


def test_releasing_all(load: Load, place: Place, standin: Standin, on_thread: Any) -> None:
    module = load("thd")
    operands = place("thd")
    before = standin.live("memory")
    for device in (0, 1):
        with standin.context(device):
            on_thread(module.execute, *operands.arguments, 0, 2)
            module.execute(*operands.arguments)
    assert standin.live("memory") == before + 4, "each new thread's stream has its own"
    context = standin.current_context()
    release_workspaces()
    release_handles()
    assert standin.live("memory") == before
    assert standin.live("handle") == 0
    assert standin.current_context() == context
    operands.fill()
    module.execute(*operands.arguments)
    operands.check()
