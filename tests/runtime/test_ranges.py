"""Ranges in profiles: named after the module, around each call, only where they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.standin import Paths

PROGRAM = """
import sys
from support.standin import Paths, Standin
from cudnn_bindgen.runtime.errors import BindingError
libraries = Standin(Paths(*sys.argv[1:]))
import rows
import thd
def call(function):
    try:
        function()
    except (BindingError, ValueError):
        sys.stdout.write("refused")
        sys.stdout.flush()
with libraries.context():
    operands = [libraries.alloc(128) for _ in thd.OPERANDS]
    call(lambda: thd.execute(*operands))
    call(lambda: thd.run(*operands))
    call(thd.bind(*operands))
    call(lambda: rows.execute(*operands[:3], 0.5, 32))
    call(lambda: thd.execute(*operands, workspace_ptr=64))
    thd.close()
    call(lambda: thd.execute(*operands))
"""


@pytest.fixture(scope="module")
def profiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).parents[1] / "support" / "profiler.c"
    library = tmp_path_factory.mktemp("profiler") / "libprofiler.so"
    compiler = os.environ.get("CC", "gcc")
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    return library


def run_program(
    builds: Any, paths: Paths, wanted: str | None, profiler: str | None
) -> subprocess.CompletedProcess[str]:
    for module in ("rows", "thd"):
        builds.path(module)
    environment = {k: v for k, v in os.environ.items() if "NVTX" not in k}
    environment["PYTHONPATH"] = os.pathsep.join([str(builds.directory), *sys.path])
    given = {"CUDNN_BINDGEN_NVTX": wanted, "NVTX_INJECTION64_PATH": profiler}
    environment |= {name: value for name, value in given.items() if value is not None}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(paths.cudnn), str(paths.driver)],
        env=environment,
        capture_output=True,
        text=True,
    )


def test_each_call_is_a_range(builds: Any, standin_paths: Paths, profiler: Path) -> None:
    done = run_program(builds, standin_paths, "1", str(profiler))
    calls = ["<thd></>"] * 3 + ["<rows[x_d0=32]></>"]
    refused = ["refused", "<thd></>refused"]  # before it is entered, and inside
    assert (done.stdout, done.returncode) == ("".join([*calls, *refused]), 0), done.stderr


@pytest.mark.parametrize(
    ("wanted", "library"),
    [(None, "is there"), ("0", "is there"), ("1", None), ("1", "/nowhere.so")],
)
def test_none_unless_asked_for(
    builds: Any, standin_paths: Paths, profiler: Path, wanted: str | None, library: str | None
) -> None:
    library = str(profiler) if library == "there" else library
    done = run_program(builds, standin_paths, wanted, library)
    assert (done.stdout, done.returncode) == ("refusedrefused", 0), done.stderr


def test_a_wrong_environment_is_an_error_at_import(builds: Any, standin_paths: Paths) -> None:
    done = run_program(builds, standin_paths, "yes", None)
    message = "CUDNN_BINDGEN_NVTX: expected 0 or 1, got 'yes'"
    assert done.stderr.splitlines()[-1].endswith(f"OperandError: {message}")
