"""Case folders: ``input.*`` and what `emit` makes of it: ``expected/``, ``stderr.txt``.

A new case is a folder with an input.json, or an input.bundle, and one run with
``--update-golden``. A module's data stands there as the record that it is. Where there are
``backward*.json``, graphs of its gradients, operators of PyTorch are emitted, too. Where there are
``member*.json``, and no input, they are one family. An ``input.toml`` is a chain of ``link*.json``.
"""

from __future__ import annotations

import ast
import os
import pprint
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.documents import TESTS

from cudnn_bindgen.cli import main
from cudnn_bindgen.module_data import unpack

GOLDEN = TESTS / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())
REGENERATE = TESTS.parent / "tools" / "regenerate.py"
DATA = re.compile(r"(?:^        b'.*'\n)+", re.MULTILINE)
HOW_TO_UPDATE = "if that is meant: python -m pytest -k test_golden --update-golden"


def emit(case: str, directory: Path) -> dict[str, str]:
    """Emit a case and return its golden files by their path in the case's folder."""
    members = sorted(map(str, Path().glob("member*.json")))
    graphs = [f"--family={case}", *members] if members else map(str, Path().glob("input.*"))
    command = ["emit", "-q", *graphs, "-o", str(directory / f"{case}.pyx")]
    command += ["--chain"] if Path("input.toml").exists() else []
    backward = sorted(Path().glob("backward*.json"))
    command += ["--torch"] if backward else []
    command += [f"--backward={path}" for path in backward]
    result = CliRunner().invoke(main, command)
    if result.exit_code:
        assert result.exit_code == 2, result.output
        assert not directory.exists()
        return {"stderr.txt": result.stderr}
    assert result.stdout == ""
    files = {f"expected/{path.name}": readable(path.read_text()) for path in directory.iterdir()}
    return files | ({"stderr.txt": result.stderr} if result.stderr else {})  # warnings


def readable(text: str) -> str:
    """Return a module's text with the record that its data is, in place of that."""
    lines = DATA.search(text)
    if lines is None:
        return text
    record = unpack(b"".join(ast.literal_eval(line) for line in lines[0].splitlines()))
    shown = pprint.pformat(named(record), width=90, sort_dicts=False) + "\n"
    return text.replace(lines[0], textwrap.indent(shown, 8 * " "))


def named(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        items = value._asdict().items()
        return {name: named(item) for name, item in items if (name, item) != ("chain", None)}
    return tuple(map(named, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES)
def test_case(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    folder = GOLDEN / case
    monkeypatch.chdir(folder)
    files = emit(case, tmp_path / "emitted")
    if request.config.getoption("--update-golden"):
        shutil.rmtree(folder / "expected", ignore_errors=True)
        (folder / "stderr.txt").unlink(missing_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
    golden = [path for path in folder.rglob("*") if path.is_file()]
    golden = [
        p for p in golden if p.parent != folder or p.suffix not in (".bundle", ".json", ".toml")
    ]
    expected = {str(path.relative_to(folder)): path.read_bytes().decode() for path in golden}
    assert sorted(files) == sorted(expected), HOW_TO_UPDATE
    for name, text in files.items():
        assert text == expected[name], f"{folder / name} differs; {HOW_TO_UPDATE}"


@pytest.mark.parametrize("tool", ["ruff check", "ruff format --check", "cython-lint"])
def test_emitted_files_pass(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`generated/` is linted like code, and so are cases whose names are hard to print."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.chdir(TESTS.parent)
    command = [*tool.split(), "generated", "tests/golden"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_generated_modules_are_up_to_date(request: pytest.FixtureRequest) -> None:
    options = () if request.config.getoption("--update-golden") else ("--check",)
    done = subprocess.run(
        [sys.executable, str(REGENERATE), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\ngenerated/ differs; {HOW_TO_UPDATE}"
