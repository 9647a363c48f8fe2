"""What Python shows of a compiled module's `run`: its signature and its help."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from types import ModuleType

import pytest
from support import overriding
from support.cases import CASES

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.describe import describe_run

# Nothing is launched.
pytestmark = pytest.mark.parametrize("policy", ["direct"], indirect=True)

REST = "workspace=None, stream=None, check=True"


@pytest.mark.parametrize(
    ("module", "signature"),
    [
        ("product", f"(a, b, c=None, d=None, *, alpha, {REST}, overrides=None)"),
        (
            "scalars",
            "(x, y=None, *, a_int64, a_int32, a_half, a_float, a_double, a_bfloat16, b_int64=6, "
            f"b_int32=9, b_half=12.0, b_float=15.0, b_double=18.0, b_bfloat16=21.0, {REST})",
        ),
        (
            "thd",
            "(q, k, v, seq_len_q, seq_len_kv, q_ragged_offset, k_ragged_offset, v_ragged_offset, "
            f"o_ragged_offset, stats_ragged_offset, o=None, stats=None, *, {REST})",
        ),
    ],
)
def test_the_signature_has_bare_names_and_keywords(
    load: Callable[[str], ModuleType], module: str, signature: str
) -> None:
    loaded = load(module)
    assert str(inspect.signature(loaded.run)) == signature
    assert str(inspect.signature(loaded.set_checks)) == "(enabled)"


@pytest.mark.parametrize("module", ["thd", "scalars", "product"])
def test_help_describes_each_argument(load: Callable[[str], ModuleType], module: str) -> None:
    graph = CASES[module].graph if module in CASES else overriding.GRAPHS[module]
    binding = bind(read_graph(graph), overriding.OPTIONS.get(module))
    run = load(module).run
    shown = [line.strip() for line in pydoc.plain(pydoc.render_doc(run)).splitlines()]
    for line in describe_run(binding):
        assert line.strip() in shown
    described = {line.partition(":")[0] for line in inspect.getdoc(run).splitlines()}
    assert described >= {*inspect.signature(run).parameters}


@pytest.mark.parametrize(
    ("argument", "facts"),
    [
        ("q", ["ragged input", "BFLOAT16 [64, 8, 4, 128]", "strides [4096, 128, 1024, 1]"]),
        ("seq_len_q", ["input", "INT32 [64, 1, 1, 1]", "aligned to 4 bytes"]),
        ("stats", ["ragged output", "FLOAT [64, 8, 4, 1]", "aligned to 16 bytes"]),
    ],
)
def test_help_shows_role_type_shape_strides_and_alignment(
    load: Callable[[str], ModuleType], argument: str, facts: list[str]
) -> None:
    lines = inspect.getdoc(load("thd").run).splitlines()
    (line,) = (line for line in lines if line.startswith(f"{argument}: "))
    for fact in facts:
        assert fact in line
