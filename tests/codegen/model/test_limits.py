"""What codegen lets a graph have and what the runtime has room for are the same numbers."""

from __future__ import annotations

import re

import pytest
from support.documents import TESTS

from cudnn_bindgen.codegen.model.limits import MAX_KEY, MAX_OPERANDS, MAX_SYMBOLS

RUNTIME = [path for path in (TESTS.parent / "runtime").rglob("*.*") if path.suffix != ".so"]


@pytest.mark.parametrize(
    ("name", "limit"),
    [("kMostOperands", MAX_OPERANDS), ("MAX_SYMBOLS", MAX_SYMBOLS), ("MOST_NUMBERS", MAX_KEY)],
)
def test_the_runtime_has_room_for_what_codegen_allows(name: str, limit: int) -> None:
    sizes = [
        int(size)
        for path in RUNTIME
        if path.is_file()
        for size in re.findall(rf"\b{name} = (\d+)", path.read_text(errors="replace"))
    ]
    assert sizes == [limit]
