"""Graphs that cannot be accelerated, builds that fail, and what is left of them: nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from support import fake_pygraph
from support.cases import CASES, edited, edited_text
from support.documents import PLANS, packed_kernels
from support.fake_pygraph import Graph, NotSupportedError, engine
from support.standin import Standin

import cudnn_bindgen
from cudnn_bindgen.codegen.model.kernel_plan import KernelLaunch, KernelPlan
from cudnn_bindgen.frontend.accelerating.accelerated import Accelerated
from cudnn_bindgen.frontend.accelerating.errors import AccelerateError, AccelerateWarning

PLAN = CASES["bare_scalars"].plan


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", fake_pygraph.frontend())


def structure(graph: Graph) -> Graph:
    graph.plan = (
        next(path for path in PLANS if path.stem == "sdpa_thd").with_suffix(".json").read_bytes()
    )
    return graph


def unbuilt(graph: Graph) -> Graph:
    graph.refusal = RuntimeError("Call build() first")
    return graph


def unsupported(graph: Graph) -> Graph:
    graph.refusal = NotSupportedError("the node has no backend lowering")
    return graph


def python_plan(graph: Graph) -> Graph:
    graph.selected_engine = engine("sdpa_fwd_prefill_sm100")
    graph.plan = b"CUDNN_FE_PYPLAN\0{}"
    return graph


def packed_operands(graph: Graph) -> Graph:
    launch = KernelLaunch(0, "k", (1, 1, 1), (1, 1, 1), 0, [], [bytes(8)], [(0, 0, 11, 0)], [])
    graph.plan = packed_kernels(KernelPlan(20517, "k", {}, 90, 132, [b"code"], [], [launch], 0))
    return graph


def damaged(graph: Graph) -> Graph:
    graph.plan = PLAN[:1000]
    return graph


REFUSED: list[tuple[Callable[[Graph], Any], str]] = [
    (structure, "has no plan: build it first"),
    (packed_operands, "expected operands without ragged offsets"),
    (unbuilt, r"cannot be serialized \(Call build\(\) first\): build it first"),
    (unsupported, "no backend lowering"),
    (
        python_plan,
        "served by sdpa_fwd_prefill_sm100, the frontend's own engine, which is not traced: ",
    ),
    (damaged, r"graph\.serialize\(\): "),
    (lambda graph: None, "expected a cudnn.pygraph, got an object of type NoneType"),
    (lambda graph: object(), "expected a cudnn.pygraph, got an object of type object"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_cannot_be_accelerated(make: Callable[[Graph], Any], message: str) -> None:
    graph = make(Graph(PLAN))
    with pytest.raises(AccelerateError, match=message) as caught:
        cudnn_bindgen.accelerate(graph)
    assert str(caught.value).startswith("accelerate: ")
    with pytest.warns(AccelerateWarning, match=message) as warned:
        assert cudnn_bindgen.accelerate(graph, fallback=True) is graph
    assert warned[0].filename == __file__


def test_a_process_without_the_frontend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cudnn")
    with pytest.raises(AccelerateError, match=r"expected a cudnn\.pygraph"):
        cudnn_bindgen.accelerate(Graph(PLAN))


def test_plans_that_do_not_work_here(standin: Standin) -> None:
    case = CASES["bare_scalars"]
    for wrong in (edited_text(case, version=90000), edited_text(case, sm=800)):
        with pytest.raises(AccelerateError, match="the plan is for"):
            cudnn_bindgen.accelerate(Graph(wrong))
    standin.fail("cudnnBackendFinalize", status=3000)
    with pytest.raises(AccelerateError, match="cudnnBackendFinalize"):
        cudnn_bindgen.accelerate(Graph(PLAN))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = cudnn_bindgen.accelerate(Graph(PLAN))
        second = cudnn_bindgen.accelerate(Graph(edited(case, more=1)))
    assert isinstance(first, Accelerated)
    assert first.module is not second.module
    first.module.close()
    second.module.close()
