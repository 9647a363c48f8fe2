"""The fake frontend in this process, and what a recording of it holds."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from support.documents import DATA, TESTS

FAKE = TESTS / "support" / "fake_cudnn"
SCALE = DATA / "plans" / "cudnn-9.19-sm90" / "scale_by_value"
LAYERNORM = SCALE.with_name("layernorm")
OVERRIDE = DATA / "plans" / "cudnn-9.27-sm90" / "matmul_override"


def new_frontend() -> ModuleType:
    """Load a frontend of one's own."""
    spec = importlib.util.spec_from_file_location("cudnn", FAKE / "cudnn.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def imported(frontend: Any) -> Iterator[None]:
    """Let it be the one that this process has imported."""
    before = sys.modules.get("cudnn")
    sys.modules["cudnn"] = frontend
    try:
        yield
    finally:
        if before is None:
            del sys.modules["cudnn"]
        else:
            sys.modules["cudnn"] = before


def usage(folder: Path) -> dict[str, Any]:
    """Return the only usage file of a folder."""
    (file,) = (folder / "usage").glob("*.json")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def only_graph(folder: Path) -> dict[str, Any]:
    """Return the record of the only graph in a folder."""
    ((_, graph),) = usage(folder)["graphs"].items()
    found: dict[str, Any] = graph
    return found
