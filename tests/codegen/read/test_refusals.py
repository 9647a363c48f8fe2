"""Every place in codegen that refuses a file is reached by a test that knows the whole message."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.documents import TESTS
from support.refusals import REFUSALS, Refusal

from cudnn_bindgen import codegen
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read import source
from cudnn_bindgen.codegen.read.graph import read_graph

CODEGEN = TESTS.parent / "codegen"
# What runs: the same files, or a copy of them where the package is installed for good.
INSTALLED = Path(codegen.__file__).resolve().parent
Place = tuple[str, int]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(CODEGEN.rglob("*.py")):
        yield str(path.relative_to(CODEGEN)), ast.parse(path.read_text())


def makers() -> set[str]:
    """Names of what makes a refusal: the class, and functions that return one."""
    returning = {
        item.name
        for _, tree in trees()
        for item in ast.walk(tree)
        if isinstance(item, ast.FunctionDef)
        and item.returns is not None
        and ast.unparse(item.returns) == "GraphFormatError"
    }
    return {"GraphFormatError"} | returning


def sites() -> dict[Place, range]:
    """Where a refusal is made, and which lines that call covers."""
    names = makers()
    calls = [
        (file, item)
        for file, tree in trees()
        for item in ast.walk(tree)
        if isinstance(item, ast.Call)
        and (item.func.attr if isinstance(item.func, ast.Attribute) else ast.unparse(item.func))
        in names
    ]
    return {
        (file, call.lineno): range(call.lineno, (call.end_lineno or 0) + 1) for file, call in calls
    }


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[Place]:
    """Collects the lines of codegen that are on the stack whenever a refusal is made."""
    places: set[Place] = set()
    original = GraphFormatError.__init__

    def init(self: GraphFormatError, *arguments: Any, **fields: Any) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None:
            path = Path(frame.f_code.co_filename).resolve()
            if path.is_relative_to(INSTALLED):
                places.add((str(path.relative_to(INSTALLED)), frame.f_lineno))
            frame = frame.f_back
        original(self, *arguments, **fields)

    monkeypatch.setattr(GraphFormatError, "__init__", init)
    return places


def fail(*_: object, **__: object) -> None:
    raise MemoryError


def message_of(refusal: Refusal) -> str:
    with pytest.raises(GraphFormatError) as caught:
        refusal.run()
    return str(caught.value)


@pytest.mark.parametrize("name", REFUSALS)
def test_the_message_says_what_where_and_what_to_do(name: str) -> None:
    refusal = REFUSALS[name]
    with pytest.raises(GraphFormatError) as caught:
        refusal.run()
    error = caught.value
    assert str(error) == refusal.message
    assert error.hint
    assert error.problem.startswith("expected ")
    # Only what is no graph at all has no place in it.
    assert error.path or "got" in error.problem
    assert str(error).endswith(f"({error.hint})")


def test_every_place_that_refuses_is_reached(
    made: set[Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for refusal in REFUSALS.values():
        message_of(refusal)
    # What no file is known to reach.
    with monkeypatch.context() as patch, pytest.raises(GraphFormatError, match="cannot be real"):
        patch.setattr("ubjson.loadb", fail)
        read_graph(b"{i\x01aZ}")
    # What needs a file on disk (test_cli_reading.py).
    (tmp_path / "large").write_bytes(b"12")
    monkeypatch.setattr(source, "MAX_BYTES", 1)
    with pytest.raises(GraphFormatError, match="expected at most 1 bytes, got more"):
        source.read_source(tmp_path / "large")
    with pytest.raises(GraphFormatError, match="expected a regular file"):
        source.read_given("/dev/null", "plan")
    known = sites()
    assert len(known) > 80
    missed = {
        f"{file}:{line}"
        for (file, line), lines in known.items()
        if not any((file, at) in made for at in lines)
    }
    assert not missed, sorted(missed)
