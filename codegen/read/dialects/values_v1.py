"""What older frontends write for the scalars of a graph and for the tables of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.limits import Int64
from cudnn_bindgen.codegen.model.scalar import ScalarDocument
from cudnn_bindgen.codegen.read.dialects.decode import check

# `pass_by_value.index` → today's. Read from pass_by_values_t of the frontend's tags.
_TO_1_7 = (1, 2, 3, 5)  # int32, half, float, bfloat16
_TO_1_22 = (0, 1, 2, 3, 5)  # no double yet

_TABLES = ("pass_by_values", "workspace_modifications")


def newer_scalar(scalar: ScalarDocument, frontend_version: int) -> ScalarDocument:
    """Return `scalar` as frontend 1.23 and newer would write it."""
    indices = _TO_1_7 if frontend_version < 10800 else _TO_1_22
    if frontend_version >= 12300 or scalar.index >= len(indices):
        return scalar
    return ScalarDocument(index=indices[scalar.index], value=scalar.value)


def newer_plan(raw: Mapping[str, Any], frontend_version: int) -> dict[str, Any]:
    """Return a plan's object with its tables as frontend 1.23 and newer would write them."""
    newer = dict(raw)
    for name in _TABLES:
        table = raw.get(name)
        if isinstance(table, list):  # pairs, to 1.22
            newer[name] = _by_key(table, f"$.{name}")
    constants = newer.get("pass_by_values")
    if isinstance(constants, dict):
        scalars = check(constants, dict[str, ScalarDocument], "$.pass_by_values")
        newer["pass_by_values"] = {
            uid: newer_scalar(scalar, frontend_version) for uid, scalar in scalars.items()
        }
    return newer


def _by_key(pairs: list[Any], path: str) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for index, (uid, value) in enumerate(check(pairs, list[tuple[Int64, Any]], path)):
        if str(uid) in table:
            raise GraphFormatError(
                f"expected each uid once, got {uid} twice", path=f"{path}[{index}][0]"
            )
        table[str(uid)] = value
    return table
