"""What differs between two structures is found and named; what only looks different is not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.documents import (
    DATA,
    HALF_INFERRED,
    STRUCTURES,
    Document,
    document,
    file_id,
    node,
    plan_document,
    scalar,
    to_ubjson,
)
from support.documents import tensor as tensor_document

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.graph import read_document
from cudnn_bindgen.frontend.planning.compare import Difference, check_same, compare
from cudnn_bindgen.frontend.planning.lowering import undo_lowering
from cudnn_bindgen.frontend.planning.structure import Structure, read_structure

FILES = [
    *(path for path in STRUCTURES if path.stem not in HALF_INFERRED),
    *sorted((DATA / "frontends" / "1.32.0").glob("*.json")),
]
LOWERED = DATA / "plans" / "cudnn-9.19-sm90"
Path_ = tuple[str | int, ...]


def structure_of(raw: Document) -> Structure:
    return undo_lowering(read_structure(read_document(json.dumps(raw).encode())))


def differences(before: Document, after: Document) -> list[Difference]:
    return list(compare(structure_of(before), structure_of(after)))


def leaves(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield where something stands that can be changed by itself."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def other(value: Any) -> Any:
    """Return something else of the same type, or of some type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, list):
        return [*value[:-1], value[-1] + 1] if value else [1]
    return {"FLOAT": "HALF", None: "x"}.get(value, f"{value}x" if value else "x")


def changed(raw: Document, path: Path_) -> Document:
    again = copy.deepcopy(raw)
    *outer, last = path
    place: Any = again
    for key in outer:
        place = place[key]
    place[last] = other(place[last])
    return again


def written(path: Path_) -> str:
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_every_change_is_found(path: Path) -> None:
    raw = json.loads(path.read_bytes())
    assert differences(raw, raw) == []
    tried = 0
    for place in leaves({key: raw[key] for key in ("context", "nodes", "tensors")}):
        # The first repeats the name of the tensor that ragged_offset_uid means; the second may
        # become true.
        if place[-1] in ("ragged_offset_name", "is_deterministic_algorithm"):
            continue
        try:
            found = differences(raw, changed(raw, place))
        except GraphFormatError:
            continue  # no graph any more
        assert found, written(place)
        tried += 1
        is_reference = place[-1] in ("uid", "ragged_offset_uid") or place[-2] in (
            *("inputs", "outputs"),
        )
        if not is_reference and "peer_stats" not in place and place[-1] != "pass_by_value":
            named = [item.path for item in found]
            assert any(written(place).startswith(name) for name in named), (place, named)
    assert tried > 8


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_what_a_process_or_a_release_writes_is_not_compared(path: Path) -> None:
    raw = json.loads(path.read_bytes())
    again = raw | {
        "gid": raw["gid"] + 7,
        "cudnn_frontend_version": 13300,
        "cudnn_backend_version": "9.99.0",
        "tensors": raw["tensors"][::-1],
    }
    assert differences(raw, again) == []


def one_node(tag: str = "POINTWISE", **fields: Any) -> Document:
    fields = {"mode": "RELU_FWD", "name": "n"} | fields
    operands = [tensor_document(1, "x"), tensor_document(2, "y")]
    port = "IN_0" if tag == "POINTWISE" else "X"
    output = "OUT_0" if tag == "POINTWISE" else "Y"
    return document([node(tag, {port: 1}, {output: 2}, **fields)], operands)


SAME = {
    "null and false": ({"axis": None, "unfuse_fma": False}, {}),
    "the graph's own type": ({"compute_data_type": "FLOAT"}, {"compute_data_type": None}),
    "an unnamed node": ({"name": ""}, {"name": "0"}),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_in_two_ways(name: str) -> None:
    before, after = SAME[name]
    assert differences(one_node(**before), one_node(**after)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"axis": 0}, {"axis": None}),
        ({"axis": 0}, {"axis": False}),
        ({"axis": 1}, {"axis": True}),
        ({"clip": 0.0}, {"clip": -0.0}),
        ({"clip": 1}, {"clip": 1.0}),
        ({"compute_data_type": "HALF"}, {"compute_data_type": None}),
        ({"name": "m"}, {"name": "n"}),
    ],
)
def test_what_looks_the_same_and_is_not(before: Document, after: Document) -> None:
    (found,) = differences(one_node(**before), one_node(**after))
    assert found.path == f"$.nodes[0].{next(iter(before))}"


