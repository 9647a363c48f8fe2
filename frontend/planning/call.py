"""One call of the frontend's builders, as data: made by `replay`, carried out by `rebuild`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operand:
    """Stands for the frontend's tensor with this uid."""

    uid: int


@dataclass(frozen=True, slots=True)
class Member:
    """Stands for a member of one of the frontend's enums, such as ``data_type.HALF``."""

    enum: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """``returned = graph.method(**arguments)``.

    `arguments` hold plain values, and Operand and Member wherever they stand in lists and tuples.
    `outputs` has the uid of each tensor that is returned, in order; None where the graph has none.
    Outputs that the frontend does not return but takes stand in `arguments`.
    """

    method: str
    path: str
    arguments: Mapping[str, object]
    outputs: tuple[int | None, ...]
