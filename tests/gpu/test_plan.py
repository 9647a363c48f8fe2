"""Every structure file that cuDNN supports here: planned, built, run as the frontend runs it.

Files that the frontend or cuDNN refuses are skipped with their reason; a graph that is rebuilt as
another one fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from planned import make_planned_operands, make_plans  # noqa: E402

from cudnn_bindgen.codegen.errors import PlanError  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.frontend.planning.constants import Constants  # noqa: E402
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_input  # noqa: E402
from cudnn_bindgen.frontend.planning.options import PlanOptions  # noqa: E402
from cudnn_bindgen.frontend.planning.wanted import waits_for_peers  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

DATA = Path(__file__).resolve().parents[1] / "data"
FILES = [
    *sorted((DATA / "structure-v1").glob("*.json")),
    *sorted((DATA / "structure-v2").glob("*.json")),
    *sorted((DATA / "frontends" / "1.32.0").glob("*.json")),
    *sorted((DATA / "plans").glob("cudnn-*/*.plan")),
]
# The same graphs as older frontends dump them: planned, which proves that they are, not run again.
OLDER = [
    path
    for version in ("1.18.0", "1.26.0")
    for path in sorted((DATA / "frontends" / version).glob("*.json"))
]


def names_of(paths):
    return {re.sub(r"\W", "_", f"planned_{path.parent.name}_{path.stem}"): path for path in paths}


NAMES = names_of(FILES)

# What is said of scalars that are constants of compile time, or look like ones.
SAID = {
    "scalar_of_compile_time": Constants(values=(("mul::IN_1", "0.5"),)),
    "scalar_unnamed": Constants(arguments=("mul::IN_1",)),
}
MATMUL = "planned_1_32_0_matmul_bias_relu"


def said_of(path):
    is_asked = path.stem == "scalar_of_compile_time" or path.parent.name < "1.29"
    return SAID.get(path.stem, Constants()) if is_asked else Constants()


@pytest.fixture(scope="session")
def plans(frontend):
    """Every plan by name; else the reason to skip it as text, or what went wrong as an error."""
    names = NAMES | names_of(OLDER)
    return make_plans({name: (path, said_of(path)) for name, path in names.items()})


@pytest.fixture(scope="session")
def planned_cases(plans, frontend, make_case, tmp_path_factory):
    """A built module for each plan, with the frontend's own graph of it."""

    class PlannedCase(make_case):
        def fresh(self):
            self.kept.append(make_planned_operands(self.plan, self.generator))
            return self.kept[-1]

    directory = tmp_path_factory.mktemp("planned")
    files = {}
    for name, plan in plans.items():
        if name in NAMES and isinstance(plan, bytes):
            files[name] = directory / f"{name}.plan"
            files[name].write_bytes(plan)
    failed = graphs.build_modules(files, directory)
    generator = torch.Generator("cuda").manual_seed(0)
    found = {name: RuntimeError(failure) for name, failure in failed.items()}
    for name in set(files) - set(failed):
        try:
            reference = graphs.reference_graph(plans[name], frontend)
            found[name] = PlannedCase(name, directory, plans[name], reference, frontend, generator)
        except Exception as error:
            found[name] = error
    return plans | found


@pytest.mark.parametrize("name", NAMES)
def test_a_planned_graph_gives_the_frontends_bytes(name, planned_cases):
    case = planned_cases[name]
    if isinstance(case, str):
        pytest.skip(case)
    if isinstance(case, Exception):
        raise case
    if waits_for_peers(read_graph(case.plan).nodes):
        pytest.skip("it waits for other GPUs")
    if any(item.role == "output" and 0 in item.dim for item in case.module.OPERANDS):
        pytest.skip("a graph without elements writes nothing to compare")
    try:
        case.verify()
    finally:
        case.kept.clear()


def test_most_of_them_are_planned(plans):
    """That all are skipped would be no success."""
    reasons = [plan for plan in plans.values() if isinstance(plan, str)]
    print("\n".join(sorted(reasons)))
    assert not [plan for plan in plans.values() if isinstance(plan, Exception)]
    assert sum(isinstance(plan, bytes) for plan in plans.values()) > len(plans) / 2


@pytest.fixture(scope="session")
def product(plans):
    """A plan of a matrix product, and its structure."""
    if not isinstance(plans[MATMUL], bytes):
        pytest.skip(str(plans[MATMUL]))
    return read_input(NAMES[MATMUL].read_bytes()), plans[MATMUL]


def engine_of(plan):
    """Return the number and the knobs of a plan's engine, as `show` prints them."""
    number, *knobs = read_graph(plan).plan.engine.removeprefix("engine ").split()
    return int(number), {knob: int(value) for knob, value in (k.split("=") for k in knobs)}


def test_an_engine_is_pinned(product):
    structure, plan = product
    engine, knobs = engine_of(plan)
    pinned = make_plan(structure, options=PlanOptions(engine=engine, knobs=knobs))
    assert engine_of(pinned) == (engine, knobs)


def test_an_engine_that_there_is_not(product):
    with pytest.raises(PlanError, match="cuDNN does not take engine 9999"):
        make_plan(product[0], options=PlanOptions(engine=9999))


def test_a_limit_of_workspace(product):
    structure, _ = product
    try:
        frugal = make_plan(structure, options=PlanOptions(max_workspace=0))
    except PlanError as error:
        pytest.skip(f"no plan without workspace: {error}")
    reference = graphs.reference_graph(frugal, graphs.frontend_handle())
    assert reference.get_workspace_size() == 0


def test_the_command(product, tmp_path):
    path = NAMES[MATMUL]
    command = [sys.executable, "-m", "cudnn_bindgen.cli", "plan", str(path), "-o", "m.plan"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = read_graph((tmp_path / "m.plan").read_bytes()).plan
    expected = read_graph(product[1]).plan
    assert (written.cudnn_version, written.sm) == (expected.cudnn_version, expected.sm)
    assert f"SM {written.sm}, engine " in done.stderr
