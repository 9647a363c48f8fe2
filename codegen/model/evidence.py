"""How a plan was chosen, and what speaks for it: a text that a plan file carries beside its plan.

`planning` writes it and `show` prints it; nothing that is emitted depends on it. Plan files come
from anywhere, so what does not read as evidence is none.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

# Its key in a plan file's object. NVIDIA's frontend looks only for keys that it knows.
KEY = "cudnn_bindgen"

# Real ones have 0.2 KB a candidate, and cuDNN offers up to some hundred.
MAX_BYTES = 2**20

_Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Text = Annotated[str, Meta(max_length=4096)]
_Knobs = Annotated[dict[Annotated[str, Meta(max_length=100)], _Int], Meta(max_length=1000)]


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One plan that cuDNN offered, in a place of its ranking, and what came of it.

    `outcome` is one of OUTCOMES. `microseconds` is the median of one execution on the GPU and
    `spread` the width of the middle half of what was measured; None for what was not timed.
    `agreement` is the largest error beside the first candidate, in parts of what is tolerated;
    None for what was not compared. `reason` says why it was not taken, where that is no figure.
    """

    rank: _Count
    outcome: _Text
    engine: _Int | None = None
    knobs: _Knobs = {}
    workspace: _Count | None = None
    microseconds: float | None = None
    spread: float | None = None
    agreement: float | None = None
    reason: _Text = ""


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked for."""

    heuristics: Annotated[tuple[_Text, ...], Meta(max_length=100)] = ()
    engine: _Int | None = None
    knobs: _Knobs = {}
    max_workspace: _Count | None = None


class Timing(msgspec.Struct, frozen=True):
    """How candidates were compared and timed: one CUDA graph each, replayed once in each round.

    `sets` of operands with `bytes` each take turns; `seed` is that of their random values.
    """

    seed: _Int
    bytes: _Count
    sets: _Count
    rounds: _Count


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a plan was chosen: by `method` "autotune", "heuristics" or "engine".

    `chosen` is the rank of the candidate that is in the file. `gpu` and `driver` are known where
    candidates ran; `sm_count` of 0 is not known. `properties` are those of the device, as JSON, for
    a plan that was made by them alone, on a machine without it.
    """

    tool: _Text
    method: _Text
    frontend: _Text
    cudnn: _Count
    sm: _Count
    sm_count: _Count
    options: Options
    chosen: _Count
    candidates: Annotated[tuple[Candidate, ...], Meta(max_length=10_000)]
    gpu: _Text = ""
    driver: _Text = ""
    timing: Timing | None = None
    properties: _Text = ""


# What becomes of a candidate: taken (by heuristics or by --engine, where nothing is compared),
# agrees with the first one, differs from it, was refused by cuDNN or by an option, cannot be
# captured into a CUDA graph, or was not looked at because it comes twice.
OUTCOMES = ("taken", "agrees", "differs", "refused", "not capturable", "repeated")


_METHODS = {
    "autotune": "the fastest of those that agree with the first",
    "heuristics": "the first that builds",
    "engine": "as asked for",
}


def write_evidence(evidence: Evidence) -> str:
    """Return the text for a plan file."""
    return msgspec.json.encode(evidence).decode()


def read_evidence(text: str) -> Evidence | None:
    """Return what a plan file's text says, or None if it is no evidence that this version knows."""
    try:
        return msgspec.json.decode(text.encode(), type=Evidence)
    # What is no evidence, what is nested too deep, a surrogate.
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def read_engine(text: str) -> tuple[int | None, dict[str, int]]:
    """Return number and knobs of an engine as `PlanInfo.engine` has them: ``engine 8 STAGES=2``."""
    number, *knobs = text.removeprefix("engine ").split(" ")
    pairs = (knob.rpartition("=") for knob in knobs)
    return int(number), {name: int(value) for name, _, value in pairs}


def as_plain(evidence: Evidence) -> dict[str, Any]:
    """Return the same as dicts and lists, with every field; the functions below take these."""
    return {
        **_fields(evidence),
        "options": _fields(evidence.options),
        "timing": _fields(evidence.timing) if evidence.timing else None,
        "candidates": [_fields(item) for item in evidence.candidates],
    }


def summarize(evidence: dict[str, Any]) -> str:
    """Return in one line how the plan was chosen."""
    method, timing = evidence["method"], evidence["timing"]
    parts = [method, f"frontend {evidence['frontend']}"]
    if method in _METHODS:
        parts[0] = f"by {method}, {_METHODS[method]}"
    if evidence["properties"]:
        parts += [f"made {made_for(evidence)}, by its properties"]
    if evidence["gpu"]:
        parts += [evidence["gpu"], f"driver {evidence['driver'] or 'unknown'}"]
    if timing:
        parts += [f"{timing['sets']} sets of {timing['bytes']} bytes, {timing['rounds']} rounds"]
    return "; ".join(parts)


def made_for(evidence: dict[str, Any]) -> str:
    """Say whether the plan ever ran, and on or for what GPU, as far as it is known."""
    if evidence.get("gpu"):
        return f"on {evidence['gpu']}"
    if not evidence.get("properties"):
        return ""
    try:
        device = msgspec.json.decode(evidence["properties"], type=_Device)
    except (msgspec.DecodeError, RecursionError):
        return "for another device, never run"
    return f"for {device.name}, never run"


class _Device(msgspec.Struct):
    name: _Text = msgspec.field(name="deviceName")


def as_rows(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the table of candidates, without columns that say nothing."""
    rows = [
        {
            "plan": item["rank"],
            "engine": item["engine"],
            "knobs": " ".join(f"{name}={value}" for name, value in sorted(item["knobs"].items())),
            "workspace": item["workspace"],
            "us": _figure(item["microseconds"]),
            "spread": _figure(item["spread"]),
            "error": _figure(item["agreement"]),
            "outcome": "chosen" if item["rank"] == evidence["chosen"] else item["outcome"],
            "reason": item["reason"],
        }
        for item in evidence["candidates"]
    ]
    said = [
        name for name in (rows[0] if rows else ()) if any(r[name] not in (None, "") for r in rows)
    ]
    return [{name: row[name] for name in said} for row in rows]


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"
