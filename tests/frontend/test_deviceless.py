"""Plans for GPUs that are not here: with the real cuDNN where it is installed, else with a fake."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from support.documents import TESTS, add_graph, to_json

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.bundle import replace_plan, write_bundle
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.evidence import read_evidence
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.deviceless import (
    Answer,
    Cudnn,
    Task,
    find_cudnn,
    find_stub,
    make_plans,
    own_cudnn,
)
from cudnn_bindgen.frontend.planning.gpus import Gpu, device_properties, find_gpus
from cudnn_bindgen.frontend.planning.options import PlanOptions

PLANS = TESTS / "data" / "plans" / "cudnn-9.19-sm90"
GRAPHS = ("matmul_bias_relu", "sdpa_dense", "sdpa_thd")
FOUR = "a100,h100,b200,rtx5090"
FAKE = """
import os, time
__version__ = "1.32.0"
class cudnnGraphNotSupportedError(Exception): pass
class pygraph:
    def __init__(self, **options): pass
def create_device_properties(text):
    exec(os.environ["FAKE"])
def backend_version():
    return 92700
"""


@pytest.fixture(scope="module")
def cudnn() -> Cudnn:
    """A cuDNN that plans on this machine."""
    if importlib.util.find_spec("cudnn") is None:  # imported, it would load the real cuDNN
        pytest.skip("nvidia-cudnn-frontend is not installed")
    found = own_cudnn()
    if found is None:
        pytest.skip("nvidia-cudnn-jit-cu13 is not installed")
    return found


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `emit` and `build` keep plans."""
    folder = tmp_path.parent / f"{tmp_path.name}-cache"
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", str(folder))
    return folder / "plans"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a module in the place of NVIDIA's frontend, in planners too, that runs a text."""

    def fake(text: str) -> None:
        (tmp_path / "fake").mkdir(exist_ok=True)
        (tmp_path / "fake" / "cudnn.py").write_text(FAKE)
        monkeypatch.setenv("FAKE", text)
        monkeypatch.setattr(sys, "path", [str(tmp_path / "fake"), *sys.path])

    return fake


def gpus(*wanted: str) -> list[Gpu]:
    return list(find_gpus(wanted))


def task(data: bytes = to_json(add_graph()), gpu: str = "h200", seconds: int = 300) -> Task:
    return Task(graph=data, file="a.json", properties=device_properties(gpu), seconds=seconds)


def problem(answer: Answer | PlanError) -> str:
    assert isinstance(answer, PlanError)
    return str(answer)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def libraries() -> set[str]:
    """What of cuDNN and the driver this process has loaded: perhaps another test's stand-in."""
    words = Path("/proc/self/maps").read_text().split()
    return {word for word in words if "libcudnn" in word or "driver_stub" in word}


def test_plans_of_each_graph_for_four_gpus(cudnn: Cudnn) -> None:
    devices = gpus(FOUR)
    files = {name: (PLANS / f"{name}.json").read_bytes() for name in GRAPHS}
    tasks = {
        (name, gpu.name): Task(graph=data, file=name, properties=gpu.properties)
        for name, data in files.items()
        for gpu in devices
    }
    before = libraries()
    made = make_plans(tasks, cudnn)
    assert list(made) == list(tasks)
    for (name, gpu), answer in made.items():
        assert isinstance(answer, Answer), answer
        graph = read_graph(answer.plan)
        device = next(one for one in devices if one.name == gpu)
        assert graph.plan is not None
        assert (graph.plan.sm, graph.plan.sm_count) == (device.sm, device.sm_count)
        assert fingerprint(graph) == fingerprint(read_graph(files[name]))
        evidence = read_evidence(graph.plan.evidence)
        assert evidence is not None
        assert evidence.properties == device.properties
    # Of this process nothing has become another.
    assert libraries() == before


def test_the_same_bytes_but_for_what_cudnn_leaves_in_its_launch_parameters(cudnn: Cudnn) -> None:
    data = (PLANS / "sdpa_thd.json").read_bytes()
    one, two = (make_plans({0: task(data)}, cudnn)[0] for _ in range(2))
    assert isinstance(one, Answer)
    assert isinstance(two, Answer)
    # A canary of the C library: 7 bytes, of which base64 makes 10 characters.
    different = [i for i, (a, b) in enumerate(zip(one.plan, two.plan, strict=True)) if a != b]
    assert not different or different[-1] - different[0] < 12


def test_what_cudnn_refuses_is_said_of_that_graph_alone(cudnn: Cudnn) -> None:
    tasks = {
        "bad": task((TESTS / "data" / "structure-v2" / "zero_dim.json").read_bytes()),
        "good": task((PLANS / "matmul_bias_relu.json").read_bytes()),
    }
    made = make_plans(tasks, cudnn)
    assert "cuDNN does not take the graph: frontend" in problem(made["bad"])
    assert isinstance(made["good"], Answer)


