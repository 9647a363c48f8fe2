"""A graph gives the same text however its file is laid out: order, number of the graph, release."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.documents import DATA, READABLE, file_id
from support.hostile_encoding import encode_json, encode_ubjson
from support.mutations import Seed

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.graph import list_graphs, read_graph
from cudnn_bindgen.codegen.render.module import render

DUMPS = sorted((DATA / "frontends").glob("*/*.json"))
LOGS = sorted((DATA / "frontends").glob("*/*.log"))
MADE = sorted((DATA / "made").glob("*.plan"))
# Keys whose objects stand for themselves, whose order means nothing.
UNORDERED_LISTS = ("tensors", "variant_pack_uids", "variant_pack_replacements")


def emitted(data: bytes) -> dict[str, str]:
    return render(bind(read_graph(data)), "module", "source")


def is_readable(path: Path) -> bool:
    try:
        read_graph(path.read_bytes())
    except GraphFormatError:
        return False
    return True


FILES = [*READABLE, *MADE, *filter(is_readable, DUMPS)]


def turned(value: Any, rng: random.Random) -> Any:
    """Shuffle the keys of all objects."""
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: turned(value[key], rng) for key in keys}
    return [turned(item, rng) for item in value] if isinstance(value, list) else value


def laid_out_anew(raw: Any, rng: random.Random) -> Any:
    """Write the same graph as another process, or a patch release of the frontend, would."""
    again = turned(raw, rng)
    for field in UNORDERED_LISTS:
        if isinstance(again.get(field), list):
            rng.shuffle(again[field])
    for field in ("gid", "graph_uid"):
        if field in again:
            again[field] += 1000
    again["cudnn_frontend_version"] += 1
    again["cudnn_backend_version"] = "9.99.9"
    return again


def test_enough_files_are_readable() -> None:
    versions = {path.parent.name for path in FILES}
    assert {"1.18.0", "1.23.0", "1.26.0", "1.29.1", "1.32.0"} <= versions
    assert len(FILES) > 170


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_a_file_laid_out_anew_gives_the_same_text(path: Path) -> None:
    seed = Seed(path.name, path.read_bytes())
    expected = emitted(seed.data)
    for number in range(2):
        raw = laid_out_anew(seed.decode(), random.Random(number))
        data = encode_ubjson(raw) if seed.is_binary else encode_json(raw)
        assert data != seed.data
        assert emitted(data) == expected


@pytest.mark.parametrize("path", LOGS, ids=file_id)
def test_another_number_of_a_graph_in_a_log_changes_nothing(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    again = []
    for number, line in enumerate(lines):
        if line.startswith('{"context"'):
            raw = laid_out_anew(json.loads(line), random.Random(number))
            # The context comes first, which is how a dump is found.
            raw = {"context": raw["context"]} | raw
            line = json.dumps(raw, separators=(",", ":"))
        again.append(line)
    first, second = (list_graphs("\n".join(text).encode()) for text in (lines, again))
    assert [entry.line for entry in first] == [entry.line for entry in second]
    assert [entry.graph for entry in first] == [entry.graph for entry in second]


@pytest.mark.parametrize("path", MADE, ids=file_id)
def test_the_older_form_of_a_plan_means_the_same(path: Path) -> None:
    one, other = (bind(read_graph(made.read_bytes())) for made in (MADE[0], path))
    assert one.arguments == other.arguments
    assert one.plans == other.plans
