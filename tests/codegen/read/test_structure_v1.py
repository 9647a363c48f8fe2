"""Structure v1, as frontend 1.6 to 1.26 write it: its keys, and the uids that are ours."""

from __future__ import annotations

import pytest
from support.documents import (
    Document,
    add_graph,
    argument_names,
    bind_document,
    node,
    to_json,
)
from support.documents_v1 import BY_NAME, BY_UID, old_add, old_document, old_tensor

from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph


def read(raw: Document) -> Graph:
    return read_graph(to_json(raw), "F")


def uids(raw: Document) -> dict[str, int]:
    return {item.name: item.uid for item in read(raw).tensors}


@pytest.mark.parametrize("number", [10600, BY_NAME, 12300, BY_UID])
def test_without_uids_it_means_what_v2_means(number: int) -> None:
    old, new = read(old_add(number)), read_graph(to_json(add_graph(a="a", b="b", y="y")))
    assert (old.dialect, new.dialect) == ("structure v1", "structure v2")
    assert old.tensors == new.tensors
    assert old.nodes == new.nodes
    assert fingerprint(old) == fingerprint(new)


def test_keys_by_name_even_of_assigned_uids() -> None:
    """As frontend 1.18 does."""
    raw = old_document(
        [node("RESHAPE", {"X": "x"}, {"Y": "y"})],
        [old_tensor("x", 12), old_tensor("y", 0)],
        BY_NAME,
    )
    assert list(raw["tensors"]) == ["x", "y"]
    assert uids(raw) == {"x": 12, "y": 0}


@pytest.mark.parametrize("uid", [0, -7, 2**62, -(2**63)])
def test_keys_by_uid(uid: int) -> None:
    raw = old_document(
        [node("RELU", {"X": uid}, {"Y": 5})], [old_tensor("x", uid), old_tensor("y", 5)]
    )
    assert list(raw["tensors"]) == [str(uid), "5"]
    assert uids(raw) == {"x": uid, "y": 5}


def test_mixed_keys_give_free_uids_in_the_order_of_ports() -> None:
    """As frontend 1.23 does where only some uids were set."""
    raw = old_document(
        [
            node("POINTWISE", {"IN_1": "b", "IN_0": "z"}, {"OUT_0": "0::OUT_0"}),
            node("RELU", {"X": "0::OUT_0"}, {"Y": 1}),
        ],
        [
            *(old_tensor("b"), old_tensor("0::OUT_0", is_virtual=True)),
            *(old_tensor("z"), old_tensor("y", 1)),
        ],
    )
    assert uids(raw) == {"z": 2, "b": 3, "0::OUT_0": 4, "y": 1}
    assert argument_names(bind_document(raw)) == ["z_ptr", "b_ptr", "y_ptr"]


def test_order_of_keys_changes_nothing() -> None:
    raw = old_add()
    turned = raw | {"tensors": dict(reversed(raw["tensors"].items()))}
    turned["nodes"] = [dict(reversed(raw["nodes"][0].items()))]
    turned["nodes"][0]["inputs"] = {"IN_1": "b", "IN_0": "a"}
    assert read(turned) == read(raw)


def test_a_node_without_inputs_has_null() -> None:
    raw = old_document([node("RNG", {}, {"Y": "y"}) | {"inputs": None}], [old_tensor("y")])
    assert argument_names(bind_document(raw)) == ["y_ptr"]


def test_peers_get_uids_beyond_all_others() -> None:
    peers = [old_tensor(""), old_tensor("mine", 1), old_tensor("")]
    raw = old_document(
        [node("BATCHNORM", {"X": "x"}, {"Y": "y"}, peer_stats=peers)],
        [old_tensor("x"), old_tensor("y")],
    )
    assert read(raw).nodes[0].extra == (("peer_stats", 4), ("peer_stats", 1), ("peer_stats", 5))
    assert uids(raw) == {"x": 2, "y": 3, "mine": 1, "": 5}
    assert argument_names(bind_document(raw)) == [
        *("x_ptr", "peer_stats_ptr", "mine_ptr", "peer_stats_3_ptr", "y_ptr")
    ]


@pytest.mark.parametrize("by", ["name", "uid", "uid 0"])
def test_ragged_offsets_that_are_also_a_port(by: str) -> None:
    """The only ones that are in the dump."""
    uid = {"name": None, "uid": 9, "uid 0": 0}[by]
    link = {"ragged_offset_name": "o", "ragged_offset_uid": uid or 0}
    port = "o" if uid is None else uid
    raw = old_document(
        [node("SDPA", {"Q": "q", "K": "k", "V": "v", "SEQ_LEN_Q": port}, {"O": "out"})],
        [
            *(old_tensor("q", **link), old_tensor("k", **link), old_tensor("v")),
            *(old_tensor("out"), old_tensor("o", uid)),
        ],
    )
    offsets = {item.name: item.ragged_offset_uid for item in read(raw).tensors}
    assert offsets["q"] == offsets["k"] == uids(raw)["o"]
    assert offsets["v"] is offsets["o"] is None


def test_data_types_are_inherited() -> None:
    raw = old_add()
    for item in raw["tensors"].values():
        item["data_type"] = None
    assert {item.data_type for item in read(raw).tensors} == {"BFLOAT16"}
