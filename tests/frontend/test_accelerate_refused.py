"""Graphs that cannot be accelerated, builds that fail, and what is left of them: nothing."""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import fake_pygraph
from support.cases import CASES, edited, edited_text
from support.documents import PLANS
from support.fake_pygraph import Graph, NotSupportedError, engine
from support.standin import Standin

import cudnn_bindgen
from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.frontend.accelerating import accelerate as room
from cudnn_bindgen.frontend.accelerating import loaded_modules
from cudnn_bindgen.frontend.accelerating.accelerated import Accelerated
from cudnn_bindgen.frontend.accelerating.errors import AccelerateError, AccelerateWarning
from cudnn_bindgen.frontend.file_cache import ENVIRONMENT

PLAN = CASES["bare_scalars"].plan


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", fake_pygraph.frontend())
    monkeypatch.setattr(loaded_modules, "_copies", {})
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "cache"))


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


def python_engine(graph: Graph) -> Graph:
    graph.selected_engine = engine("sdpa_fwd_prefill_sm100")
    return graph


def python_plan(graph: Graph) -> Graph:
    graph.plan = b"CUDNN_FE_PYPLAN\0{}"
    return graph


def damaged(graph: Graph) -> Graph:
    graph.plan = PLAN[:1000]
    return graph


REFUSED: list[tuple[Callable[[Graph], Any], str]] = [
    (structure, "has no plan: build it first"),
    (unbuilt, r"cannot be serialized \(Call build\(\) first\): build it first"),
    (unsupported, "no backend lowering"),
    (python_engine, "served by sdpa_fwd_prefill_sm100, the frontend's own engine"),
    (python_plan, "engine"),
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


# Builds


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_compiler_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CFLAGS", "--no-such-option")
    monkeypatch.setenv("CXXFLAGS", "--no-such-option")
    with pytest.raises(AccelerateError, match="no-such-option"):
        cudnn_bindgen.accelerate(Graph(PLAN))
    assert files(tmp_path) == []


def test_a_compiler_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CC", "CXX"):
        monkeypatch.setenv(name, "no-such-compiler")
    graph = Graph(PLAN)
    with pytest.warns(AccelerateWarning, match="no-such-compiler"):
        assert cudnn_bindgen.accelerate(graph, fallback=True) is graph
    assert files(tmp_path) == []


def test_no_space_for_what_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def write_files(directory: Path, texts: dict[str, str]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(room, "write_files", write_files)
    with pytest.raises(AccelerateError, match="No space left on device"):
        cudnn_bindgen.accelerate(Graph(PLAN))
    assert files(tmp_path) == []


def fake_compiler(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_module(source: Path, directory: Path) -> Path:
        path = extension_path(directory, source.stem)
        path.write_bytes(content)
        return path

    monkeypatch.setattr(room, "compile_module", compile_module)


def test_a_compiler_that_writes_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(b"nonsense", monkeypatch)
    with pytest.raises(AccelerateError, match="accelerate: "):
        cudnn_bindgen.accelerate(Graph(PLAN))


def test_the_module_of_another_graph_does_not_load(
    monkeypatch: pytest.MonkeyPatch, builds: Any
) -> None:
    fake_compiler(builds.path("scalars").read_bytes(), monkeypatch)
    with pytest.raises(AccelerateError, match="PyInit_graph_"):
        cudnn_bindgen.accelerate(Graph(PLAN))


# Plans that do not work here: one module serves all of them, and stays usable.


def test_plans_that_do_not_work_here(standin: Standin, tmp_path: Path) -> None:
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
        # Other bytes, so another plan; the same structure, so the same binary.
        second = cudnn_bindgen.accelerate(Graph(edited(case, more=1)))
    assert isinstance(first, Accelerated)
    assert first.module is not second.module
    assert len([name for name in files(tmp_path) if name.endswith(".so")]) == 1
    assert len(loaded_modules._copies) == 1
    first.module.close()
    second.module.close()
