"""Plans that were chosen by measuring: complete evidence, the fastest, the frontend's bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from click.testing import CliRunner  # noqa: E402

from cudnn_bindgen.cli import main  # noqa: E402
from cudnn_bindgen.codegen.errors import PlanError  # noqa: E402
from cudnn_bindgen.codegen.model.evidence import read_engine, read_evidence  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.frontend.planning.autotune import Session  # noqa: E402
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_input  # noqa: E402
from cudnn_bindgen.frontend.planning.options import PlanOptions  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

DATA = Path(__file__).resolve().parents[1] / "data"
PRODUCT = DATA / "plans/cudnn-9.19-sm90/matmul_bias_relu.json"
# What autotuning is asked of each graph. Convolutions have up to a hundred fallbacks.
MODES = {
    "matmul_bias_relu": ("A", "FALLBACK"),
    "conv_bias_relu": ("A",),
    "sdpa_inference": ("A", "FALLBACK"),
}


def dump(name):
    if name == "matmul_bias_relu":
        return PRODUCT.read_bytes()
    return graphs.structure_text(graphs.BUILDERS[name]()).encode()


def evidence_of(plan):
    found = read_evidence(read_graph(plan).plan.evidence)
    assert found is not None
    return found


def chosen_of(evidence):
    [chosen] = [item for item in evidence.candidates if item.rank == evidence.chosen]
    return chosen


@pytest.fixture(scope="session")
def tuned(frontend):
    """The plan file of each graph; or the reason to skip it as text."""
    import cudnn

    found = {}
    for name, modes in MODES.items():
        try:
            structure = read_input(dump(name))
        except cudnn.cudnnGraphNotSupportedError as error:
            found[name] = f"cuDNN does not serve this graph here: {error}"
            continue
        found[name] = make_plan(structure, options=PlanOptions(modes, autotune=True))
    return found


@pytest.fixture(scope="session")
def tuned_cases(tuned, frontend, make_case, tmp_path_factory):
    """A built module for each plan, with the frontend's own graph of the same file."""
    directory = tmp_path_factory.mktemp("tuned")
    files = {}
    for name, plan in tuned.items():
        if isinstance(plan, bytes):
            files[f"tuned_{name}"] = directory / f"{name}.plan"
            files[f"tuned_{name}"].write_bytes(plan)
    assert graphs.build_modules(files, directory) == {}
    generator = torch.Generator("cuda").manual_seed(0)
    cases = {}
    for module, path in files.items():
        plan = path.read_bytes()
        reference = graphs.reference_graph(plan, frontend)  # it deserializes, evidence and all
        cases[path.stem] = make_case(module, directory, plan, reference, frontend, generator)
    return cases


@pytest.fixture(params=MODES)
def plan(request, tuned):
    if isinstance(tuned[request.param], str):
        pytest.skip(tuned[request.param])
    return tuned[request.param]


@pytest.fixture
def product(tuned):
    return read_input(PRODUCT.read_bytes())


def test_the_evidence_is_complete(plan):
    evidence, info = evidence_of(plan), read_graph(plan).plan
    print(evidence)
    assert (evidence.method, evidence.gpu) == ("autotune", torch.cuda.get_device_name())
    assert (evidence.cudnn, evidence.sm) == (info.cudnn_version, info.sm)
    count = torch.cuda.get_device_properties(0).multi_processor_count
    assert evidence.sm_count in (0, count)
    assert evidence.timing.sets >= 2 and evidence.timing.bytes > 0
    for item in evidence.candidates:
        if item.outcome == "agrees":
            assert item.agreement <= 1 and item.workspace >= 0 and item.engine >= 0
            assert 0.2 < item.microseconds < 1e6 and item.spread >= 0
        else:
            assert item.reason and item.microseconds is None


def test_the_fastest_is_in_the_file(plan):
    evidence = evidence_of(plan)
    chosen = chosen_of(evidence)
    assert read_engine(read_graph(plan).plan.engine) == (chosen.engine, chosen.knobs)
    timed = [item for item in evidence.candidates if item.outcome == "agrees"]
    fastest = min(timed, key=lambda item: item.microseconds)
    # Only a tie may keep it from being the fastest.
    assert chosen.outcome == "agrees"
    ahead = chosen.microseconds - fastest.microseconds
    assert ahead <= max(chosen.spread, fastest.spread)


@pytest.mark.parametrize("name", MODES)
def test_its_module_gives_the_frontends_bytes(name, tuned, tuned_cases):
    if isinstance(tuned[name], str):
        pytest.skip(tuned[name])
    case = tuned_cases[name]
    try:
        case.verify()
    finally:
        case.kept.clear()


def test_a_limit_of_workspace(product, frontend):
    try:
        frugal = make_plan(product, options=PlanOptions(max_workspace=0, autotune=True))
    except PlanError as error:
        pytest.skip(f"no plan without workspace: {error}")
    assert graphs.reference_graph(frugal, frontend).get_workspace_size() == 0
    evidence = evidence_of(frugal)
    assert {item.workspace for item in evidence.candidates if item.outcome == "agrees"} == {0}
    assert evidence.options.max_workspace == 0


def tune_with(monkeypatch, product, spoil):
    """Autotune a product of which the second plan that runs is executed by `spoil`."""
    execute, seen = Session.execute, []

    def executed(self, index, addresses, workspace):
        seen.extend([index] if index not in seen else [])
        if len(seen) > 1 and index == seen[1]:
            spoil(lambda: execute(self, index, addresses, workspace))
        else:
            execute(self, index, addresses, workspace)

    monkeypatch.setattr(Session, "execute", executed)
    evidence = evidence_of(make_plan(product, options=PlanOptions(autotune=True)))
    if len(seen) < 2:
        pytest.skip("cuDNN has one plan for the graph")
    return evidence, next(item for item in evidence.candidates if item.rank == seen[1])


def test_a_plan_that_writes_nothing_differs(monkeypatch, product):
    evidence, spoilt = tune_with(monkeypatch, product, lambda run: None)
    assert (spoilt.outcome, spoilt.microseconds) == ("differs", None)
    assert "unwritten" in spoilt.reason
    assert evidence.chosen != spoilt.rank


def test_a_plan_that_cannot_be_captured_is_passed_over(monkeypatch, product):
    def refuse(run):
        if torch.cuda.is_current_stream_capturing():
            raise PlanError("not inside of a capture")
        run()

    evidence, stuck = tune_with(monkeypatch, product, refuse)
    assert (stuck.outcome, stuck.reason) == ("not capturable", "not inside of a capture")
    assert evidence.chosen != stuck.rank
    # Those after it are captured and timed as if nothing had been.
    assert chosen_of(evidence).microseconds is not None


def test_the_command(product, tmp_path):
    target = tmp_path / "m.plan"
    result = CliRunner().invoke(main, ["plan", str(PRODUCT), "--autotune", "-o", str(target)])
    assert result.exit_code == 0, result.output
    engine = chosen_of(evidence_of(target.read_bytes())).engine
    row = next(line.split() for line in result.stderr.splitlines() if "chosen" in line.split())
    assert str(engine) in row
    assert f", engine {engine}" in result.stderr.splitlines()[-1]
