"""Keys of graphs, by properties: what changes a graph changes its key, numbers and order do not."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents import DATA, PLANS, STRUCTURES, Document, file_id
from support.identities import (
    CAP,
    CASES,
    OPERAND,
    THREE,
    decode,
    encode,
    key,
    numbered_anew,
    operations,
)

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.lowering import ATTENTION

MOD = CASES / "score_mod"
MODIFIED = (CAP, OPERAND, MOD / "composite_cap30.plan", MOD / "backward_cap30.plan", THREE)
FILES = (
    *(path for path in PLANS if path.parent.name != "frontend-1.18"),  # structure v1
    *MODIFIED,
    *(path for path in STRUCTURES if path.stem not in ("dropout", "slice_concat")),
    *sorted((DATA / "frontends" / "1.32.0").glob("*.json")),
)
# Of a tensor: field → other values.
TENSOR = {
    "data_type": ("HALF", "FLOAT", "BFLOAT16", "INT32"),
    "alignment": (32, 64),
    "reordering_type": ("F16x16", "INT8x32"),
    "ragged_offset_multiplier": (3, 5),
}
VALUES: tuple[Any, ...] = (2, 3.5, "X", "3F800000", True, float("inf"), float("nan"), [1], {"a": 1})
# Of an operation of a score modifier: field → other values.
OPERATION = {
    "pointwiseMode": ("CUDNN_POINTWISE_ADD", "CUDNN_POINTWISE_MAX", "CUDNN_POINTWISE_POW"),
    "mathPrec": ("CUDNN_DATA_HALF", "CUDNN_DATA_INT32"),
    "alpha1": (0.5, 2.0),
    "new": (1, "X"),
}

Place = tuple[tuple[Any, ...], Any]


def graphs_of(raw: Document) -> Iterator[tuple[tuple[Any, ...], Document]]:
    """Yield where operations of a score modifier stand: in attention, or in the whole text."""
    if "cudnn_backend_data" not in raw or not raw["cudnn_backend_data"].get("operationGraph"):
        return
    path: tuple[Any, ...] = ("cudnn_backend_data", "operationGraph")
    yield path, operations(raw)
    for index, node in enumerate(operations(raw)["nodes"]):
        if "subgraph" in node:
            yield (*path, "nodes", index, "subgraph"), node["subgraph"]


@cache
def changes(path: Path) -> list[Place]:
    """Return every change of a file that makes another graph: where, and what stands there then."""
    raw = decode(path)
    found: list[Place] = []
    for index, node in enumerate(raw["nodes"]):
        fixed = {"name", "inputs", "outputs", "peer_stats"}
        fixed |= {"implementation"} if node["tag"] in ATTENTION else set()
        for name in [*sorted(node.keys() - fixed), "new"]:
            values = ("NEW", "NEWER") if name == "tag" else VALUES
            found += [(("nodes", index, name), value) for value in values]
    # Lowering makes it of an attribute.
    made = {node["inputs"].get("Attn_scale") for node in raw["nodes"] if node["tag"] in ATTENTION}
    for index, item in enumerate(raw["tensors"]):
        if item["uid"] in made and item["pass_by_value"]:
            continue
        where = ("tensors", index)
        found += [((*where, name), value) for name, all_ in TENSOR.items() for value in all_]
        for axis, size in enumerate(item["dim"]):
            found.append(((*where, "dim", axis), size + 1))
            found.append(((*where, "stride", axis), item["stride"][axis] + 8))
    if path in MODIFIED:
        for where, text in graphs_of(raw):
            for index in _of_the_modifier(text):
                for name, all_ in OPERATION.items():
                    found += [((*where, "nodes", index, name), value) for value in all_]
        found += [(place, value) for place, value in _constants(raw) for value in value]
    return [(where, value) for where, value in found if not is_same(look_up(raw, where), value)]


def _of_the_modifier(text: Document) -> list[int]:
    """Return the operations that no program but one with a soft cap has."""
    own = ("DIV", "TANH_FWD", "TANH_BWD")
    modes = [
        str(node.get("pointwiseMode", "")).removeprefix("CUDNN_POINTWISE_")
        for node in text["nodes"]
    ]
    return [index for index, mode in enumerate(modes) if mode in own]


def _constants(raw: Document) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    known = {str(item["uid"]) for item in raw["tensors"]}
    for uid, value in raw["pass_by_values"].items():
        if uid not in known and value["value"] == "41F00000":
            yield ("pass_by_values", uid, "value"), ("42000000", "C1F00000")
    for where, text in graphs_of(raw):
        for index, item in enumerate(text["tensors"]):
            if item.get("hasConstValue"):
                yield (*where, "tensors", index, "constValue"), (0.0, -0.0, 4, float("-inf"))


def look_up(raw: Any, where: tuple[Any, ...]) -> Any:
    for part in where:
        raw = raw.get(part) if isinstance(raw, dict) else raw[part]
    return raw


def is_same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


def changed(path: Path, place: Place) -> bytes:
    where, value = place
    raw = decode(path)
    *parents, last = where
    look_up(raw, tuple(parents))[last] = value
    return encode(raw)


def key_or_refusal(path: Path, place: Place) -> str | None:
    """Return the key of a changed file; None if it is no graph any more."""
    try:
        return key(changed(path, place))
    except GraphFormatError:
        return None


@pytest.mark.parametrize("path", MODIFIED, ids=file_id)
def test_each_change_of_a_graph_with_more_than_a_dump_says_makes_its_own(path: Path) -> None:
    before = key(path.read_bytes())
    keys: dict[str, Place] = {}
    for place in changes(path):
        found = key_or_refusal(path, place)
        if found is not None:
            assert found != before, place
            assert found not in keys, (place, keys[found])
            keys[found] = place
    assert len(keys) > 100


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_graphs_that_differ_never_share_a_key(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(FILES))
    one, other = (data.draw(st.sampled_from(changes(path))) for _ in range(2))
    keys = [key(path.read_bytes()), key_or_refusal(path, one)]
    if not is_same(one, other):
        keys.append(key_or_refusal(path, other))
    told = [found for found in keys if found is not None]
    assert len(set(told)) == len(told), (path, one, other)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(FILES), st.randoms(use_true_random=False))
def test_what_the_frontend_numbers_may_have_any_number(path: Path, rng: random.Random) -> None:
    raw = decode(path)
    numbers: dict[int, int] = {}

    def change(uid: int) -> int:
        while uid not in numbers:
            number = rng.randrange(2**33, 2**40)  # no caller's
            if number not in numbers.values():
                numbers[uid] = number
        return numbers[uid]

    again = numbered_anew(raw, change)
    assert key(encode(again)) == key(path.read_bytes())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODIFIED), st.randoms(use_true_random=False))
def test_the_order_in_which_cudnn_writes_is_not_in_it(path: Path, rng: random.Random) -> None:
    raw = copy.deepcopy(decode(path))
    for _, text in graphs_of(raw):
        rng.shuffle(text["nodes"])
        rng.shuffle(text["tensors"])
    assert key(encode(raw)) == key(path.read_bytes())
