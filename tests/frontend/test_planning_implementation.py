"""A file names an implementation of attention that is refused here: it is left to the frontend."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.documents import DATA, Document, to_json
from support.fake_frontend import (
    Candidate,
    Enum,
    Frontend,
    Graph,
    NotSupportedError,
    Tensor,
    installed,
)

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning import frontend as loading
from cudnn_bindgen.frontend.planning.compare import compare
from cudnn_bindgen.frontend.planning.implementation import leave_open, named
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_input
from cudnn_bindgen.frontend.planning.options import HEURISTICS, PlanOptions


def attention(implementation: str) -> Document:
    raw: Document = json.loads((DATA / "plans" / "cudnn-9.27-sm90" / "sdpa_thd.json").read_bytes())
    raw["nodes"][0]["implementation"] = implementation
    return raw


class Attention(Graph):
    """A graph whose attention can be built in one way."""

    frontend: Attending

    def sdpa(self, *, implementation: str = "AUTO", **options: Any) -> tuple[Tensor, Tensor]:
        self.called("sdpa", implementation)
        if implementation == self.frontend.refused and self.frontend.where == "sdpa":
            raise NotSupportedError("needs cuDNN 9.20")
        self.implementation = implementation
        return Tensor(), Tensor()

    def __repr__(self) -> str:
        raw = copy.deepcopy(self.frontend.raw)
        if self.implementation == self.frontend.refused:
            raw["nodes"][0]["implementation"] = self.implementation
        return to_json(raw).decode()

    def build_operation_graph(self) -> None:
        super().build_operation_graph()
        if self.implementation == self.frontend.refused and self.frontend.where == "cudnn":
            raise NotSupportedError("needs cuDNN 9.20")


@dataclass
class Attending(Frontend):
    """The frontend, refusing one implementation at one place."""

    refused: str = "UNIFIED"
    where: str = "sdpa"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.attention_implementation = Enum("AUTO", "UNIFIED", "COMPOSITE")
        self.data_type = Enum("BFLOAT16", "FLOAT", "INT32", "INT64")
        self.diagonal_alignment = Enum("TOP_LEFT", "BOTTOM_RIGHT")

    def pygraph(self, **options: Any) -> Any:
        graph = Attention(self)
        self.graphs.add(graph)
        return graph


def plan(
    monkeypatch: pytest.MonkeyPatch,
    fake: Frontend,
    implementation: str,
    options: PlanOptions = HEURISTICS,
) -> tuple[bytes, list[str]]:
    monkeypatch.setattr(loading, "importlib", installed(fake))
    told: list[str] = []
    structure = read_input(to_json(attention(implementation)))
    return make_plan(structure, options=options, tell=told.append), told


GOOD = [Candidate(8)]


@pytest.mark.parametrize("where", ["sdpa", "cudnn"])
def test_once_more_as_the_frontend_chooses(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    fake = Attending(attention("COMPOSITE"), GOOD, where=where)
    data, told = plan(monkeypatch, fake, "UNIFIED")
    assert read_graph(data).nodes[0].attributes["implementation"] == "COMPOSITE"
    assert [call for call in fake.calls if "sdpa" in call] == ["sdpa(UNIFIED)", "sdpa(AUTO)"]
    (line,) = told
    assert line.startswith("attention is UNIFIED in the file and COMPOSITE in the plan, because ")
    assert line.endswith("says: needs cuDNN 9.20")
    assert fake.live_handles == 0


def test_an_enum_of_a_newer_frontend(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Attending(attention("COMPOSITE"), GOOD)
    data, told = plan(monkeypatch, fake, "FUSED")
    assert read_graph(data).nodes[0].attributes["implementation"] == "COMPOSITE"
    assert "expected a attention_implementation of frontend 1.32.0, got FUSED" in told[0]


def test_as_in_the_file_where_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Attending(attention("COMPOSITE"), GOOD)
    _, told = plan(monkeypatch, fake, "COMPOSITE")
    assert [call for call in fake.calls if "sdpa" in call] == ["sdpa(COMPOSITE)"]
    assert told == []


def test_another_one_than_was_asked_for_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not refused, so nobody was told to choose."""
    fake = Attending(attention("COMPOSITE"), GOOD, refused="")
    with pytest.raises(PlanError, match="expected 'UNIFIED', got 'COMPOSITE'") as caught:
        plan(monkeypatch, fake, "UNIFIED")
    assert caught.value.path == "$.nodes[0].implementation"
    assert [call for call in fake.calls if "sdpa" in call] == ["sdpa(UNIFIED)"]


def test_it_is_the_only_difference_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    other = attention("COMPOSITE")
    other["nodes"][0]["right_bound"] = 1
    fake = Attending(other, GOOD)
    with pytest.raises(PlanError, match=r"needs cuDNN 9\.20; with another .* expected 0, got 1"):
        plan(monkeypatch, fake, "UNIFIED")
    assert fake.live_handles == 0


def test_both_reasons_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Attending(attention("COMPOSITE"), GOOD, refuses={"create_execution_plans": "no engine"})
    with pytest.raises(PlanError, match=r"needs cuDNN 9\.20; with another .*: no engine"):
        plan(monkeypatch, fake, "UNIFIED")
    assert fake.live_handles == 0


def test_one_reason_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Attending(attention("COMPOSITE"), GOOD, refuses={"validate": "no"})
    with pytest.raises(PlanError) as caught:
        plan(monkeypatch, fake, "COMPOSITE")
    assert caught.value.problem == "the rebuilt graph is not valid: frontend 1.32.0 says: no"
    assert fake.live_handles == 0


def test_the_users_limit_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Attending(attention("COMPOSITE"), [Candidate(8, 64)])
    with pytest.raises(PlanError, match=r"expected a workspace of at most 8 bytes, got 64$"):
        plan(monkeypatch, fake, "COMPOSITE", PlanOptions(max_workspace=8))
    assert [call for call in fake.calls if "sdpa" in call] == ["sdpa(COMPOSITE)"]


def test_the_command_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loading, "importlib", installed(Attending(attention("COMPOSITE"), GOOD)))
    Path("g.json").write_bytes(to_json(attention("UNIFIED")))
    result = CliRunner().invoke(main, ["plan", "g.json"])
    assert result.exit_code == 0, result.output
    said, written = result.output.splitlines()
    assert said.startswith("g.json: attention is UNIFIED in the file and COMPOSITE in the plan")
    assert written.startswith("g.plan: cuDNN ")


def test_what_a_file_leaves_open_may_become_anything() -> None:
    structure = read_input(to_json(attention("UNIFIED")))
    free = leave_open(structure)
    assert (named(structure), named(free)) == ("UNIFIED", "")
    assert list(compare(free, structure)) == []
    assert [item.path for item in compare(structure, free)] == ["$.nodes[0].implementation"]
    auto = read_input(to_json(attention("AUTO")))
    assert list(compare(auto, structure)) == list(compare(auto, free)) == []
    assert leave_open(free) == free
    raw = copy.deepcopy(attention("UNIFIED"))
    raw["nodes"][0]["tag"] = "FOLD"
    other = read_input(to_json(raw))
    assert leave_open(other) == other
