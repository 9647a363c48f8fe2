"""Plans made without the GPU, for its properties: they run on it, and give the bits of its own.

CUDNN_BINDGEN_PLANS names a folder of plans that another machine made: NAME.plan for the names here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import graphs  # noqa: E402  (on the path since conftest)
from planned import THEIR_WORDS, make_planned_operands  # noqa: E402
from test_plan import NAMES, engine_of, said_of  # noqa: E402

import cudnn_bindgen  # noqa: E402
from cudnn_bindgen.codegen.errors import PlanError  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.frontend.planning.deviceless import (  # noqa: E402
    Answer,
    Task,
    make_plans,
    own_cudnn,
)
from cudnn_bindgen.frontend.planning.driver import read_here  # noqa: E402
from cudnn_bindgen.frontend.planning.gpus import device_properties  # noqa: E402
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_input  # noqa: E402
from cudnn_bindgen.frontend.planning.options import PlanOptions  # noqa: E402
from cudnn_bindgen.frontend.planning.wanted import waits_for_peers  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

LARGEST = 1 << 30  # bytes
ELSEWHERE = os.environ.get("CUDNN_BINDGEN_PLANS")


@pytest.fixture(scope="session")
def made(frontend):
    """Plans of all files, by place and name; a PlanError or None where there is none."""
    properties = read_here().text
    tasks = {
        name: Task(graph=path.read_bytes(), constants=said_of(path), properties=properties)
        for name, path in NAMES.items()
    }
    here = make_plans(tasks, own_cudnn())
    found = {"here": {n: a.plan if isinstance(a, Answer) else a for n, a in here.items()}}
    if ELSEWHERE:
        paths = {name: Path(ELSEWHERE, f"{name}.plan") for name in NAMES}
        found["elsewhere"] = {n: p.read_bytes() for n, p in paths.items() if p.exists()}
    return found


def outcome(plan, operands):
    """Return the bytes of all operands after the plan ran on poisoned outputs."""
    tensors = graphs.clone(operands)
    binding = cudnn_bindgen.load(plan, name="planned")
    try:
        graphs.poison(binding.OPERANDS, tensors)
        binding.execute(*graphs.arguments(binding.OPERANDS, tensors))
        torch.cuda.synchronize()
    finally:
        binding.close()
    return {uid: graphs.storage(tensor) for uid, tensor in tensors.items()}


def same(one, other):
    return all(torch.equal(one[uid], other[uid]) for uid in one)


@pytest.mark.parametrize("place", ["here", *(["elsewhere"] * bool(ELSEWHERE))])
@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_a_plan_of_the_same_engine_made_on_the_gpu(name, place, made):
    plan = made[place].get(name)
    if not isinstance(plan, bytes):
        if plan is None or plan.problem.startswith(THEIR_WORDS):
            pytest.skip(str(plan or "it was not planned there"))
        raise plan
    path = NAMES[name]
    graph = read_graph(plan)
    if waits_for_peers(graph.nodes):
        pytest.skip("it waits for other GPUs")
    engine, knobs = engine_of(plan)
    pinned = PlanOptions(engine=engine, knobs=knobs)
    try:
        own = make_plan(read_input(path.read_bytes()), said_of(path), pinned)
    except PlanError as error:
        if "expected a knob_type" not in error.problem:
            raise
        pytest.skip(str(error))  # the frontend has no word for a knob that cuDNN chose
    assert engine_of(own) == (engine, knobs)
    operands = make_planned_operands(plan, torch.Generator("cuda").manual_seed(1))
    if sum(graphs.storage(tensor).numel() for tensor in operands.values()) > LARGEST:
        pytest.skip("its operands, several times, leave other tests no memory")
    expected = outcome(own, operands)
    if not same(expected, outcome(own, operands)):
        pytest.skip("two runs of the plan made on the GPU differ in their bits")
    assert same(expected, outcome(plan, operands))


def test_this_process_keeps_its_own_driver(made, frontend):
    """It plans for a GPU that is not here, and then executes here."""
    name = "planned_cudnn_9_19_sm90_matmul_bias_relu"
    task = Task(graph=NAMES[name].read_bytes(), properties=device_properties("b200"))
    answer = make_plans({name: task}, own_cudnn())[name]
    assert isinstance(answer, Answer), answer
    assert read_graph(answer.plan).plan.sm == 100
    maps = Path("/proc/self/maps").read_text()
    assert "libcuda.so" in maps
    assert "driver_stub" not in maps
    plan = made["here"][name]
    operands = make_planned_operands(plan, torch.Generator("cuda").manual_seed(2))
    assert same(outcome(plan, operands), outcome(plan, operands))
