"""`cudnn-bindgen config`, and `python -m cudnn_bindgen`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cudnn_bindgen
from cudnn_bindgen.cli import main

PACKAGE = Path(cudnn_bindgen.__file__).parent


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--include-dir"], [PACKAGE.parent]),
        (["--cmake-dir"], [PACKAGE / "build_systems/cmake"]),
        (["--version", "--include-dir"], [PACKAGE.parent, cudnn_bindgen.__version__]),
    ],
)
def test_a_line_for_each_option(options: list[str], expected: list[object]) -> None:
    result = CliRunner().invoke(main, ["config", *options])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [*map(str, expected)]


def test_the_folders_hold_what_tools_look_for() -> None:
    result = CliRunner().invoke(main, ["config", "--include-dir", "--cmake-dir"])
    include, cmake = map(Path, result.stdout.splitlines())
    assert (include / "cudnn_bindgen/runtime/graph.pxd").is_file()
    assert (cmake / "cudnn_bindgen-config.cmake").is_file()


def test_something_must_be_asked_for() -> None:
    result = CliRunner().invoke(main, ["config"])
    assert result.exit_code == 2
    assert "expected --include-dir, --cmake-dir, --version, got none" in result.stderr


def test_the_package_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "copy.py").write_text("raise SystemExit('imported from the working directory')")
    command = [sys.executable, "-m", "cudnn_bindgen", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"cudnn-bindgen, version {cudnn_bindgen.__version__}\n"
