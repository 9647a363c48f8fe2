"""What type checkers say of code, line by line: mypy and pyright, both in strict mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cudnn_bindgen

_FILE = "calls.py"

Errors = Iterator[tuple[str, int, str]]
"""File, line and code of each error."""


def check_lines(
    directory: Path,
    files: Mapping[str, str],
    imports: Sequence[str],
    lines: Sequence[str],
    version: str = "",
    cache: Path | None = None,
) -> dict[str, tuple[set[str], set[str]]]:
    """Return the codes of mypy's and of pyright's errors for each of `lines`.

    Nothing else may have any: not `files`, which lie beside them, and not `imports`. `version` is
    the Python that the checkers assume; the one that runs, if it is empty. `cache` is mypy's.
    """
    for name, text in files.items():
        (directory / name).write_text(text)
    (directory / _FILE).write_text("\n".join([*imports, *lines, ""]))
    verdicts: dict[str, tuple[set[str], set[str]]] = {line: (set(), set()) for line in lines}
    for checker, errors in enumerate(
        (_mypy(directory, version, cache), _pyright(directory, version))
    ):
        for file, number, code in errors:
            assert file == _FILE, (file, number, code)
            assert number > len(imports), (imports[number - 1], code)
            verdicts[lines[number - 1 - len(imports)]][checker].add(code)
    return verdicts


def _mypy(directory: Path, version: str, cache: Path | None) -> Errors:
    options = [f"--cache-dir={cache or directory / 'cache'}"]
    options += [f"--python-version={version}"] if version else []
    done = _run(
        directory, "mypy", "--strict", "--no-error-summary", "--hide-error-context", *options, _FILE
    )
    assert not done.stderr
    for line in done.stdout.splitlines():
        place, is_error, message = line.partition(": error: ")
        if is_error:
            file, number = place.split(":")[:2]
            yield file, int(number), message.rpartition("[")[2].rstrip("]")


def _pyright(directory: Path, version: str) -> Errors:
    settings: dict[str, Any] = {
        "typeCheckingMode": "strict",
        "include": ["."],
        "extraPaths": [str(Path(cudnn_bindgen.__file__).parents[1])],
    }
    if version:
        settings["pythonVersion"] = version
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    done = _run(directory, "pyright", "--outputjson", "--pythonpath", sys.executable)
    assert not done.stderr
    for error in json.loads(done.stdout)["generalDiagnostics"]:
        # Warnings are of stubs whose module is not beside them.
        if error["severity"] == "error":
            yield Path(error["file"]).name, error["range"]["start"]["line"] + 1, error["rule"]


def _run(directory: Path, module: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=directory,
        env=os.environ | {"MYPYPATH": str(directory)},
        capture_output=True,
        text=True,
    )
