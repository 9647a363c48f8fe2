"""Which plan of a graph is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.text import shorten


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is chosen.

    Attributes
    ----------
    heuristics
        Modes of cuDNN's heuristics, asked in this order; the first plan that builds is taken.
    engine
        Take this engine instead, with `knobs`; None to ask the heuristics.
    knobs
        Knob → value; a knob that is not set keeps the engine's own value.
    max_workspace
        Pass over plans that need more bytes; None for any number.
    autotune
        Run all plans that the heuristics offer and take the fastest, not the first.
    only_cudnn
        Ask for no engine of the frontend's own.
    """

    heuristics: tuple[str, ...] = ("A", "FALLBACK")
    engine: int | None = None
    knobs: Mapping[str, int] = field(default_factory=dict)
    max_workspace: int | None = None
    autotune: bool = False
    only_cudnn: bool = False

    def __post_init__(self) -> None:
        if self.autotune and self.engine is not None:
            raise PlanError("--autotune: expected no --engine, which leaves nothing to compare")


HEURISTICS = PlanOptions()


def parse_knobs(text: str) -> dict[str, int]:
    """Read ``TILE_SIZE=3,STAGES=2``."""
    knobs: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        if not name or not value.lstrip("-").isdecimal() or len(value) > 19:
            raise PlanError(f"--knobs: expected KNOB=NUMBER,..., got {shorten(item)}")
        if name in knobs:
            raise PlanError(f"--knobs: expected each knob once, got {shorten(name)} twice")
        knobs[name] = int(value)
    return knobs