def test_a_reshape_may_repeat_the_shape_of_its_output() -> None:
    plain = one_node("RESHAPE", dim=[], stride=[])
    assert differences(one_node("RESHAPE", dim=[2, 4], stride=[4, 1]), plain) == []
    (found,) = differences(one_node("RESHAPE", dim=[4, 2], stride=[]), plain)
    assert found.path == "$.nodes[0].dim"


def test_older_frontends_have_one_kind_of_slice_and_reshape() -> None:
    before = one_node("SLICE", slices=[[0, 2], [0, 4]])
    assert differences(before, one_node("SLICE", **{**_slice(), "slice_strides": [1, 1]})) == []
    assert differences(before, one_node("SLICE", **{**_slice(), "slice_strides": [1, 2]}))
    assert differences(one_node("RESHAPE"), one_node("RESHAPE", reshape_mode="VIEW_ONLY")) == []
    assert differences(one_node("RESHAPE"), one_node("RESHAPE", reshape_mode="LOGICAL"))


def _slice() -> Document:
    return {"slices": [[0, 2], [0, 4]]}


def test_a_type_that_is_not_stated_is_the_graphs() -> None:
    before, after = one_node(), one_node()
    before["tensors"][1]["data_type"] = None
    assert differences(before, after) == []
    after["tensors"][1]["data_type"] = "HALF"
    assert [item.path for item in differences(before, after)] == ["$.tensors[1].data_type"]


def test_a_count_of_processors() -> None:
    before, after = one_node(), one_node()
    before["context"]["sm_count"] = -1
    assert differences(before, after) == []
    after["context"]["sm_count"] = 8
    assert [str(item) for item in differences(before, after)] == [
        "$.context.sm_count: expected none, got 8"
    ]


def test_a_missing_node_and_a_missing_tensor() -> None:
    before = one_node()
    after = copy.deepcopy(before)
    after["nodes"].append(node("POINTWISE", {"IN_0": 1}, {"OUT_0": 3}, mode="EXP"))
    after["tensors"].append(tensor_document(3, "z"))
    assert [str(item) for item in differences(before, after)] == [
        "$.nodes: expected 1, got 2",
        "$.tensors.uid: expected none, got 3",
    ]
    assert [str(item) for item in differences(after, before)] == [
        "$.nodes: expected 2, got 1",
        "$.tensors[2].uid: expected 3, got none",
    ]


def test_the_error_names_the_first_differences() -> None:
    before, after = one_node(), one_node(mode="EXP", axis=1)
    after["tensors"][0] |= {"dim": [2, 5], "stride": [5, 1], "name": "u\nx"}
    with pytest.raises(PlanError) as caught:
        check_same(structure_of(before), structure_of(after), frozenset())
    assert caught.value.path == "$.nodes[0].axis"
    assert caught.value.problem == (
        "the rebuilt graph differs: expected none, got 1; $.nodes[0].mode: expected 'RELU_FWD', "
        "got 'EXP'; $.tensors[0].dim: expected [2, 4], got [2, 5]; and 2 more"
    )
    assert str(caught.value).isascii()
    check_same(structure_of(before), structure_of(before), frozenset())


# Lowering


@pytest.mark.parametrize("name", ["sdpa_dense", "sdpa_thd"])
def test_lowering_is_undone(name: str) -> None:
    """The file was written after lowering: K is turned, the scale has become a tensor."""
    raw = json.loads((LOWERED / f"{name}.json").read_bytes())
    plain = undone_by_hand(raw)
    assert differences(raw, plain) == differences(plain, raw) == []
    lowered = read_structure(read_document(json.dumps(raw).encode()))
    untouched = read_structure(read_document(json.dumps(plain).encode()))
    assert list(compare(lowered, untouched))
    assert undo_lowering(untouched) == untouched


def undone_by_hand(raw: Document) -> Document:
    """Write what the frontend dumps before lowering."""
    plain = copy.deepcopy(raw)
    (attention,) = plain["nodes"]
    scale = attention["inputs"].pop("Attn_scale")
    plain["tensors"] = [item for item in plain["tensors"] if item["uid"] != scale]
    for item in plain["tensors"]:
        if item["uid"] == attention["inputs"]["K"]:
            for field in ("dim", "stride"):
                item[field] = [item[field][axis] for axis in (0, 1, 3, 2)]
    return plain


