"""Chains: one call computes what the links' graphs compute in turn, by one launch."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support import chains
from support.cases import COUNT, edited_text
from support.chains import DIAMOND, NORM, PRODUCT, STRAIGHT, SUM, Tensors, Wired, link_case
from support.launch_recording import REASONS, counts, relaunched
from support.plan_sets import THERE, made_for, other_device
from support.standin import Standin

from cudnn_bindgen.codegen.read.chain import View
from cudnn_bindgen.runtime.errors import (
    BindingError,
    CudnnError,
    OperandError,
    PlanMismatchError,
    PlanNotLoadedError,
    StreamError,
    WorkspaceError,
)
from cudnn_bindgen.runtime.handle import release_workspaces
from runtime.test_threads import at_once

Serve = Callable[..., tuple[Any, Tensors]]


@pytest.fixture
def made(standin: Standin) -> Iterator[Serve]:
    """Serve a chain, and make buffers for its calls."""
    every: list[Any] = []

    def made(wired: Wired, policy: str = "record", seed: int = 0) -> tuple[Any, Tensors]:
        module = wired.serve()
        module.set_launch_policy(policy)
        tensors = Tensors(standin, wired, module, seed)
        every.extend([module, tensors])
        return module, tensors

    yield made
    for one in every:
        one.close()


@pytest.fixture(params=[DIAMOND, STRAIGHT], ids=["diamond", "straight"])
def wired(request: pytest.FixtureRequest) -> Wired:
    found: Wired = request.param
    return found


@pytest.fixture(params=["direct", "record"])
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def launches(standin: Standin) -> tuple[int, int]:
    return standin.calls("cudnnBackendExecute"), standin.calls("cuGraphLaunch")


def patches(standin: Standin) -> int:
    return standin.calls("cuGraphExecKernelNodeSetParams")


def test_values_are_those_of_the_links_in_turn(
    made: Serve, wired: Wired, policy: str, stream: int
) -> None:
    module, tensors = made(wired, policy)
    for place in (0, stream, 2):
        for _ in range(4):
            tensors.call(module, 3, stream=place)
            tensors.move()
    assert (module.launch_path() == "record") is (policy == "record")


def test_a_compiled_module_is_the_same(
    load: Callable[[str], ModuleType], standin: Standin, policy: str
) -> None:
    module = load(chains.MODULE)
    tensors = Tensors(standin, DIAMOND, module)
    tensors.call(module, 4)
    module.execute_uids({o.uid: a for o, a in zip(module.OPERANDS, tensors.arguments, strict=True)})
    tensors.check()
    assert [operand.uid for operand in module.OPERANDS] == list(range(1, 8))
    assert module.GRAPH["links"]["left"]["source"] == "product.plan"
    assert module.GRAPH["wires"]["right.A"] == "norm.Y"
    assert module.GRAPH["source"] == f"{chains.MODULE}.toml"
    tensors.close()


def test_one_call_is_one_launch(made: Serve, wired: Wired, standin: Standin) -> None:
    module, tensors = made(wired)
    tensors.call(module, 2)
    for _ in range(3):
        before = launches(standin)
        tensors.call(module)
        assert launches(standin) == (before[0], before[1] + 1)
    assert len(module.launch_nodes()) == 4


@pytest.mark.parametrize(("wired", "edges"), [(DIAMOND, 4), (STRAIGHT, 3)])
def test_links_that_do_not_wait_for_each_other_are_branches(
    made: Serve, wired: Wired, edges: int, standin: Standin
) -> None:
    module, tensors = made(wired)
    tensors.call(module, 3)
    assert counts(module) == (1, 2, 0)
    assert standin.calls("cuGraphAddDependencies") == edges


def test_links_that_share_nothing_are_roots(made: Serve, standin: Standin) -> None:
    module, tensors = made(Wired({"a": PRODUCT, "b": PRODUCT, "c": NORM}, {}))
    tensors.call(module, 3)
    assert counts(module) == (1, 2, 0)
    assert standin.calls("cuGraphAddDependencies") == 0
    # A lane of workspace for each: none is overwritten by another's.
    assert module.workspace_size() == 512 + 512 + 256


def test_only_nodes_whose_addresses_changed_are_patched(made: Serve, standin: Standin) -> None:
    module, tensors = made(DIAMOND)
    tensors.call(module, 3)
    for name, nodes in {"left_b": 1, "norm_w": 1, "x": 2, "sum_s": 1}.items():
        before = patches(standin)
        tensors.move(name)
        tensors.call(module)
        assert patches(standin) == before + nodes, name
        tensors.call(module, 2)
        assert patches(standin) == before + nodes, name


def test_the_callers_workspace(made: Serve, wired: Wired, policy: str, standin: Standin) -> None:
    module, tensors = made(wired, policy)
    size = module.workspace_size()
    blocks = [standin.alloc(size + 256) for _ in range(3)]
    for block in [*blocks, *blocks]:
        tensors.call(module, workspace_ptr=-(-block // 256) * 256)
    # Less aligned than records are proven for: direct, and right.
    tensors.call(module, workspace_ptr=-(-blocks[0] // 256) * 256 + 128)
    with pytest.raises(OperandError, match=r"workspace_ptr: expected a multiple of 128"):
        module.execute(*tensors.arguments, workspace_ptr=blocks[0] // 256 * 256 + 64)
    for block in blocks:
        standin.free(block)


def test_an_operand_is_a_view_of_what_a_link_writes(made: Serve, policy: str) -> None:
    """The reader begins behind the first two elements: three are written, then the buffer's own."""
    wide = link_case("wide", ["A"], ["C"], count=COUNT + 2, default=1.0)
    wired = Wired(
        {"wide": wide, "sum": SUM},
        {"sum.L": View("wide.C", 2), "sum.R": View("wide.C")},
        {"c": ["wide.C"]},
    )
    module, tensors = made(wired, policy)
    tensors.call(module, 3)
    tensors.move()
    tensors.call(module, 3)


