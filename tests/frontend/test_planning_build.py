"""Which plan is taken, what is told when there is none, and the command; no GPU needed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.documents import Document, add_graph, document, node, scalar, tensor, to_json
from support.fake_frontend import Candidate, Frontend, installed

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.evidence import Candidate as Tried
from cudnn_bindgen.codegen.model.evidence import Evidence, Options, read_evidence
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning import frontend as loading
from cudnn_bindgen.frontend.planning.make_plan import describe, make_plan, read_input
from cudnn_bindgen.frontend.planning.options import HEURISTICS, PlanOptions, parse_knobs

GOOD = [Candidate(8, 64), Candidate(2, 16)]
FOREIGN = Candidate(20_500)


def graph() -> Document:
    """Return the graph of documents.py whose node the fake has a method for."""
    raw = add_graph()
    raw["nodes"][0] |= {"mode": "ADD", "name": "sum"}
    return raw


def planned(
    monkeypatch: pytest.MonkeyPatch, fake: Frontend, options: PlanOptions = HEURISTICS
) -> bytes:
    monkeypatch.setattr(loading, "importlib", installed(fake))
    return make_plan(read_input(to_json(fake.raw)), options=options)


def built(fake: Frontend) -> list[str]:
    return [call for call in fake.calls if "index" in call]


def test_the_first_plan_that_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Frontend(graph(), [Candidate(3, reason="too old"), *GOOD])
    data = planned(monkeypatch, fake)
    assert read_graph(data).plan is not None
    assert fake.calls == [
        "validate()",
        "build_operation_graph()",
        "create_execution_plans(A, FALLBACK)",
        "build_plan_at_index(0)",
        "build_plan_at_index(1)",
        "serialize(1)",
    ]
    assert fake.live_handles == 0
    assert describe(data).startswith("cuDNN 9.19.0, SM 90, engine ")


def test_a_frontend_without_a_ranked_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.26 and older know the number of plans only."""
    fake = Frontend(graph(), GOOD, has_list=False)
    planned(monkeypatch, fake)
    assert built(fake) == ["build_plan_at_index(0)"]


def test_kernels_of_the_frontend_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Frontend(graph(), [FOREIGN, Candidate(-1), *GOOD])
    planned(monkeypatch, fake)
    assert built(fake) == ["build_plan_at_index(2)"]
    fake = Frontend(graph(), [FOREIGN])
    with pytest.raises(PlanError, match="has no plan for the graph: it offers none of its own"):
        planned(monkeypatch, fake)
    assert fake.live_handles == 0


