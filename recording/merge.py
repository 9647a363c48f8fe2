"""The usage files of a folder, of all processes and runs, added up."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudnn_bindgen.codegen.errors import RecordError
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.recording.files import USAGE
from cudnn_bindgen.recording.observe import Layout, Override
from cudnn_bindgen.recording.tally import Tally

_VERSION = 1


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
            f"{folder}: expected a folder that cudnn-bindgen record wrote, got none with "
            f"{USAGE}/*.json"
        )
    recording = Recording()
    for file in files:
        try:
            _add(recording, json.loads(file.read_bytes()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = shorten(f"{type(error).__name__}: {error}")
            raise RecordError(f"{file}: expected what record writes, got {what}") from None
    return recording


def _add(recording: Recording, document: dict[str, Any]) -> None:
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']}")
    recording.processes += 1
    for problem in document["problems"]:
        recording.problems[problem["where"], problem["what"]] += problem["count"]
    for key, graph in document["graphs"].items():
        tally = recording.graphs.setdefault(key, Tally())
        tally.tags = tally.tags or tuple(graph["nodes"])
        for name in ("objects", "indexed", "looks", "captured", "other_overrides"):
            setattr(tally, name, getattr(tally, name) + int(graph[name]))
        tally.threads.update(graph["threads"])
        tally.plans.update(graph["plans"])
        for uid, layouts in graph["layouts"].items():
            seen = tally.layouts.setdefault(int(uid), Counter())
            for item in layouts:
                seen[_layout(item)] += item["seen"]
        for item in graph["overrides"]:
            tally.overrides[_override(item)] += item["calls"]
        tally.reasons += [text for text in graph["reasons"] if text not in tally.reasons]


def _layout(item: dict[str, Any]) -> Layout:
    shape, stride = (None if item[n] is None else tuple(item[n]) for n in ("shape", "stride"))
    return Layout(shape, stride, item["data_type"], item["device"], item["alignment"])


def _override(item: dict[str, Any]) -> Override:
    return Override(
        tuple(item["uids"]), tuple(map(tuple, item["shapes"])), tuple(map(tuple, item["strides"]))
    )