def test_scalars_are_the_links_own_or_one(made: Serve) -> None:
    wires = {"b.X": "a.Y"}
    both = Wired({"a": NORM, "b": NORM}, wires)
    one = Wired({"a": NORM, "b": NORM}, wires, {"eps": ["a.eps", "b.eps"]})
    module, _ = made(both)
    assert [o.argument for o in module.OPERANDS if o.role == "scalar"] == ["a_eps", "b_eps"]
    module, tensors = made(one)
    assert [o.argument for o in module.OPERANDS if o.role == "scalar"] == ["eps"]
    tensors.call(module, 3)
    *addresses, _ = tensors.arguments
    tensors.fill()
    tensors.values["eps"] = [0.5]
    module.execute(*addresses)  # the default
    tensors.check()


@pytest.mark.parametrize("launch", ["host", "grid"])
def test_a_link_that_cannot_be_recorded(made: Serve, launch: str, standin: Standin) -> None:
    """The others get records of their own, and the stats say which link it was."""
    wired = DIAMOND.changed(left=relaunched(PRODUCT, launch))
    module, tensors = made(wired)
    tensors.call(module, 6)
    stats = module.launch_stats()
    assert counts(module) == (6, 0, 0)
    chain, _, link = stats["reason"].partition("; layer[left]: ")
    assert pytest.RaisesExc(Exception, match=REASONS[launch]).matches(Exception(chain))
    assert pytest.RaisesExc(Exception, match=REASONS[launch]).matches(Exception(link))
    before = launches(standin)
    tensors.call(module)
    assert launches(standin) == (before[0] + 1, before[1] + 3)
    assert module.launch_path() == "direct"
    with pytest.raises(BindingError, match="the launch cannot be recorded"):
        module.launch_nodes()
    module.set_launch_policy("direct")
    before = launches(standin)
    tensors.call(module)
    assert launches(standin) == (before[0] + 4, before[1])


def test_a_link_that_leaves_its_stream(made: Serve, policy: str, standin: Standin) -> None:
    wired = STRAIGHT.changed(sum=relaunched(SUM, "legacy"))
    module, tensors = made(wired, policy)
    tensors.call(module, 3)
    stream = standin.stream()
    tensors.fill()
    with pytest.raises(StreamError, match=r"layer\[sum\]"):
        module.execute(*tensors.arguments, stream=stream)
    standin.begin_capture(stream)
    with pytest.raises(StreamError, match=r"layer\[sum\]"):
        module.execute(*tensors.arguments, stream=stream, workspace_ptr=1 << 20)
    assert standin.captured_nodes(stream) == 0
    standin.end_capture(stream)
    tensors.check_untouched()  # no link ran
    standin.destroy_stream(stream)


def test_a_failing_link_is_named(made: Serve, standin: Standin) -> None:
    module, tensors = made(DIAMOND, "direct")
    tensors.call(module)
    standin.fail("cudnnBackendExecute", 2, status=3000)
    with pytest.raises(CudnnError, match=r"layer\[left\]"):
        module.execute(*tensors.arguments)
    tensors.call(module)


@pytest.mark.parametrize(
    "call", ["cuStreamUpdateCaptureDependencies", "cuStreamGetCaptureInfo", "cudnnBackendExecute"]
)
def test_what_fails_while_it_is_recorded(made: Serve, call: str, standin: Standin) -> None:
    module, tensors = made(DIAMOND)
    tensors.call(module)
    standin.fail(call, 2, status=900 if call.startswith("cuda") else 3000)
    tensors.call(module, 4)
    assert module.launch_stats()["reason"] == "the launch failed while it was captured"


def test_captured_graphs_own_all_plans(
    made: Serve, wired: Wired, policy: str, standin: Standin, stream: int
) -> None:
    module, tensors = made(wired, policy)
    tensors.call(module, 3, stream=stream)
    standin.begin_capture(stream)
    module.execute(*tensors.arguments, stream=stream)
    status, graph = standin.end_capture_graph(stream)
    assert status == 0
    executable = standin.instantiate(graph)
    module.close()
    release_workspaces()
    for _ in range(3):
        tensors.fill()
        standin.launch(executable, stream)
        tensors.check()
    assert standin.live("plan") == 4
    standin.destroy_graph(graph)
    standin.destroy_exec(executable)
    module.close()
    assert standin.live("plan") == 0