def test_a_graph_that_is_lowered_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the frontend has kernels of its own, it has no dump until it makes a key."""
    fake = Frontend(graph(), GOOD, is_lazy=True)
    planned(monkeypatch, fake)
    assert fake.calls[:3] == ["validate()", "key()", "build_operation_graph()"]


def test_the_reasons_of_all_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = ["no kernel", "needs\nmore", "third", "fourth"]
    fake = Frontend(graph(), [Candidate(n, reason=text) for n, text in enumerate(reasons)])
    with pytest.raises(PlanError) as caught:
        planned(monkeypatch, fake)
    says = "does not build: frontend 1.32.0 says:"
    assert caught.value.problem == (
        f"cuDNN has no plan for the graph: plan 0 {says} no kernel; plan 1 {says} needs more; "
        f"plan 2 {says} third; and 1 more"
    )


def test_a_limit_of_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Frontend(graph(), GOOD)
    planned(monkeypatch, fake, PlanOptions(max_workspace=32))
    assert "deselect_workspace_greater_than(32)" in fake.calls
    assert fake.calls[-1] == "serialize(1)"
    with pytest.raises(PlanError, match="expected a workspace of at most 8 bytes, got 64; plan 1"):
        planned(monkeypatch, Frontend(graph(), GOOD), PlanOptions(max_workspace=8))


def test_heuristics_are_asked_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Frontend(graph(), GOOD)
    planned(monkeypatch, fake, PlanOptions(heuristics=("B",)))
    assert "create_execution_plans(B)" in fake.calls
    with pytest.raises(PlanError, match=r"--heuristics: expected a heur_mode of .*, got FAST"):
        planned(monkeypatch, Frontend(graph(), GOOD), PlanOptions(heuristics=("FAST",)))


def test_a_pinned_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Frontend(graph())
    planned(monkeypatch, fake, PlanOptions(engine=7, knobs={"STAGES": 2}))
    assert fake.calls[2:] == [
        "create_execution_plan(7, {'STAGES': 2})",
        "build_plan_at_index(0)",
        "serialize(0)",
    ]
    with pytest.raises(PlanError, match=r"--knobs: expected a knob_type of .*, got SPEED"):
        planned(monkeypatch, Frontend(graph()), PlanOptions(engine=7, knobs={"SPEED": 2}))


def evidence_of(data: bytes) -> Evidence:
    plan = read_graph(data).plan
    assert plan is not None and plan.evidence is not None
    found = read_evidence(plan.evidence)
    assert found is not None
    return found


def test_the_file_says_how_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Frontend(graph(), [Candidate(3, reason="too old"), *GOOD])
    found = evidence_of(planned(monkeypatch, fake, PlanOptions(max_workspace=64)))
    assert (found.method, found.frontend, found.cudnn) == ("heuristics", "1.32.0", 91900)
    assert (found.sm, found.sm_count, found.chosen) == (90, 132, 1)
    assert found.options == Options(("A", "FALLBACK"), max_workspace=64)
    assert found.candidates == (
        Tried(0, "refused", reason="plan 0 does not build: frontend 1.32.0 says: too old"),
        Tried(1, "taken", 8, workspace=64),
    )
    assert (found.gpu, found.timing) == ("", None)
    pinned = PlanOptions(engine=7, knobs={"STAGES": 2})
    found = evidence_of(planned(monkeypatch, Frontend(graph()), pinned))
    assert (found.method, found.chosen) == ("engine", 0)
    assert found.options == Options((), 7, {"STAGES": 2})
    assert found.candidates == (Tried(0, "taken", 7, workspace=0),)


def test_what_is_serialized_must_be_a_plan_that_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Frontend(graph(), GOOD, in_plan=graph() | {"nodes": []})
    with pytest.raises(PlanError, match="cannot read the plan file: expected at least one node"):
        planned(monkeypatch, broken)
    assert broken.live_handles == 0


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("validate", "the rebuilt graph is not valid: frontend 1.32.0 says: no"),
        ("build_operation_graph", "cuDNN does not take the graph: frontend 1.32.0 says: no"),
        ("create_execution_plans", "cuDNN has no plan for the graph: frontend 1.32.0 says: no"),
        ("serialize", "cannot serialize the plan: frontend 1.32.0 says: no"),
    ],
)
def test_what_cudnn_says(monkeypatch: pytest.MonkeyPatch, method: str, problem: str) -> None:
    fake = Frontend(graph(), GOOD, refuses={method: "no"})
    with pytest.raises(PlanError) as caught:
        planned(monkeypatch, fake)
    assert caught.value.problem == problem
    assert fake.live_handles == 0


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match=r"expected a GPU that cuDNN can use, got none: .*NOT_INIT"):
        planned(monkeypatch, Frontend(graph(), GOOD, has_gpu=False))


def test_a_package_that_the_frontend_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_handle() -> object:
        raise ModuleNotFoundError("No module named 'cuda.bindings'")

    fake = Frontend(graph(), GOOD)
    fake.create_handle = create_handle  # type: ignore[method-assign]
    with pytest.raises(PlanError, match=r"got none: .* says: No module named 'cuda\.bindings'"):
        planned(monkeypatch, fake)


def test_another_graph_in_the_dump_or_in_the_plan_file(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = copy.deepcopy(graph())
    changed["tensors"][0]["stride"] = [5, 1]
    fake = Frontend(graph(), GOOD, in_plan=changed)
    with pytest.raises(PlanError, match=r"expected \[4, 1\], got \[5, 1\]") as caught:
        planned(monkeypatch, fake)
    assert caught.value.path == "$.tensors[0].stride"
    fake = Frontend(changed, GOOD)
    monkeypatch.setattr(loading, "importlib", installed(fake))
    with pytest.raises(PlanError, match="the rebuilt graph differs"):
        make_plan(read_input(to_json(graph())))
    assert "build_operation_graph()" not in fake.calls


# Loading


def load(monkeypatch: pytest.MonkeyPatch, found: Any) -> str:
    def import_module(name: str) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(loading, "importlib", SimpleNamespace(import_module=import_module))
    with pytest.raises(PlanError) as caught:
        loading.load_frontend()
    assert "pip install 'cudnn-bindgen[plan]'" in caught.value.hint
    return caught.value.problem


def test_no_frontend(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ImportError("No module named 'cudnn'")
    assert load(monkeypatch, missing) == (
        "cannot import nvidia-cudnn-frontend: No module named 'cudnn'"
    )
    assert load(monkeypatch, RuntimeError("no libcudnn")) == (
        "nvidia-cudnn-frontend does not load: no libcudnn"
    )
    old = SimpleNamespace(__version__="1.22.1", pygraph=object)
    assert load(monkeypatch, old) == "expected nvidia-cudnn-frontend 1.23 or newer, got 1.22.1"
    assert "got 0" in load(monkeypatch, SimpleNamespace())  # another package of that name


# Options


def test_knobs() -> None:
    assert parse_knobs("STAGES=2, TILE_SIZE=-3,") == {"STAGES": 2, "TILE_SIZE": -3}
    assert parse_knobs("") == {}
    for text in ("STAGES", "=2", "STAGES=two", "STAGES=" + "9" * 30, "STAGES=2.5"):
        with pytest.raises(PlanError, match="--knobs: expected KNOB=NUMBER"):
            parse_knobs(text)
    with pytest.raises(PlanError, match="--knobs: expected each knob once, got STAGES twice"):
        parse_knobs("STAGES=1,STAGES=1")


# The command


def run(monkeypatch: pytest.MonkeyPatch, fake: Frontend, arguments: Sequence[str | Path]) -> Result:
    monkeypatch.setattr(loading, "importlib", installed(fake))
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "g.json"
    path.write_bytes(to_json(graph()))
    return path


def test_the_command_writes_a_plan(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    fake = Frontend(graph(), GOOD)
    result = run(monkeypatch, fake, [file])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("g.plan: cuDNN 9.19.0, SM 90, engine ")
    data = Path("g.plan").read_bytes()
    assert data == planned(monkeypatch, fake)
    result = run(monkeypatch, fake, [file, "-o", "deep/er.plan", "--max-workspace", "32"])
    assert result.exit_code == 0, result.output
    assert Path("deep/er.plan").read_bytes() == planned(
        monkeypatch, fake, PlanOptions(max_workspace=32)
    )


def test_a_constant_is_asked_for_and_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    multiply = node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, name="m", mode="ADD")
    raw = document([multiply], [tensor(1, "x"), scalar(2, "m::IN_1"), tensor(3, "y")])
    path = tmp_path / "g.json"
    path.write_bytes(to_json(raw))
    result = run(monkeypatch, Frontend(raw, GOOD), [path, "-o", tmp_path / "o.plan"])
    assert result.exit_code == 2
    assert '--const "m::IN_1=VALUE"' in result.output and len(result.output.splitlines()) == 1
    assert not (tmp_path / "o.plan").exists()
    argument = ["--argument", "m::IN_1", "-o", tmp_path / "o.plan"]
    result = run(monkeypatch, Frontend(raw, GOOD), [path, *argument])
    assert result.exit_code == 0, result.output


def test_a_failure_is_one_line_and_no_file(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    fake = Frontend(graph(), refuses={"build_operation_graph": "no\n\x1b[31mway"})
    result = run(monkeypatch, fake, [file])
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
    assert result.output.startswith(f"error: {file}: cuDNN does not take the graph: ")
    assert "\x1b" not in result.output
    assert sorted(Path().iterdir()) == [Path("g.json")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["g.json", "-o", "g.json"], "--output: expected another file than GRAPH, got g.json"),
        (["g.json", "-o", "./g.json"], "--output: expected another file than GRAPH"),
        (["g.json", "--knobs", "STAGES=2"], "--knobs: expected --engine, got none"),
        (["g.json", "--autotune", "--engine", "7"], "--autotune: expected no --engine, which"),
        (["g.json", "--const", "x"], "--const: expected NAME=VALUE, got x"),
        (["none.json"], "none.json: No such file or directory"),
    ],
)
def test_what_the_command_refuses(
    monkeypatch: pytest.MonkeyPatch, file: Path, arguments: list[str], message: str
) -> None:
    before = file.read_bytes()
    result = run(monkeypatch, Frontend(graph(), GOOD), arguments)
    assert (result.exit_code, result.output.splitlines()[0][: 7 + len(message)]) == (
        *(2, f"error: {message}"),
    )
    assert file.read_bytes() == before


def test_warnings_are_printed(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    raw = graph()
    raw["nodes"].append(node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 9}, mode="ADD"))
    raw["tensors"].append(tensor(9, is_virtual=True))
    file.write_bytes(to_json(raw))
    result = run(monkeypatch, Frontend(raw, GOOD), [file])
    assert result.exit_code == 0 and result.output.startswith(f"warning: {file}: $.nodes[1]")
    result = run(monkeypatch, Frontend(raw, GOOD), [file, "--strict"])
    assert result.exit_code == 2
