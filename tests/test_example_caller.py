"""examples/cython_caller: built by the commands of its README, run on the stand-in libraries."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.cases import make_case, real
from support.operands import Operands
from support.standin import Standin

from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.runtime.errors import CudnnError, OperandError, PlanNotLoadedError

EXAMPLE = Path(__file__).parents[1] / "examples/cython_caller"
PLAN = "tests/data/plans/cudnn-9.19-sm90/matmul_bias_relu.plan"
CASE = make_case("dense", "dense", real("matmul_bias_relu"))
X, WEIGHT, BIAS, OUTPUT = (argument.uid for argument in CASE.binding.arguments)
DEPTH = 6


def commands() -> list[list[str]]:
    """Return the commands of the README's section on building."""
    section = (EXAMPLE / "README.md").read_text().split("## Build it")[1].split("\n## ")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    found = [shlex.split(line) for line in lines]
    return [line for line in found if line[0] in ("cudnn-bindgen", "python")]


@pytest.fixture(scope="session")
def built(builds: Any) -> Path:
    """The example's folder after its build, with the stand-in's plan in place of the real one."""
    directory: Path = builds.directory / "repository/examples/cython_caller"
    with builds.lock("cython_caller"):
        if extension_path(directory, "layers").exists():
            return directory
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("setup.py", "layers.pyx"):  # not what somebody may have built there
            shutil.copy(EXAMPLE / name, directory)
        plan = builds.directory / "repository" / PLAN
        plan.parent.mkdir(parents=True, exist_ok=True)
        plan.write_bytes(CASE.plan)
        programs = {
            "python": [sys.executable],
            "cudnn-bindgen": [sys.executable, "-m", "cudnn_bindgen.cli"],
        }
        for name, *arguments in commands():
            done = subprocess.run(
                [*programs[name], *arguments], cwd=directory, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture
def example(standin: Standin, built: Path, tmp_path: Path) -> Iterator[dict[str, ModuleType]]:
    """Copies of both modules, in the state of the first import."""
    loaded: dict[str, ModuleType] = {}
    for name in ("dense", "layers"):
        path = shutil.copy(extension_path(built, name), tmp_path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = loaded[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    loaded["dense"].set_launch_policy("direct")  # so that the executions can be counted
    yield loaded
    loaded["dense"].close()
    for name in loaded:
        sys.modules.pop(name, None)


@pytest.fixture
def operands(place: Any) -> list[Operands]:
    """A set for each layer."""
    return [place(CASE, seed) for seed in range(DEPTH)]


def network(layers: ModuleType, operands: list[Operands], **changed: int) -> Any:
    """Return the layers of these operands; `changed` moves the bias of one of them."""
    places = [[one.addresses[uid] for uid in (WEIGHT, BIAS, OUTPUT)] for one in operands]
    if changed:
        places[changed["layer"]][1] = changed["bias"]
    return layers.Layers(places)


def check(operands: list[Operands], depth: int = DEPTH) -> None:
    """Compare all buffers with what `depth` layers leave there."""
    value = operands[0].values[X]
    for number, one in enumerate(operands):
        if number >= depth:
            one.check_untouched()
            continue
        outputs = CASE.expected({**one.values, X: value})[OUTPUT]
        value = outputs + one.values[OUTPUT][len(outputs) :]
        one.values[OUTPUT] = value  # what lies there now
        one.check_untouched()


def test_the_readme_says_how_to_build() -> None:
    assert [line[0] for line in commands()] == ["cudnn-bindgen", "python"]
    assert f"../../{PLAN}" in commands()[0]
    assert (EXAMPLE / "../.." / PLAN).exists()


def test_each_layer_reads_what_the_one_before_wrote(
    example: dict[str, ModuleType], operands: list[Operands], standin: Standin
) -> None:
    stream = standin.stream()
    net = network(example["layers"], operands)
    assert net.forward(operands[0].addresses[X], stream=stream) is None
    check(operands)
    lines = [line.split() for line in standin.log("cudnnBackendExecute")]
    assert [line[4] for line in lines] == [hex(stream)] * DEPTH
    standin.destroy_stream(stream)


def test_the_first_error_ends_the_loop(
    example: dict[str, ModuleType], operands: list[Operands], standin: Standin
) -> None:
    layers, x = example["layers"], operands[0].addresses[X]
    for bias in (0, operands[3].addresses[BIAS] + 8):
        net = network(layers, operands, layer=3, bias=bias)
        with pytest.raises(OperandError, match=r"^in_1_ptr: "):
            net.forward(x)
        check(operands, depth=3)
    assert standin.calls("cudnnBackendExecute") == 2 * 3
    net = network(layers, operands)
    standin.fail("cudnnBackendExecute", nth=5, status=5000)
    with pytest.raises(CudnnError, match=r"^dense "):
        net.forward(x)
    check(operands, depth=4)
    example["dense"].close()
    with pytest.raises(PlanNotLoadedError):
        net.forward(x)
    example["dense"].load_plan()
    net.forward(x)
    check(operands)


def test_the_loop_does_not_hold_the_gil(
    example: dict[str, ModuleType], operands: list[Operands], standin: Standin
) -> None:
    """Another thread runs Python between two layers; with the GIL it would see none or all."""
    net = network(example["layers"], operands)
    standin.set_execute_delay(0.05)
    seen = set()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(net.forward, operands[0].addresses[X], 0, 2)
        while not future.done():
            seen.add(standin.calls("cudnnBackendExecute"))
            time.sleep(0.001)
        future.result()
    assert seen - {0, DEPTH}
    check(operands)
