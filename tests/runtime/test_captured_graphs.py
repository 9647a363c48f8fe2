"""CUDA graphs that live longer than the plans whose calls they captured."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES
from support.standin import Standin

from cudnn_bindgen.runtime.errors import BindingError, DriverError
from cudnn_bindgen.runtime.handle import release_handles, release_workspaces

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]
NAMES = ["thd", "parts"]
"""With a workspace of cuDNN's; with parts that each launch copies from the host."""


@pytest.fixture
def served() -> str:
    return "loaded"


class Captured:
    """One call in a graph, which uses the runtime's workspace."""

    def __init__(self, standin: Standin, module: ModuleType, operands: Any, stream: int) -> None:
        self.standin, self.operands, self.stream = standin, operands, stream
        module.execute(*operands.arguments, stream=stream)
        standin.begin_capture(stream)
        module.execute(*operands.arguments, stream=stream)
        module.execute(*operands.arguments, stream=stream)
        status, self.graph = standin.end_capture_graph(stream)
        assert status == 0

    def replay(self, executable: int) -> None:
        self.operands.fill(keep_scalars=True)
        self.standin.launch(executable, self.stream)
        self.operands.check()


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


STEPS = ("close", "load", "release", "drop graph")


@pytest.mark.parametrize("order", list(itertools.permutations(STEPS)))
def test_replays_after_the_plan_is_gone(
    load_case: Load, place: Place, standin: Standin, stream: int, name: str, order: tuple[str, ...]
) -> None:
    module = load_case(name)
    captured = Captured(standin, module, place(name), stream)
    executable = standin.instantiate(captured.graph)
    for step in order:
        if step == "close":
            module.close()
        elif step == "load":
            module.load_plan(CASES[name].plan)
        elif step == "release":
            release_workspaces()
        else:
            standin.destroy_graph(captured.graph)
        captured.replay(executable)
    assert standin.live("object") == 2, "for the plan and for the workspace"
    standin.destroy_exec(executable)
    assert standin.live("object") == 0
    module.close()
    release_workspaces()
    assert standin.live("plan") == 0


def test_what_is_made_of_a_graph_keeps_it(
    load_case: Load, place: Place, standin: Standin, stream: int, name: str
) -> None:
    module = load_case(name)
    captured = Captured(standin, module, place(name), stream)
    clone = standin.clone(captured.graph)
    standin.destroy_graph(captured.graph)
    parent = standin.parent_of(clone)
    standin.destroy_graph(clone)
    executable = standin.instantiate(parent)
    standin.destroy_graph(parent)
    module.close()
    release_workspaces()
    captured.replay(executable)
    standin.destroy_exec(executable)
    module.close()
    release_workspaces()


def test_a_graph_owns_a_plan_once(
    load_case: Load, place: Place, standin: Standin, stream: int, name: str
) -> None:
    module, operands = load_case(name), place(name)
    module.execute(*operands.arguments, stream=stream)
    assert standin.calls("cuUserObjectCreate") == 0, "nothing outside of captures"
    for number in (1, 2, 3):
        standin.begin_capture(stream)
        for _ in range(5):
            module.execute(*operands.arguments, stream=stream)
        assert standin.end_capture(stream) == 0
        assert standin.calls("cuUserObjectCreate") == 2 * number
    assert standin.live("object") == 0


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_a_call_asks_once_whether_its_stream_captures(
    load_case: Load, place: Place, standin: Standin, name: str
) -> None:
    module, operands = load_case(name), place(name)
    module.execute(*operands.arguments)
    before = standin.calls("cuStreamIsCapturing")
    for _ in range(10):
        module.execute(*operands.arguments)
    assert standin.calls("cuStreamIsCapturing") == before + 10
    assert standin.calls("cuStreamGetCaptureInfo") == 0


def test_a_captured_plan_goes_at_the_next_call_that_may_destroy(
    load_case: Load, place: Place, standin: Standin, stream: int
) -> None:
    module, operands = load_case("thd"), place("thd")
    for number in range(20):
        captured = Captured(standin, module, operands, stream)
        module.close()
        assert standin.live("plan") == 1, f"round {number}: for the graph alone"
        standin.destroy_graph(captured.graph)
        assert standin.live("plan") == 1, "the driver's thread must not destroy it"
        module.load_plan(CASES["thd"].plan)
    assert standin.live("plan") == 1
    module.close()
    assert standin.live("plan") == 0


def test_a_broken_capture_keeps_nothing(
    load_case: Load, place: Place, standin: Standin, stream: int
) -> None:
    module, operands = load_case("thd"), place("thd")
    module.execute(*operands.arguments, stream=stream)
    standin.begin_capture(stream)
    module.execute(*operands.arguments, stream=stream)
    with pytest.raises(RuntimeError, match="cuStreamSynchronize"):
        standin.synchronize(stream)
    with pytest.raises(BindingError):
        module.execute(*operands.arguments, stream=stream)
    assert standin.end_capture(stream) == 901
    assert standin.live("object") == 0
    module.execute(*operands.arguments, stream=stream)


@pytest.mark.parametrize("call", ["cuUserObjectCreate", "cuGraphRetainUserObject"])
@pytest.mark.parametrize("nth", [1, 2])
def test_what_cannot_be_kept_is_not_captured(
    load_case: Load, place: Place, standin: Standin, stream: int, call: str, nth: int
) -> None:
    module, operands = load_case("thd"), place("thd")
    module.execute(*operands.arguments, stream=stream)
    standin.begin_capture(stream)
    standin.fail(call, nth, status=2)
    with pytest.raises(DriverError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        module.execute(*operands.arguments, stream=stream)
    assert standin.captured_nodes(stream) == 0
    module.execute(*operands.arguments, stream=stream)
    status, graph = standin.end_capture_graph(stream)
    assert status == 0
    module.close()
    operands.fill(keep_scalars=True)
    standin.replay(graph, stream)
    operands.check()
    module.close()
    assert (standin.live("object"), standin.live("plan")) == (0, 0)


def test_a_forked_process_leaves_its_parents_things_alone(
    load_case: Load, place: Place, standin: Standin, stream: int
) -> None:
    module, operands = load_case("thd"), place("thd")
    captured = Captured(standin, module, operands, stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest-xdist has threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            before = len(standin.log())
            with pytest.raises(BindingError, match="was forked from one that had initialised CUDA"):
                module.execute(*operands.arguments, stream=stream)
            module.close()
            release_handles()
            release_workspaces()
            code = 0 if len(standin.log()) == before else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    executable = standin.instantiate(captured.graph)
    standin.destroy_graph(captured.graph)
    module.close()
    captured.replay(executable)
    standin.destroy_exec(executable)
    module.close()
