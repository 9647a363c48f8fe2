from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.documents import (
    PLANS,
    Document,
    bind_document,
    document,
    file_id,
    node,
    plan_document,
    scalar,
    tensor,
    to_json,
    to_ubjson,
)
from support.hostile_encoding import encode_ubjson

from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.read.graph import read_graph

Edit = Callable[[Document], Any]


def graph() -> Document:
    return document(
        [
            node(
                "BATCHNORM", {"X": 1, "EPSILON": 2}, {"Y": 3}, peer_stats=[tensor(7, "p")], mode=1
            ),
            node("POINTWISE", {"IN_0": 3, "IN_1": 1}, {"OUT_0": 4}, relu_lower_clip=0.5),
        ],
        [
            tensor(1, "x", ragged_offset_uid=5, ragged_offset_multiplier=1),
            scalar(2, "eps", {"index": 3, "value": "3F000000"}),
            tensor(3, is_virtual=True),
            tensor(4, "y"),
            tensor(5),
        ],
    )


def digest(raw: Document) -> str:
    return bind_document(raw).fingerprint


def tensor_with(index: int, **fields: Any) -> Edit:
    return lambda raw: raw["tensors"][index].update(fields)


def node_with(index: int, **fields: Any) -> Edit:
    return lambda raw: raw["nodes"][index].update(fields)


def test_it_is_32_hex_digits_that_never_change_between_versions() -> None:
    assert re.fullmatch("[0-9a-f]{32}", digest(graph()))
    # Modules that are in use refuse plans of another fingerprint: a new one breaks them all.
    assert digest(graph()) == "e987fa5a27cecc240c634674a2ba41cf"


@pytest.mark.parametrize("path", PLANS, ids=file_id)
def test_a_plan_has_the_fingerprint_of_the_dump_beside_it(path: Path) -> None:
    structure = read_graph(path.with_suffix(".json").read_bytes())
    assert fingerprint(read_graph(path.read_bytes())) == fingerprint(structure)


def test_real_graphs_differ() -> None:
    names = {path.stem: fingerprint(read_graph(path.read_bytes())) for path in PLANS}
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize(
    "fields",
    [
        {"gid": 99},
        {"graph_uid": 5},
        {"cudnn_backend_version": "9.99.0"},
        {"cudnn_frontend_version": 99999},
        {"new": {"field": [1]}},
    ],
)
def test_what_changes_from_process_to_process_is_not_in_it(fields: Document) -> None:
    assert digest(graph() | fields) == digest(graph())


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_the_file_is_not_in_it(seed: int) -> None:
    shuffle = random.Random(seed).shuffle

    def reordered(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(key, reordered(item)) for key, item in value.items()]
            shuffle(items)
            return dict(items)
        return [reordered(item) for item in value] if isinstance(value, list) else value

    raw = reordered(graph())
    shuffle(raw["tensors"])
    assert digest(raw) == digest(graph())


@pytest.mark.parametrize("name", ["other", "", None, "tensor_7"])
def test_names_are_labels(name: str | None) -> None:
    raw = graph()
    for item in [*raw["nodes"], *raw["tensors"], *raw["nodes"][0]["peer_stats"]]:
        if item["name"] != "eps":
            item["name"] = name
    assert digest(raw) == digest(graph())


def test_a_scalar_with_a_value_is_a_callers_by_its_name() -> None:
    raw, anew, renamed = graph(), graph(), graph()
    renamed["tensors"][1]["name"] = "epsilon"
    assert digest(renamed) == digest(raw)
    raw["tensors"][1]["name"] = anew["tensors"][1]["name"] = ""  # a constant: nobody passes it
    anew["tensors"][1]["uid"] = anew["nodes"][0]["inputs"]["EPSILON"] = 77
    assert digest(graph()) != digest(raw) == digest(anew)


def test_defaults_may_be_written_or_left_out() -> None:
    raw = graph()
    raw["tensors"][0]["alignment"] = 16
    raw["tensors"][3]["data_type"] = None  # inherits the same
    del raw["tensors"][4]["is_virtual"]
    assert digest(raw) == digest(graph())


def test_the_plan_and_the_encoding_are_not_in_it() -> None:
    other = plan_document(graph(), fe_workspace_size=5, variant_pack_uids=[1, 4])
    assert digest(other) == digest(graph())
    as_ubjson, as_json = read_graph(to_ubjson(graph())), read_graph(to_json(graph()))
    assert fingerprint(as_ubjson) == fingerprint(as_json)


