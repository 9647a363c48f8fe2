"""`cudnn_bindgen.load`: files of each kind → what serves their graph. Calls: tests/runtime."""

from __future__ import annotations

import gc
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.bundling import bundle, plan
from support.cases import CASES
from support.overriding import SYMBOLS, product_plan
from support.standin import Standin

import cudnn_bindgen
from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.module_data import ModuleData, pack, unpack
from cudnn_bindgen.runtime.errors import PlanNotLoadedError


def test_a_path_and_its_content_are_one_graph(tmp_path: Path) -> None:
    path = tmp_path / "my graph.plan"
    path.write_bytes(CASES["thd"].plan)
    by_path, by_content = cudnn_bindgen.load(path), cudnn_bindgen.load(path.read_bytes())
    assert by_path.FINGERPRINT == by_content.FINGERPRINT
    assert by_path.OPERANDS == by_content.OPERANDS
    assert by_path.GRAPH["source"] == "my graph.plan"
    assert (by_path.__name__, by_content.__name__) == ("my graph", "graph")
    assert cudnn_bindgen.load(path, name="attn").__name__ == "attn"


def test_a_bundle_brings_all_its_plans() -> None:
    loaded = cudnn_bindgen.load(bundle(plan(), plan(100, 148)))
    assert [row[:2] for row in loaded.GRAPH["plans"]] == [(90, 132), (100, 148)]


def test_a_structure_has_no_plan_until_one_is_loaded(
    standin: Standin, place: Callable[..., Any]
) -> None:
    case = CASES["norm"]
    loaded = cudnn_bindgen.load(case.graph)
    operands = place("norm")
    with pytest.raises(PlanNotLoadedError):
        loaded.execute(*operands.arguments)
    loaded.load_plan(case.plan)
    loaded.execute(*operands.arguments)
    operands.check()
    loaded.close()


def test_options_are_those_of_emit() -> None:
    loaded = cudnn_bindgen.load(product_plan(), symbols=SYMBOLS)
    assert "set" in dir(loaded.Overrides)
    with pytest.raises(EmitError, match="is_override_shape_enabled"):
        cudnn_bindgen.load(CASES["thd"].plan, symbols=SYMBOLS)
    with pytest.raises(AttributeError, match="takes no overrides"):
        cudnn_bindgen.load(CASES["thd"].plan).Overrides  # noqa: B018


def test_what_is_no_graph_is_refused_as_everywhere(tmp_path: Path) -> None:
    with pytest.raises(GraphFormatError):
        cudnn_bindgen.load(b"nonsense")
    with pytest.raises(FileNotFoundError):
        cudnn_bindgen.load(tmp_path / "missing.plan")


def test_who_forgets_a_graph_frees_its_plans(standin: Standin, place: Callable[..., Any]) -> None:
    loaded = cudnn_bindgen.load(CASES["thd"].plan)
    loaded.execute(*place("thd").arguments)
    assert standin.live("plan") == 1
    del loaded
    gc.collect()
    assert standin.live("plan") == 0


def test_it_has_all_that_a_module_has(load: Callable[[str], Any]) -> None:
    module = load("product")
    loaded = cudnn_bindgen.load(product_plan(), symbols=SYMBOLS)
    face = {name for name in dir(module) if not name.startswith("_") and name != "Binding"}
    assert face <= {*dir(loaded)}
    assert {*dir(module.Overrides)} == {*dir(loaded.Overrides)}
    for name in face:
        if inspect.isbuiltin(getattr(loaded, name)):
            assert getattr(loaded, name).__name__ == name


def test_data_survive_being_text() -> None:
    for case in CASES.values():
        [graph] = cudnn_bindgen.load(case.plan).data
        data = ModuleData(graph.fingerprint, (), (), (graph,))
        assert unpack(pack(data)) == data


def test_show_says_what_a_launch_consists_of(standin: Standin, tmp_path: Path) -> None:
    path = tmp_path / "graph.plan"
    path.write_bytes(CASES["thd"].plan)
    done = CliRunner().invoke(main, ["show", str(path), "--launch", "--json"])
    assert done.exit_code == 0, done.output
    nodes = cudnn_bindgen.load(path).launch_nodes()
    assert nodes
    assert json.loads(done.stdout)["launch"] == json.loads(json.dumps(nodes))
