"""An accelerated graph of the frontend that is installed, no GPU needed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.documents import TESTS

from cudnn_bindgen.frontend.file_cache import ENVIRONMENT

PROGRAM = TESTS / "support" / "programs" / "accelerate.py"


@pytest.mark.usefixtures("library")  # the stand-in is built
def test_a_graph_of_the_real_frontend(builds: Any, tmp_path: Path) -> None:
    try:
        importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    directory = builds.directory / "standin"
    libraries = [str(directory), os.environ.get("LD_LIBRARY_PATH", "")]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(directory)],
        env=os.environ
        | {"LD_LIBRARY_PATH": ":".join(filter(None, libraries)), ENVIRONMENT: str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = json.loads(done.stdout.splitlines()[-1])
    # Older ones do not know tensor_uids.
    assert ours[: len(theirs) - 1] == theirs[1:]
    assert len(ours) - len(theirs[1:]) <= 1