@pytest.mark.parametrize(
    "attribute", [{"new": None}, {"new": False}, {"compute_data_type": "FLOAT"}, {"name": "n"}]
)
def test_attributes_that_newer_frontends_add_at_their_default_are_not_in_it(
    attribute: Document,
) -> None:
    raw = graph()
    raw["nodes"][1].update(attribute)
    assert digest(raw) == digest(graph())


CHANGES: dict[str, Edit] = {
    "dim": tensor_with(0, dim=[2, 5]),
    "stride": tensor_with(0, stride=[5, 1]),
    "order of axes": tensor_with(0, dim=[4, 2], stride=[1, 4]),
    "data type": tensor_with(0, data_type="HALF"),
    "virtual": tensor_with(2, is_virtual=False),
    "reordering": tensor_with(0, reordering_type="F16x16"),
    "alignment": tensor_with(0, alignment=32),
    "ragged offset": tensor_with(0, ragged_offset_uid=None),
    "ragged multiplier": tensor_with(0, ragged_offset_multiplier=2),
    "scalar's value": tensor_with(1, pass_by_value={"index": 3, "value": "3F000001"}),
    "scalar's type": tensor_with(
        1, pass_by_value={"index": 1, "value": 0x3F000000}, data_type="INT32"
    ),
    "scalar's lack of a value": tensor_with(1, pass_by_value=None),
    "tag": node_with(1, tag="MATMUL"),
    "port": node_with(1, inputs={"IN_0": 3, "IN_2": 1}),
    "ports swapped": node_with(1, inputs={"IN_0": 1, "IN_1": 3}),
    "attribute": node_with(1, relu_lower_clip=0.25),
    "attribute of another type": node_with(0, mode="1"),
    "attribute that was not there": node_with(1, new=0),
    "attribute in another's place": node_with(0, mode=None, new=1),
    "peer's shape": lambda raw: raw["nodes"][0]["peer_stats"][0].update(dim=[4, 2]),
    "no peer": node_with(0, peer_stats=[]),
    "order of nodes": lambda raw: raw["nodes"].reverse(),
    "another tensor": lambda raw: raw["tensors"].append(tensor(9)),
    "override flag": lambda raw: raw["context"].update(is_override_shape_enabled=True),
    "dynamic flag": lambda raw: raw["context"].update(is_dynamic_shape_enabled=True),
    "compute type of a node": node_with(1, compute_data_type="HALF"),
    "compute type": lambda raw: raw["context"].update(compute_data_type="HALF"),
    "intermediate type": lambda raw: raw["context"].update(intermediate_data_type="HALF"),
}


@pytest.mark.parametrize("edit", CHANGES.values(), ids=CHANGES)
def test_what_makes_another_graph_changes_it(edit: Edit) -> None:
    raw = graph()
    edit(raw)
    assert digest(raw) != digest(graph())


def test_every_change_makes_its_own() -> None:
    digests = set()
    for edit in CHANGES.values():
        raw = graph()
        edit(raw)
        digests.add(digest(raw))
    assert len(digests) == len(CHANGES)


def test_a_uid_that_callers_bind_is_part_of_the_graph() -> None:
    raw = graph()
    raw["tensors"][3]["uid"] = 40
    raw["nodes"][1]["outputs"]["OUT_0"] = 40
    assert digest(raw) != digest(graph())


def test_the_number_of_a_virtual_tensor_is_not() -> None:
    raw = graph()
    raw["tensors"][2]["uid"] = 40
    raw["nodes"][0]["outputs"]["Y"] = raw["nodes"][1]["inputs"]["IN_0"] = 40
    assert digest(raw) == digest(graph())
    # Which of two is read where is.
    swapped = graph()
    swapped["nodes"][0]["outputs"]["MEAN"] = 8
    swapped["tensors"].append(tensor(8, is_virtual=True))
    before = digest(swapped)
    swapped["nodes"][1]["inputs"]["IN_0"] = 8
    assert digest(swapped) != before


def test_numbers_that_json_has_none_for_are_told_apart() -> None:
    digests = set()
    for number in (float("inf"), float("-inf"), float("nan"), 0.0, -0.0, None, "inf"):
        raw = plan_document(graph(), variant_pack_uids=[1, 2, 4, 5, 7])
        raw["nodes"][1]["padding_value"] = number
        digests.add(fingerprint(read_graph(encode_ubjson(raw))))
    assert len(digests) == 7