def test_from_a_structure_to_a_module_for_four_gpus(
    cudnn: Cudnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PLANS / "sdpa_dense.json", "attn.json")
    done = run("plan", "attn.json", "--for", FOUR)
    assert (done.exit_code, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert [line.partition(" with")[0] for line in lines] == [
        f"attn.bundle: SM {sm}" for sm in (80, 90, 100, 120)
    ]
    done = run("emit", "attn.json", "--for", "h100", "--for", "sm_90:114", "-q")
    assert (done.exit_code, done.output) == (0, "")
    text = Path("attn.pyx").read_text()
    assert text.startswith("# @generated")
    assert "# From attn.json\n" in text
    assert "Plan for SM 90, 114 multiprocessors" in text
    assert "Plan for SM 90, 132 multiprocessors" in text
    done = run("plan", "attn.bundle", "--for", "h100", "-o", "one.plan")
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    said = run("show", "one.plan")
    assert "never run" in said.stdout


def test_a_graph_that_fails_does_not_lose_the_others(
    cudnn: Cudnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PLANS / "matmul_bias_relu.json", "good.json")
    shutil.copy(TESTS / "data" / "structure-v2" / "zero_dim.json", "bad.json")
    done = run("plan", "bad.json", "good.json", "--for", "h100", "-d", "out")
    assert done.exit_code == 2
    assert "bad.json: h100: cuDNN does not take the graph" in done.stderr
    assert [path.name for path in Path("out").iterdir()] == ["good.plan"]
    done = run("emit", "bad.json", "--for", "h100")
    assert done.exit_code == 2
    assert not list(tmp_path.glob("bad.p*"))


def test_emit_takes_the_same_plan_again(
    cudnn: Cudnn, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PLANS / "sdpa_thd.json", "attn.json")
    arguments = ("emit", "attn.json", "--for", "h100,b200", "-o", "attn.pyx")
    assert run(*arguments).exit_code == 0
    text, kept = Path("attn.pyx").read_bytes(), sorted(cache.glob("*.plan"))
    assert len(kept) == 2
    # No planner starts: it would say that it cannot.
    monkeypatch.setattr("cudnn_bindgen.frontend.planning.deviceless.find_stub", lambda: "none")
    assert run(*arguments).exit_code == 0
    assert Path("attn.pyx").read_bytes() == text
    kept[0].write_bytes(b"damaged")
    assert run(*arguments).exit_code == 2


def test_another_cudnn_of_the_same_version_is_asked_anew(
    fake: Callable[[str], None], tmp_path: Path
) -> None:
    """The small package and the full one begin with the same library."""
    from cudnn_bindgen.frontend.planning.deviceless import _describe_planner

    fake("")
    for name in ("small", "full"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libcudnn.so.9").write_text("9.27")
    small, full = (find_cudnn(tmp_path / name) for name in ("small", "full"))
    assert _describe_planner(small) == _describe_planner(full)
    (tmp_path / "full" / "libcudnn_engines_precompiled.so.9").write_text("large")
    assert _describe_planner(small) != _describe_planner(full)


def test_gradients_of_an_operator_are_planned_too(
    cudnn: Cudnn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sdpa_causal", "sdpa_backward"):
        shutil.copy(TESTS / "data" / "frontends" / "1.32.0" / f"{name}.json", tmp_path)
    arguments = ("--torch", "--backward", "sdpa_backward.json", "--for", "h100", "-q")
    done = run("emit", "sdpa_causal.json", *arguments)
    assert (done.exit_code, done.output) == (0, "")
    for name in ("sdpa_causal", "sdpa_backward"):
        assert "Plan for SM 90, 132" in Path(f"{name}.pyx").read_text()


def test_a_plan_in_a_bundle_is_replaced(cudnn: Cudnn) -> None:
    data = (PLANS / "matmul_bias_relu.json").read_bytes()
    made = make_plans({gpu: task(data, gpu) for gpu in ("h100", "b200")}, cudnn)
    plans = [answer.plan for answer in made.values() if isinstance(answer, Answer)]
    bundle = write_bundle([("", plan) for plan in plans])
    pinned = msgspec.structs.replace(task(data), options=PlanOptions(("FALLBACK",)))
    other = make_plans({0: pinned}, cudnn)[0]
    assert isinstance(other, Answer)
    assert other.plan not in plans
    replaced = replace_plan(bundle, other.plan)
    assert replaced == write_bundle([("", other.plan), ("", plans[1])]) != bundle


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("os.abort()", "planning ended with SIGABRT"),
        ("os.kill(os.getpid(), 11)", "planning ended with SIGSEGV"),
        ("time.sleep(60)", "planning took longer than 1 s"),
        ("os._exit(0)", "planning ended without a word"),
        ("raise MemoryError('none left')", "; MemoryError: none left"),
        ("raise RuntimeError('no such SM')", "does not take the device properties: frontend"),
        ("print('Could not load symbol cuFoo'); os.abort()", "; Could not load symbol cuFoo"),
    ],
)
def test_a_plan_that_ends_its_process(
    fake: Callable[[str], None], text: str, expected: str
) -> None:
    """It is one graph's error: the others are answered by the same process."""
    fake(text)
    made = make_plans({number: task(seconds=1) for number in range(2)}, None, jobs=1)
    for answer in made.values():
        assert expected in problem(answer)
        assert problem(answer).startswith("a.json: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(tmp_path: Path, fake: Callable[[str], None], number: signal.Signals) -> None:
    fake(f"open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w'); time.sleep(600)")
    (tmp_path / "a.json").write_bytes(to_json(add_graph()))

    def running() -> list[Path]:
        return [path for path in tmp_path.iterdir() if path.name.isdigit()]

    with subprocess.Popen(
        [sys.executable, "-m", "cudnn_bindgen.cli", "plan", "a.json", "--for", FOUR, "-j", "2"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "fake")},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while len(running()) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) != 0
    for path in running():
        # Gone, or a zombie that nobody waits for in this container.
        status = Path("/proc", path.name, "stat")
        assert not status.exists() or status.read_text().split()[2] == "Z"
    assert not list(tmp_path.glob("*.bundle"))


def test_a_frontend_without_cudnn(fake: Callable[[str], None], tmp_path: Path) -> None:
    fake("")
    with (tmp_path / "fake" / "cudnn.py").open("a") as file:
        file.write("def backend_version(): raise RuntimeError('no cudnnGetVersion')\n")
    said = problem(make_plans({0: task()}, None)[0])
    assert said.startswith("a.json: expected cuDNN, got none: ")
    assert "cudnn-bindgen[plan]" in said


@pytest.mark.parametrize(
    "place",
    [
        "",
        "lib",
        "nvidia/cudnn/lib",
        "nvidia/cudnn_jit/lib",
        "lib/python3.12/site-packages/nvidia/cudnn/lib",
    ],
)
def test_where_a_cudnn_is_found(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.raises(PlanError, match=r"--cudnn: expected one libcudnn\.so\.9 in .* got 0"):
        find_cudnn(tmp_path)
    (folder / "libcudnn.so.9").touch()
    assert find_cudnn(tmp_path) == Cudnn(folder)


def test_a_cudnn_that_does_not_load(
    fake: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake("")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/others")
    with (tmp_path / "fake" / "cudnn.py").open("a") as file:
        file.write("print(os.environ['LD_LIBRARY_PATH'])\n")
    (tmp_path / "libcudnn.so.9").write_text("none")
    said = problem(make_plans({0: task()}, Cudnn(tmp_path, (tmp_path / "beside",)))[0])
    assert f"; {tmp_path}:{tmp_path}/beside:/others" in said
    assert "cuDNN does not load: " in said
    assert "file too short" in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan", "a.json", "--for", "h1000"], "--for: expected the name of a GPU, got h1000"),
        (["plan", "a.json", "--cudnn", "."], "--cudnn: expected --for, got none"),
        (["plan", "a.json", "--only-cudnn"], "--only-cudnn: expected --for, got none"),
        (["plan", "a.json", "--for", "h100", "--cudnn", "."], "--cudnn: expected one libcudnn"),
        (["plan", "a.json", "--for", "h100", "--autotune"], "--autotune: expected no --for"),
        (["plan", "a.json", "b.json", "-o", "x.plan"], "--output: expected one GRAPH"),
        (["plan", "a.json", "--for", FOUR, "-o", "x.plan"], "--output: expected a bundle for"),
        (["plan", "a.json", "./a.json", "../a.json", "--for", "h100"], "expected one GRAPH for it"),
        (["emit", "a.json", "--for", "h100", "--check"], "--check: expected no --for"),
        (["build", "none.json", "--for", "h100", "-d", "."], "none.json: No such file"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_bytes(to_json(add_graph()))
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert expected in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


STUB = """
import ctypes, sys
from cudnn_bindgen.frontend.planning.planner import _describe
import msgspec
from cudnn_bindgen.frontend.planning.device_properties import DeviceProperties
from cudnn_bindgen.frontend.planning.driver import read_here
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(7)
cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value)
given = msgspec.json.decode(sys.argv[2], type=DeviceProperties)
_describe(given, sys.argv[1])
print(read_here() == given)
function = ctypes.c_void_p()
print(cuda.cuGetProcAddress_v2(b"cuDeviceGetCount", ctypes.byref(function), 13000, 0, None))
ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function.value)(ctypes.addressof(count))
print(count.value)
for name in (b"cuMemAlloc_v2", b"cuFoo", b"cuMemAlloc_v2"):
    cuda.cuGetProcAddress_v2(name, ctypes.byref(function), 13000, 0, None)
    print(ctypes.CFUNCTYPE(ctypes.c_int)(function.value)(), flush=True)
"""


def test_the_stub_describes_a_device_and_names_what_it_lacks() -> None:
    stub = str(find_stub())
    done = subprocess.run(
        [sys.executable, "-c", STUB, stub, device_properties("b200")],
        env=os.environ | {"LD_PRELOAD": stub},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["0", "True", "0", "1", "801", "801", "801"], done.stderr
    lacks = "cudnn-bindgen's stub of the CUDA driver has no"
    assert done.stderr.splitlines() == [
        f"{lacks} cuMemAlloc_v2",
        f"{lacks} cuFoo",
        f"{lacks} cuMemAlloc_v2",
    ]
