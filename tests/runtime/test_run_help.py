"""What Python shows of a compiled module's `run`: its signature, and the module's help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

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


@pytest.mark.parametrize("of", ["module", "execute", "run"])
@pytest.mark.parametrize("module", ["thd", "scalars", "product"])
def test_help_has_a_row_for_each_operand(
    load: Callable[[str], ModuleType], module: str, of: str
) -> None:
    loaded = load(module)
    text = inspect.getdoc(loaded if of == "module" else getattr(loaded, of)) or ""
    shown = text.splitlines()
    for slot, operand in enumerate(loaded.OPERANDS):
        [row] = [line.split() for line in shown if line.split()[:1] == [str(slot)]]
        assert row[1:5] == [
            *(str(operand.uid), operand.argument, operand.role, operand.data_type),
        ]
        assert ",".join(map(str, operand.dim)) in row
        assert ",".join(map(str, operand.stride)) in row
        assert operand.role == "scalar" or str(operand.alignment) in row
