"""`cudnn-bindgen gpus`: the table, as people and as programs read it, and the GPU at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.documents import TESTS
from support.standin import build

from cudnn_bindgen.cli import main
from cudnn_bindgen.frontend.planning.gpus import device_properties, load_table

H200 = TESTS / "data" / "plans" / "device_properties_h200.json"

# In a process of its own, which has none of the stand-in libraries loaded.
HERE = """
import ctypes, sys
from cudnn_bindgen.cli import main
library = ctypes.CDLL("libcuda.so.1") if len(sys.argv) > 1 else None
if sys.argv[1:] == ["no gpu"]:
    library.standin_set_device_count(0)
elif library:
    library.standin_fail(sys.argv[1].encode(), 1, 100)
main(["gpus", "--here"])
"""


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["gpus", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HERE, *arguments]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, check=False
    )


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("standin")).driver.parent


def test_the_table_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run()
    monkeypatch.setenv("COLUMNS", "40")
    assert run() == text
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines if "https://" not in line)
    assert not any("…" in line for line in lines)
    rows = {line.split()[0]: line.split()[1:6] for line in lines if line}
    assert rows["h100"] == ["90", "132", "79", "1980", "2619"]
    assert rows["h20"] == ["90", "78", "95", "1980?", "2619?"]
    table = load_table()
    assert table.gpus.keys() | {f"{key}:" for key in table.sources} <= rows.keys()
    assert all(
        f"{alias} = {name}" in " ".join(text.split()) for alias, name in table.aliases.items()
    )


def test_json_has_all_that_is_known() -> None:
    document = json.loads(run("--json"))
    assert document["sources"] == load_table().sources
    found = {gpu["name"]: gpu for gpu in document["gpus"]}
    assert found.keys() == load_table().gpus.keys()
    assert found["h20"] == {
        "name": "h20",
        "aliases": [],
        "sm": 90,
        "sm_count": 78,
        "sources": ["cards"],
        "unsure": ["clock", "memory_clock", "bus", "l2"],
        "properties": json.loads(device_properties("h20")),
    }
    assert "thor" in found["jetson-t5000"]["aliases"]


def test_here_prints_what_the_driver_says(driver: Path) -> None:
    done = here(driver)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{H200.read_text()}\n"


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("no gpu", "expected a GPU, got CUDA_ERROR_NO_DEVICE from cuInit"),
        (
            "cuDeviceGetAttribute",
            "expected a GPU, got CUDA_ERROR_NO_DEVICE from cuDeviceGetAttribute",
        ),
    ],
)
def test_here_without_a_gpu_is_one_line(driver: Path, argument: str, problem: str) -> None:
    done = here(driver, argument)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {problem}")
    assert "cudnn-bindgen gpus lists the names" in line


def test_here_without_a_driver_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    done = here(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: expected a GPU, got no NVIDIA driver: ")
    assert "libcuda.so.1" in line


def test_here_with_an_old_driver_is_one_line(tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text("int cuInit(unsigned flags) { return 0 * flags; }\n")
    library = tmp_path / "libcuda.so.1"
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    done = here(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: libcuda.so.1 has no cuDeviceGet: it is too old")
