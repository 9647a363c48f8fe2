"""Recording beside the real frontend, on the CPU: its methods, its errors, its dumps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from codegen.read.test_frontend import libraries
from support.documents import TESTS
from support.recording_fakes import usage

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.read.graph import read_graph

__all__ = ["libraries"]  # a fixture

SCRIPT = TESTS / "support" / "programs" / "record.py"


@pytest.fixture(scope="module")
def recording(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("recording")
    path = os.environ.get("LD_LIBRARY_PATH")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env=os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{path}" if path else str(libraries)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_methods_are_replaced_and_put_back(recording: tuple[Path, Any]) -> None:
    _, said = recording
    assert {"execute", "build", "build_plans", "deserialize"} <= {*said["present"]}
    assert said["replaced"] == said["present"]
    assert said["signatures"] == []
    assert said["is_put_back"]


def test_the_frontend_says_what_it_says_alone(recording: tuple[Path, Any]) -> None:
    _, said = recording
    assert said["recorded"] == said["alone"]
    assert any("TypeError" in text for text in said["alone"])


def test_each_graph_is_written_once(recording: tuple[Path, Any]) -> None:
    folder, said = recording
    keys = {name: graph["key"] for name, graph in said["graphs"].items()}
    for name, graph in said["graphs"].items():
        assert keys[name] == bind(read_graph(graph["text"].encode())).fingerprint
    written = {path.stem for path in (folder / "graphs").glob("*.json")}
    assert written == {*keys.values()}
    record = usage(folder / "graphs")
    assert record["problems"] == []
    assert record["frontend"]
    for key in written:
        names = [name for name in keys if keys[name] == key]
        assert record["graphs"][key]["objects"] == 2 * len(names)


def test_why_there_is_no_plan(recording: tuple[Path, Any]) -> None:
    folder, said = recording
    for graph in said["graphs"].values():
        (reason,) = graph["reasons"]
        assert reason.startswith("plan: ")
    assert not list((folder / "graphs").glob("*.plan"))
