"""Modules take plans of their own graph only, whatever a structure cannot say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.identities import CAP, NONE, decode, structure_of

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.frontend.file_cache import ENVIRONMENT
from cudnn_bindgen.runtime.errors import PlanMismatchError

SOURCES = {"soft_cap": CAP.read_bytes(), "no_cap": structure_of(decode(NONE))}


@pytest.fixture
def module(
    request: pytest.FixtureRequest, builds: Any, load: Callable[[str], ModuleType]
) -> ModuleType:
    name = request.param
    with builds.lock(name):
        if not extension_path(builds.directory, name).exists():
            files = render(bind(read_graph(SOURCES[name])), name, f"{name}.plan")
            builds.compile(name, files)
    return load(name)


@pytest.mark.parametrize("module", SOURCES, indirect=True)
def test_load_plan_takes_plans_of_the_modules_graph(module: ModuleType) -> None:
    own, other = (CAP, NONE) if module.__name__ == "soft_cap" else (NONE, CAP)
    with pytest.raises(PlanMismatchError, match="graph"):
        module.load_plan(other)
    # It is of the graph, and for another cuDNN than the stand-in's.
    with pytest.raises(PlanMismatchError, match="cuDNN 92800"):
        module.load_plan(own)


@pytest.mark.parametrize("module", ["soft_cap"], indirect=True)
def test_a_missing_plan_of_a_score_modifier_is_never_made(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    for given in ((), (CAP,)):
        with pytest.raises(PlanError, match="got one with a score_mod") as caught:
            module.load_plan(*given, on_missing="plan")
        assert "write graph.serialize() there" in str(caught.value)
    assert not list(tmp_path.rglob("*.plan"))
