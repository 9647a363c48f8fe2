"""cudnn_bindgen_add_module: what it takes besides a graph, and what it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import TESTS

from cudnn_bindgen.build_systems import cmake as package
from cudnn_bindgen.codegen.compile import extension_path

FRONTEND = TESTS / "data/frontends/1.32.0"
PROJECT = """\
cmake_minimum_required(VERSION 3.20)
project(mymodel LANGUAGES C)
find_package(cudnn_bindgen REQUIRED)
cudnn_bindgen_add_module({})
"""


def configure(folder: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    """Configure a project with one module of these arguments."""
    if not shutil.which("cmake") or not shutil.which("make"):
        pytest.skip("cmake or make is not installed")
    folder.mkdir(exist_ok=True)
    (folder / "CMakeLists.txt").write_text(PROJECT.format(arguments))
    return cmake(
        *("-G", "Unix Makefiles", "-S", folder, "-B", folder / "build"),
        f"-Dcudnn_bindgen_DIR={Path(package.__file__).parent}",
        f"-DPython_EXECUTABLE={sys.executable}",
    )


def cmake(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CFLAGS": "-O0 -g0"}
    command = ["cmake", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_operators_with_gradients_options_and_an_installation(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("sdpa_causal", "sdpa_backward"):
        shutil.copy(FRONTEND / f"{name}.json", folder)
    done = configure(
        folder,
        "attn GRAPH sdpa_causal.json TORCH BACKWARD sdpa_backward.json "
        "OPTIONS --torch-namespace ns DESTINATION mymodel",
    )
    assert done.returncode == 0, done.stderr
    build = folder / "build"
    for command in (["--build", build], ["--install", build, "--prefix", tmp_path / "prefix"]):
        done = cmake(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    modules = ("attn", "sdpa_backward")
    beside = {f"{module}{end}" for module in modules for end in (".pyi", ".pxd", "_torch.py")}
    expected = {*beside, *(extension_path(Path(), module).name for module in modules)}
    assert {path.name for path in (tmp_path / "prefix/mymodel").iterdir()} == expected
    assert '"ns"' in (tmp_path / "prefix/mymodel/attn_torch.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("attn", "cudnn_bindgen_add_module(attn): expected GRAPH FILE..."),
        ("attn a.json", 'expected GRAPH FILE..., got "a.json"'),
        ("attn GRAPH a.json TORCH BACKWARD B-1.json", "BACKWARD: expected a file whose name is"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: str, message: str) -> None:
    done = configure(tmp_path, arguments)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
