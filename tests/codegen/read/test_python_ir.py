"""What a graph says that was printed before it was lowered, and what no such text says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.documents import DATA

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects.python_ir import UnloweredError, read_printed
from cudnn_bindgen.codegen.read.graph import read_document

SINK = DATA / "cases" / "python_ir" / "after_build_operation_graph_1.32.json"

Edit = Callable[[dict[str, Any]], Any]

NO_TEXT = (
    "(a function such as score_mod is in no text: plan the graph in the program that builds it, "
    "and write graph.serialize() there)"
)
SERIALIZE = "(name each tensor by itself, or write graph.serialize())"
AGAIN = "(the file is damaged or was edited: write it again from the graph)"


def params(value: object) -> Edit:
    return lambda raw: raw["nodes"][0].update(params=value)


def tensor(name: str, **fields: object) -> Edit:
    return lambda raw: raw["tensors"][name].update(fields)


# Name → what is changed in the text, and what it is refused with.
REFUSED: dict[str, tuple[Edit, str]] = {
    "a node of another kind": (
        lambda raw: raw["nodes"][0].update(type="CONV_FPROP"),
        "$.nodes[0].type: expected nodes of attention, got CONV_FPROP: before graph.validate() its "
        "strides are not those that it will have (print it after graph.validate())",
    ),
    "a function": (
        params({"score_mod": "<function f at 0x7f>"}),
        "$.nodes[0].params.score_mod: expected a number, a switch or the name of a constant, got "
        f"<function f at 0x7f> {NO_TEXT}",
    ),
    "a function in frozen params": (
        params("{'a': 1, 'score_mod': <function f at 0x7f>}"),
        "$.nodes[0].params: expected a number, a switch or the name of a constant, got "
        f"'score_mod': <function f at 0x7f>}} {NO_TEXT}",
    ),
    "a list": (
        params({"left": [1]}),
        f"$.nodes[0].params[...]: expected bool | int | float | str | null, got array {AGAIN}",
    ),
    "a tensor that is left out": (
        lambda raw: raw["tensors"].pop("K"),
        "$.nodes[0].inputs.k: expected the name of one tensor, got K: the frontend leaves tensors "
        f"out that have one name {SERIALIZE}",
    ),
    "one uid twice": (
        tensor("K", uid=0),
        f"$.tensors.K.uid: expected a uid of its own, got 0, the uid of Q too {AGAIN}",
    ),
    "another type": (
        tensor("K", dtype="torch.float16"),
        "$.tensors.K.dtype: expected a data type such as data_type.HALF, got torch.float16 "
        f"{AGAIN}",
    ),
    "a field that is not known": (
        tensor("Q", is_pass_by_value=False),
        '$.tensors[...]: expected no field but those that are known, got "is_pass_by_value" '
        "(a newer cudnn-bindgen may know it)",
    ),
    "no nodes": (lambda raw: raw.update(nodes=3), f"$.nodes: expected array, got int {AGAIN}"),
    "no node": (lambda raw: raw.update(nodes=[3]), f"$.nodes[0]: expected object, got int {AGAIN}"),
}


def text() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SINK.read_bytes())
    return document


def edited(edit: Edit) -> dict[str, Any]:
    raw = text()
    edit(raw)
    return raw


@pytest.mark.parametrize("name", REFUSED)
def test_texts_that_nobody_prints(name: str) -> None:
    edit, message = REFUSED[name]
    with pytest.raises(GraphFormatError) as caught:
        read_printed(edited(edit))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "word", ["{", "", "x" * 99, "{'a': 1, 'a': 2}", "{'a': 1, ", "{'a': 1", "{'a': 1}}", "['a': 1}"]
)
def test_frozen_params_that_nobody_prints(word: str) -> None:
    with pytest.raises(GraphFormatError, match="expected a number, a switch"):
        read_printed(edited(params(word)))


def test_params_are_the_same_in_both_ways() -> None:
    said = {"a": True, "b": None, "c": -1.5e-05, "d": 3, "e": "diagonal_alignment.TOP_LEFT"}
    frozen = str(said).replace("'diagonal_alignment.TOP_LEFT'", "<diagonal_alignment.TOP_LEFT: 0>")
    bare = str(said).replace("'diagonal_alignment.TOP_LEFT'", "diagonal_alignment.TOP_LEFT")
    for printed in (said, frozen, bare):
        (node,) = read_printed(edited(params(printed))).nodes
        assert repr(node.params) == repr(said)
    assert read_printed(edited(params("{}"))).nodes[0].params == {}


def test_all_that_it_says_is_kept() -> None:
    printed = read_printed(text())
    assert (printed.context.io, printed.context.compute) == ("BFLOAT16", "FLOAT")
    assert {item.uid for item in printed.tensors.values()} == {0, 1, 2, 3, 5, 8, 9}
    assert printed.tensors["Scale"].data_type == "FLOAT"
    with pytest.raises(UnloweredError) as caught:
        read_document(SINK.read_bytes())
    assert caught.value.raw == text()