def test_a_scale_that_is_another_value_stays() -> None:
    raw = json.loads((LOWERED / "sdpa_dense.json").read_bytes())
    for item in raw["tensors"]:
        if item["pass_by_value"]:
            item["pass_by_value"]["value"] = "3F000000"
    assert "Attn_scale" in dict(structure_of(raw).nodes[0].optional)


def test_gradients_turn_k_and_v() -> None:
    raw = json.loads((DATA / "structure-v2" / "sdpa_bwd.json").read_bytes())
    turned = copy.deepcopy(raw)
    for item in turned["tensors"]:
        if item["name"] in ("K", "V"):
            for field in ("dim", "stride"):
                item[field] = [item[field][axis] for axis in (0, 1, 3, 2)]
    assert differences(raw, turned) == []
    for item in turned["tensors"]:  # Q never is
        if item["name"] == "Q":
            item["stride"] = [item["stride"][axis] for axis in (0, 1, 3, 2)]
            item["dim"] = [item["dim"][axis] for axis in (0, 1, 3, 2)]
    assert differences(raw, turned)


def test_what_turns_k_in_another_graph_stays() -> None:
    """Only attention does that; a transposed operand of a product is one."""
    raw = document(
        [node("MATMUL", {"A": 1, "B": 2}, {"C": 3}, name="m")],
        [
            tensor_document(1, dim=[1, 1, 4, 4], stride=[16, 16, 4, 1]),
            tensor_document(2, dim=[1, 1, 4, 4], stride=[16, 16, 1, 4]),
            tensor_document(3, dim=[1, 1, 4, 4], stride=[16, 16, 4, 1]),
        ],
    )
    assert undo_lowering(structure_of(raw)).tensors[2].stride == [16, 16, 1, 4]


def test_names_of_constants_are_the_frontends() -> None:
    operands = [tensor_document(1, "x"), scalar(2, "alpha"), tensor_document(3, "y")]
    before = document([node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3})], operands)
    after = copy.deepcopy(before)
    after["tensors"][1]["name"] = "mul::IN_1"
    assert [item.path for item in differences(before, after)] == ["$.tensors[1].name"]
    assert not list(compare(structure_of(before), structure_of(after), frozenset({2})))


def test_what_is_not_inferred_may_become_anything_but_an_input_may_not() -> None:
    before, after = one_node(), one_node()
    before["tensors"][1] |= {"dim": [], "stride": []}
    assert differences(before, after) == []
    assert [item.path for item in differences(after, before)] == [
        "$.tensors[1].dim",
        "$.tensors[1].stride",
    ]
    before["tensors"][0] |= {"dim": [], "stride": []}
    with pytest.raises(GraphFormatError, match="expected the shape of an operand"):
        structure_of(before)


def test_padding_that_the_frontend_added_is_taken_out() -> None:
    raw = json.loads((DATA / "structure-v2" / "sdpa_bwd.json").read_bytes())
    padded = copy.deepcopy(raw)
    (attention,) = padded["nodes"]
    attention["padding_mask"] = True
    attention["inputs"] |= {"SEQ_LEN_Q": 50, "SEQ_LEN_KV": 51}
    shape = {"dim": [3, 1, 1, 1], "stride": [1, 1, 1, 1], "data_type": "INT32"}
    for uid, side in ((50, "q"), (51, "kv")):
        padded["tensors"].append(
            tensor_document(uid, f"workaround_padding_mask_seq_len_{side}", **shape)
        )
    assert differences(raw, padded) == differences(padded, raw) == []
    planned = read_structure(read_document(to_ubjson(plan_document(padded))))
    assert undo_lowering(planned) == planned  # its callers pass them
    padded["tensors"][-1]["name"] = "seq_len_kv"  # a user's
    assert differences(raw, padded)


def test_a_gpu_that_has_deterministic_kernels_only() -> None:
    raw = json.loads((DATA / "structure-v2" / "sdpa_bwd.json").read_bytes())
    forced = copy.deepcopy(raw)
    forced["nodes"][0]["is_deterministic_algorithm"] = True
    assert differences(raw, forced) == []
    (found,) = differences(forced, raw)
    assert found.path == "$.nodes[0].is_deterministic_algorithm"
