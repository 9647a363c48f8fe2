"""The usage files of a folder, of all processes and runs, added up.

The folder may be a stranger's: what is read is typed and bounded, and names files in it alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import RecordError
from cudnn_bindgen.codegen.read.source import read_file
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.recording import USAGE
from cudnn_bindgen.frontend.recording.observe import Layout, Override
from cudnn_bindgen.frontend.recording.tally import Tally

# A program with thousands of graphs writes less.
_MAX_BYTES = 16 * 2**20

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Sizes = Annotated[tuple[_Int64, ...], Meta(max_length=64)]
# A fingerprint or a digest, and the name of a plan file, or none.
_Key = Annotated[str, Meta(pattern="^[0-9A-Za-z_-]{1,100}$")]
_File = Annotated[str, Meta(pattern=r"^([0-9A-Za-z_-]{1,200}\.(py)?plan)?$")]


class _Problem(msgspec.Struct):
    where: str
    what: str
    count: _Count


class _Layout(msgspec.Struct):
    shape: _Sizes | None
    stride: _Sizes | None
    data_type: str
    device: str
    alignment: _Count
    seen: _Count


class _Override(msgspec.Struct):
    uids: tuple[_Int64, ...]
    shapes: tuple[_Sizes, ...]
    strides: tuple[_Sizes, ...]
    calls: _Count


class _Graph(msgspec.Struct):
    nodes: tuple[str, ...]
    objects: _Count
    indexed: _Count
    looks: _Count
    captured: _Count
    other_overrides: _Count
    threads: dict[str, _Count]
    plans: dict[_File, _Count]
    layouts: dict[_Int64, list[_Layout]]
    overrides: list[_Override]
    reasons: list[str]


class _Usage(msgspec.Struct):
    version: Literal[1]
    problems: list[_Problem]
    graphs: dict[_Key, _Graph]


@dataclass
class Recording:
    """What a folder holds: graphs by fingerprint, and what went wrong with recording them."""

    graphs: dict[str, Tally] = field(default_factory=dict)
    processes: int = 0
    problems: Counter[tuple[str, str]] = field(default_factory=Counter)


def read_recording(folder: Path) -> Recording:
    """Read and add up what is in a folder.

    Raises
    ------
    RecordError
        Nothing was recorded there, or a usage file is not one.
    """
    files = sorted((folder / USAGE).glob("*.json"))
    if not files:
        raise RecordError(
            f"{shorten(str(folder), 200)}: expected a folder that cudnn-bindgen record wrote, got "
            f"none with {USAGE}/*.json"
        )
    recording = Recording()
    for file in files:
        try:
            _add(recording, msgspec.json.decode(read_file(file, _MAX_BYTES), type=_Usage))
        except (ValueError, RecursionError) as error:
            what = shorten(getattr(error, "problem", str(error)), 100)
            raise RecordError(
                f"{shorten(str(file), 300)}: expected what record writes, got {what}"
            ) from None
    return recording


def _add(recording: Recording, usage: _Usage) -> None:
    recording.processes += 1
    for problem in usage.problems:
        recording.problems[problem.where, problem.what] += problem.count
    for key, graph in usage.graphs.items():
        tally = recording.graphs.setdefault(key, Tally())
        tally.tags = tally.tags or graph.nodes
        for name in ("objects", "indexed", "looks", "captured", "other_overrides"):
            setattr(tally, name, getattr(tally, name) + getattr(graph, name))
        tally.threads.update(graph.threads)
        tally.plans.update(graph.plans)
        for uid, layouts in graph.layouts.items():
            seen = tally.layouts.setdefault(uid, Counter())
            for one in layouts:
                layout = Layout(one.shape, one.stride, one.data_type, one.device, one.alignment)
                seen[layout] += one.seen
        for item in graph.overrides:
            tally.overrides[Override(item.uids, item.shapes, item.strides)] += item.calls
        tally.reasons += [text for text in graph.reasons if text not in tally.reasons]
