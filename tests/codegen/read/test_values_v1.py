"""Values of structure v1: scalars by the release's index, and the tables of an older plan."""

from __future__ import annotations

from typing import Any

import pytest
from support.documents import (
    Document,
    bind_document,
    node,
    plan_document,
    scalar,
    to_json,
    to_ubjson,
    with_remedy,
)
from support.documents_v1 import BY_NAME, BY_UID, old_add, old_document, old_scalar, old_tensor

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph

FLOAT_ONE = "3F800000"


def read(raw: Document) -> Graph:
    encode = to_ubjson if "cudnn_backend_data" in raw else to_json
    return read_graph(encode(raw), "F")


SCALARS = [
    *((10600, 0, 5, "INT32"), (10700, 1, FLOAT_ONE, "HALF"), (10700, 2, FLOAT_ONE, "FLOAT")),
    *((10799, 3, FLOAT_ONE, "BFLOAT16"), (10800, 0, 5, "INT64"), (10800, 1, 5, "INT32")),
    *((12200, 2, FLOAT_ONE, "HALF"), (12201, 3, FLOAT_ONE, "FLOAT")),
    *(
        (12299, 4, FLOAT_ONE, "BFLOAT16"),
        (12300, 4, 1.0, "DOUBLE"),
        (12600, 5, FLOAT_ONE, "BFLOAT16"),
    ),
]


@pytest.mark.parametrize(("number", "index", "written", "data_type"), SCALARS)
def test_a_scalars_index_means_what_it_meant_then(
    number: int, index: int, written: Any, data_type: str
) -> None:
    value = {"index": index, "value": written}
    one = old_scalar("b", value, data_type=data_type)
    raw = old_add(number)
    raw["tensors"]["b"] = one
    (found,) = (item.value for item in read(raw).tensors if item.value)
    assert (found.data_type, found.value) == (data_type, 5 if written == 5 else 1.0)
    # And so do the constants of a plan, as pairs and as an object.
    for table in ([[50, value]], {"50": value}):
        plan = read(old_plan(number, pass_by_values=table)).plan
        assert plan is not None
        ((uid, constant),) = plan.constants
        assert (uid, constant.data_type, constant.value) == (50, data_type, found.value)


def old_plan(number: int = BY_UID, **fields: Any) -> Document:
    """A plan as those frontends write one: when it is made, all uids are assigned."""
    names = number < 11900
    x, y = ("x", "y") if names else (1, 2)
    raw = old_document(
        [node("RESHAPE", {"X": x}, {"Y": y})], [old_tensor("x", 1), old_tensor("y", 2)], number
    )
    whole = plan_document(raw | {"tensors": list(raw["tensors"].values())})
    return whole | {"tensors": raw["tensors"]} | fields


def test_tables_of_a_plan_as_pairs_are_those_of_objects() -> None:
    part = [1, 16, ["41000000"]]
    old = old_plan(BY_NAME, workspace_modifications=[[60, part], [-3, [2, 0, []]]])
    new = old_plan(BY_UID, workspace_modifications={"60": part, "-3": [2, 0, []]})
    one, other = (read(raw | {"fe_workspace_size": 64}).plan for raw in (old, new))
    assert one == other
    assert one is not None
    assert [part.uid for part in one.workspace_parts] == [-3, 60]
    empty = read(old_plan(BY_NAME, pass_by_values=[], workspace_modifications=[])).plan
    assert empty == read(old_plan()).plan


def test_a_plan_may_bind_whatever_the_file_has() -> None:
    nodes = [node("BATCHNORM", {"X": 1}, {"Y": 2}, peer_stats=[old_tensor("p", 5)])]
    raw = old_plan(
        nodes=nodes,
        variant_pack_uids=[1, 2, 5, 50, 60, 70],
        pass_by_values={"50": {"index": 0, "value": 1}},
        workspace_modifications={"60": [2, 0, []]},
        variant_pack_replacements=[[1, [70, 0]]],
    )
    assert [argument.uid for argument in bind_document(raw).arguments] == [1, 5, 2]


PAIRS: dict[str, tuple[Document, str]] = {
    "uid twice": (
        {"workspace_modifications": [[60, [2, 0, []]], [60, [2, 0, []]]]},
        "$.workspace_modifications[1][0]: expected each uid once, got 60 twice",
    ),
    "no pair": (
        {"pass_by_values": [[50]]},
        "$.pass_by_values[0]: expected array of length 2, got 1",
    ),
    "uid as text": (
        {"pass_by_values": [["50", {"index": 0, "value": 1}]]},
        "$.pass_by_values[0][0]: expected int, got str",
    ),
    "no scalar": (
        {"pass_by_values": [[50, 1]]},
        "$.pass_by_values[...]: expected object, got int",
    ),
    "uid of no tensor": (
        {"variant_pack_uids": [1, 2, 107]},
        "$.variant_pack_uids: expected uids of tensors, constants or workspace parts, got 107: a "
        "ragged offset, maybe, which this version leaves out of the structure "
        "(serialize the graph again with nvidia-cudnn-frontend 1.27 or newer)",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_broken_tables_are_refused(name: str) -> None:
    fields, message = PAIRS[name]
    with pytest.raises(GraphFormatError) as caught:
        read(old_plan(BY_NAME, **fields))
    assert str(caught.value) == with_remedy(f"F: {message}")


def test_a_plans_dialect_is_plan() -> None:
    assert read(old_plan()).dialect == "plan"
    assert read(old_plan()).warnings == ()


def test_scalars_keep_their_default() -> None:
    raw = old_add()
    raw["tensors"]["b"] = scalar(0, "b", {"index": 3, "value": FLOAT_ONE}, uid_assigned=False)
    (default,) = (item.default for item in bind_document(raw).arguments if item.default)
    assert default.value == 1.0
