"""The structure that a module carries along: what a plan is made of is all there, and no more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.documents import (
    DATA,
    HALF_INFERRED,
    add_graph,
    document,
    file_id,
    node,
    plan_document,
    scalar,
    tensor,
)
from support.emitting import record_of
from support.hostile_encoding import encode_json, encode_ubjson
from support.identities import CAP, OPERAND, TWO
from support.mutations import Seed

from codegen.test_same_graph import FILES, LOGS
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.read.graph import list_graphs, read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.frontend.planning.make_plan import read_input
from cudnn_bindgen.frontend.planning.structure import Structure

KEPT = ["context", "json_version", "nodes", "tensors"]


def placeless(structure: Structure) -> Structure:
    """What a plan depends on: not where in the file it stood, nor what an older plan bound."""
    return replace(structure, paths={}, bound=None)


def emitted_structure(data: bytes) -> bytes:
    """Return `_STRUCTURE` of the module that is emitted."""
    text = render(bind(read_graph(data)), "module", "source")["module.pyx"]
    return record_of(text).graphs[0].structure


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_an_emitted_structure_is_read_as_the_file_is(path: Path) -> None:
    data = path.read_bytes()
    text = emitted_structure(data)
    assert placeless(read_input(text)) == placeless(read_input(data))
    assert read_graph(text).source == text, "read again, it stays what it is"
    assert bind(read_graph(text)).fingerprint == bind(read_graph(data)).fingerprint


@pytest.mark.parametrize("path", LOGS, ids=file_id)
def test_the_graphs_of_logs(path: Path) -> None:
    data = path.read_bytes()
    entries = list_graphs(data)
    assert any(entry.graph for entry in entries)
    for index, entry in enumerate(entries, 1):
        if entry.graph:
            logged = read_input(data, reading=ReadOptions(index=index))
            assert placeless(read_input(entry.graph.source)) == placeless(logged)


def test_each_file_of_the_data_is_looked_at() -> None:
    seen = {path.name for path in FILES}
    for path in (DATA / "structure-v2").glob("*.json"):
        assert path.name in seen or path.stem in HALF_INFERRED


def test_what_only_a_plan_says_is_kept_beside_the_structure() -> None:
    for path in (CAP, TWO, OPERAND):
        graph = read_graph(path.read_bytes())
        again = read_graph(graph.source)
        assert fingerprint(again) == fingerprint(graph)
        constants = [[item.constant for item in each.tensors] for each in (again, graph)]
        assert constants[0] == constants[1]
        assert sorted(json.loads(graph.source)) == sorted([*KEPT, "only_in_plan"])


def test_nulls_and_attributes_are_kept_and_what_a_reader_fills_in_is_not() -> None:
    raw = document(
        [
            node("POINTWISE", {"IN_0": 1, "IN_1": 3}, {"OUT_0": 2}, mode="ADD", axis=None),
            node("POINTWISE", {"IN_0": 2, "IN_1": 3}, {"OUT_0": 4}, mode="ADD", later=[1, -0.0]),
        ],
        [
            tensor(2, data_type=None, is_virtual=True, reordering_type=None) | {"name": None},
            tensor(1, "a\u00e9'\\\n", ragged_offset_uid=None, alignment=16, later_field=1),
            tensor(3, "y"),
            tensor(4, "z"),
        ],
        gid=7,
        cudnn_frontend_version=13200,
        cudnn_backend_version="9.19.0",
    )
    written = json.loads(read_graph(encode_json(raw)).source)
    assert sorted(written) == KEPT
    assert written["nodes"] == json.loads(encode_json(raw))["nodes"]
    assert str(written["nodes"][1]["later"][1]) == "-0.0"
    first, second, *_ = written["tensors"]
    assert set(first) == {"uid", "name", "dim", "stride", "data_type"}
    assert first["name"] == "a\u00e9'\\\n"
    assert {key for key, value in second.items() if value is None} == {
        *("data_type", "name", "reordering_type"),
    }
    assert emitted_structure(encode_json(raw)) == read_graph(encode_json(raw)).source


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**80, 1e300, 0.1, -0.0, "FF800000", [[]]])
def test_any_value_of_an_attribute_is_kept(value: Any) -> None:
    raw = add_graph()
    raw["nodes"][0]["odd"] = value
    data = encode_json(raw)
    assert placeless(read_input(read_graph(data).source)) == placeless(read_input(data))
    if not isinstance(value, int) or value < 2**64:
        packed = encode_ubjson(raw)
        assert placeless(read_input(read_graph(packed).source)) == placeless(read_input(packed))


def test_values_of_scalars_are_kept_to_the_bit() -> None:
    values = [(4, -0.0), (4, 0.1), (4, 1e-320), (3, "3E000000"), (0, 2**62), (4, 3)]
    tensors = [tensor(1, "x"), tensor(2, "y")]
    nodes = []
    for number, (index, value) in enumerate(values):
        tensors.append(scalar(10 + number, f"s{number}", {"index": index, "value": value}))
        last = number == len(values) - 1
        out = 2 if last else 30 + number
        if not last:
            tensors.append(tensor(out, f"t{number}", is_virtual=True))
        before = 29 + number if number else 1
        nodes.append(node("POINTWISE", {"IN_0": before, "IN_1": 10 + number}, {"OUT_0": out}))
    data = encode_json(document(nodes, tensors))
    before, after = read_input(data), read_input(read_graph(data).source)
    assert placeless(before) == placeless(after)
    for number in range(len(values)):
        one, other = before.value(10 + number), after.value(10 + number)
        assert one is not None
        assert one == other


def test_a_value_that_json_has_no_number_for_is_refused_when_a_plan_is_made() -> None:
    infinite = {"index": 4, "value": float("-inf")}
    raw = document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 3}, {"OUT_0": 2}, mode="ADD")],
        [tensor(1, "x"), tensor(2, "y"), scalar(3, "low", infinite)],
    )
    text = emitted_structure(encode_ubjson(plan_document(raw)))
    with pytest.raises(GraphFormatError, match="expected the value of a DOUBLE, got null"):
        read_input(text)


def test_the_order_of_a_file_and_its_number_change_nothing() -> None:
    for path in FILES[::7]:
        seed = Seed(path.name, path.read_bytes())
        raw = seed.decode()
        again = dict(reversed(raw.items())) | {"gid": 4711, "graph_uid": 4711}
        if isinstance(raw["tensors"], list):
            again["tensors"] = raw["tensors"][::-1]
        data = encode_ubjson(again) if seed.is_binary else encode_json(again)
        assert read_graph(data).source == read_graph(seed.data).source