def test_a_first_call_in_a_capture_needs_a_workspace(
    made: Serve, standin: Standin, stream: int
) -> None:
    module, tensors = made(DIAMOND)
    standin.begin_capture(stream)
    with pytest.raises(WorkspaceError):
        module.execute(*tensors.arguments, stream=stream)
    standin.end_capture(stream)


def test_plans_of_one_link_are_replaced(made: Serve, standin: Standin) -> None:
    module, tensors = made(DIAMOND)
    tensors.call(module, 3)
    assert standin.live("exec") == 1
    plans = standin.live("plan")
    # A plan of the same graph for both links that have it; records of the chain go first.
    module.load_plan(PRODUCT.plan)
    assert standin.live("exec") == 0
    assert standin.live("plan") == plans
    tensors.call(module, 3)
    assert standin.live("exec") == 1
    with pytest.raises(PlanMismatchError):
        module.load_plan(edited_text(NORM, 91800))
    with pytest.raises(OperandError, match="plan: expected one of a graph among"):
        module.load_plan(link_case("other", ["A", "B", "D"], ["C"]).plan)
    tensors.call(module)


def test_closed_and_opened(made: Serve, wired: Wired, standin: Standin) -> None:
    module, tensors = made(wired)
    tensors.call(module, 3)
    module.close()
    assert (standin.live("plan"), standin.live("exec")) == (0, 0)
    assert not module.is_open
    with pytest.raises(PlanNotLoadedError, match=r"^layer\[norm\]: no plan is loaded"):
        module.execute(*tensors.arguments)
    with pytest.raises(PlanNotLoadedError):
        module.workspace_size()
    with pytest.raises(PlanNotLoadedError):
        module.launch_nodes()
    module.load_plan()
    assert module.is_open
    tensors.call(module, 3)


def test_a_link_without_plans_gets_them_later(made: Serve) -> None:
    bare = dataclasses.replace(NORM, graph=chains.structure_of(NORM))
    wired = Wired({**DIAMOND.links, "norm": bare}, DIAMOND.wires, DIAMOND.operands)
    module, tensors = made(wired)
    with pytest.raises(PlanNotLoadedError, match=r"layer\[norm\].* call load_plan"):
        module.execute(*tensors.arguments)
    module.load_plan(NORM.plan)
    tensors.call(module, 3)


def test_each_device_has_its_own_plans(made: Serve, standin: Standin) -> None:
    module, tensors = made(STRAIGHT)
    tensors.call(module, 3)
    other_device(standin)
    with standin.context(1), pytest.raises(PlanMismatchError, match=r"layer\[norm\]"):
        module.execute(*tensors.arguments)
    with standin.context(1):
        for case in (NORM, PRODUCT, SUM):
            module.load_plan(made_for(case, THERE))
        there = Tensors(standin, STRAIGHT, module)
        there.call(module, 4)
        there.close()
        release_workspaces()


def test_an_empty_chain_computes_nothing(made: Serve, standin: Standin) -> None:
    empty = link_case("empty", ["A"], ["C"], count=0, default=1.0)
    module, _ = made(Wired({"a": empty, "b": empty}, {"b.A": "a.C"}))
    module.execute(0, 0)
    assert launches(standin) == (0, 0)


def test_threads_share_a_chain(made: Serve, wired: Wired, policy: str, standin: Standin) -> None:
    module, _ = made(wired, policy)
    each = [Tensors(standin, wired, module, seed) for seed in range(4)]
    at_once(4, lambda number: each[number].call(module, 20, stream=2))
    for one in each:
        one.close()


@pytest.mark.parametrize("changes", [["close"], ["load left, right"], ["load norm", "load sum"]])
def test_no_plan_is_destroyed_under_a_call(
    made: Serve, changes: list[str], standin: Standin
) -> None:
    module, _ = made(DIAMOND)
    each = [Tensors(standin, DIAMOND, module, seed) for seed in range(3)]
    standin.set_execute_delay(0.0005)
    files = {"load left, right": PRODUCT.plan, "load norm": NORM.plan, "load sum": SUM.plan}
    stop = threading.Event()

    def work(number: int) -> int:
        if number < len(changes):
            try:
                for _ in range(20):
                    if changes[number] == "close":
                        module.close()
                    module.load_plan(files.get(changes[number]))
            finally:
                stop.set()
            return 1
        done = 0
        while not stop.is_set() or not done:
            try:
                each[number - len(changes)].call(module, stream=2)
                done += 1
            except PlanNotLoadedError:
                assert changes == ["close"]
        return done

    assert all(at_once(len(changes) + 3, work))
    for one in each:
        one.close()
