"""Programs that start at once and accelerate one graph: one of them compiles, all are right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.documents import TESTS
from support.standin import Standin

from cudnn_bindgen.frontend.file_cache import ENVIRONMENT

PROGRAM = TESTS / "support" / "accelerate_process.py"


def start(builds: Any, cache: Path, log: Path, at: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-W", "error::UserWarning", str(PROGRAM)),
            *(str(builds.directory / "standin"), "parts", str(log), str(at)),
        ],
        env=os.environ | {ENVIRONMENT: str(cache), "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said


@pytest.mark.usefixtures("library")  # the stand-in is built
def test_programs_that_start_at_once(builds: Any, tmp_path: Path) -> None:
    cache, log = tmp_path / "cache", tmp_path / "log"
    at = time.time() + 3
    for process in [start(builds, cache, log, at) for _ in range(3)]:
        finish(process)
    assert log.read_text() == "compiled\n"
    finish(start(builds, cache, log, 0))  # a later one compiles nothing
    assert log.read_text() == "compiled\n"


def test_a_program_that_is_killed_in_the_middle(
    builds: Any, library: Standin, tmp_path: Path
) -> None:
    cache, log = tmp_path / "cache", tmp_path / "log"
    process = start(builds, cache, log, 0)
    while not log.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert not [path for path in cache.rglob("*") if path.suffix in {".so", ".sha256"}]
    finish(start(builds, cache, log, 0))
    assert log.read_text() == "compiled\n" * 2
