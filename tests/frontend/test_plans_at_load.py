"""load_plan(on_missing="plan") of a module: what the frontend plans is executed; no GPU needed.

The frontend is made up and its plans are the stand-in's; everything between them is real.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import ubjson
from support.cases import CASES
from support.fake_frontend import Enum, Tensor
from support.plan_process import Planned, Planning
from support.standin import Standin

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.file_cache import ENVIRONMENT
from cudnn_bindgen.frontend.planning import frontend as loading

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]

NORM = CASES["norm"]
STRUCTURE = {
    key: value
    for key, value in ubjson.loadb(NORM.plan).items()
    if key in ("json_version", "context", "nodes", "tensors")
}


class Norm(Planned):
    """The graph of that module, whose plan the stand-in executes."""

    def layernorm(self, **options: Any) -> tuple[Tensor, ...]:
        return Tensor(), Tensor(), Tensor()

    def serialize(self) -> list[int]:
        super().serialize()
        return list(NORM.plan)


class Norms(Planning):
    """A frontend that has it."""

    def __init__(self) -> None:
        super().__init__(STRUCTURE)
        self.norm_forward_phase = Enum("TRAINING", "INFERENCE")

    def pygraph(self, **options: Any) -> Any:
        graph = Norm(self)
        self.graphs.add(graph)
        return graph


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    return tmp_path / "plans"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Norms:
    found = Norms()
    monkeypatch.setitem(sys.modules, "cudnn", found)
    return found


@pytest.fixture
def module(load: Load) -> Iterator[ModuleType]:
    found = load("norm")
    yield found
    found.close()


def test_it_is_planned_once_and_executed(
    module: ModuleType, place: Place, fake: Norms, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = place("norm")
    module.load_plan(on_missing="plan")
    module.execute(*operands.arguments)
    operands.check()
    assert fake.planned == 1
    (file,) = cache.glob("*.plan")
    # The same but for the evidence of how it was chosen.
    assert read_graph(file.read_bytes()).plan.text == read_graph(NORM.plan).plan.text
    # From the cache, and nobody needs the frontend for that.
    module.close()
    monkeypatch.delitem(sys.modules, "cudnn")
    monkeypatch.setattr(loading.importlib.metadata, "version", lambda name: fake.__version__)
    monkeypatch.setattr(loading.importlib, "import_module", lambda name: pytest.fail("loaded"))
    operands = place("norm")
    module.load_plan(on_missing="plan")
    module.execute(*operands.arguments)
    operands.check()


def test_a_plan_that_is_at_hand_is_taken(module: ModuleType, fake: Norms, cache: Path) -> None:
    module.load_plan(NORM.plan, on_missing="plan")
    assert fake.planned == 0 and not cache.exists()


def test_what_is_wrong_is_told_and_the_next_call_works(
    module: ModuleType, place: Place, standin: Standin, fake: Norms
) -> None:
    fake.cudnn = 92700
    with pytest.raises(PlanError, match=r"got one that calls 9\.27\.0"):
        module.load_plan(on_missing="plan")
    fake.cudnn = None
    standin.set_device_sm(0, 8, 0)
    with pytest.raises(PlanError, match=r"expected a plan for SM 80 with 132 .* got one for SM 90"):
        module.load_plan(on_missing="plan")
    standin.set_device_sm(0, 9, 0)
    operands = place("norm")
    module.load_plan(on_missing="plan")
    module.execute(*operands.arguments)
    operands.check()
