"""Structure v1, as frontend 1.6 to 1.26 write it: keys, uids of ours, what a dump has lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from documents import (
    Document,
    add_graph,
    argument_names,
    bind_document,
    node,
    plan_document,
    scalar,
    tensor,
    to_json,
    to_ubjson,
    with_remedy,
)
from documents_v1 import BY_NAME, BY_UID, old_add, old_document, old_scalar, old_tensor

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.fingerprint import fingerprint
from cudnn_bindgen.codegen.graph import Graph
from cudnn_bindgen.codegen.options import ReadOptions
from cudnn_bindgen.codegen.read import read_graph

Edit = Callable[[Document], Any]
AGAIN = "(dump the graph again with nvidia-cudnn-frontend 1.27 or newer)"
FLOAT_ONE = "3F800000"


def read(raw: Document, **options: Any) -> Graph:
    encode = to_ubjson if "cudnn_backend_data" in raw else to_json
    return read_graph(encode(raw), "F", ReadOptions(**options))


def uids(raw: Document) -> dict[str, int]:
    return {item.name: item.uid for item in read(raw).tensors}


def at(key: str, **fields: Any) -> Edit:
    return lambda raw: raw["tensors"][key].update(fields)


def ports(**fields: Any) -> Edit:
    return lambda raw: raw["nodes"][0].update(fields)


def both(*edits: Edit) -> Edit:
    return lambda raw: [edit(raw) for edit in edits]


def keyed(key: str, item: Document) -> Edit:
    return lambda raw: raw["tensors"].update({key: item})


def version(number: int) -> Edit:
    return lambda raw: raw.update(cudnn_frontend_version=number)


# Of a graph by frontend 1.26: y = a + b.
REFUSED: dict[str, tuple[Edit, str]] = {
    "port that names nothing": (
        ports(inputs={"IN_0": "a", "IN_1": "lost"}),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 'lost': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "uid that nothing has": (
        ports(inputs={"IN_0": "a", "IN_1": 7}),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 7: "
        f"the dump lost a tensor {AGAIN}",
    ),
    "uid of a tensor that has none assigned": (
        both(at("b", uid=7), ports(inputs={"IN_0": "a", "IN_1": 7})),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 7: "
        f"the dump lost a tensor {AGAIN}",
    ),
    "name like a uid": (
        both(keyed("4", old_tensor("b", 4)), ports(inputs={"IN_0": "4", "IN_1": 4})),
        "$.nodes[0].inputs.IN_0: expected the key of a tensor, got '4': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "key that is not its tensor's name": (
        at("b", name="c"),
        "$.nodes[0].inputs.IN_1: expected the key of a tensor, got 'b': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "an input and the output have one name": (
        both(version(BY_NAME), ports(inputs={"IN_0": "a", "IN_1": "y"})),
        "$.nodes[0].inputs.IN_1: expected an input from an earlier node, got 'y', "
        f"which $.nodes[0] writes: the dump lost a tensor {AGAIN}",
    ),
    "output written twice": (
        lambda raw: raw["nodes"].append(node("RELU", {"X": "a"}, {"Y": "y"})),
        "$.nodes[1].outputs.Y: expected a tensor that no other port writes, got 3, "
        "which $.nodes[0].outputs.OUT_0 writes too",
    ),
    "ragged offset by name": (
        at("a", ragged_offset_name="offsets", ragged_offset_uid=0),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got 'offsets': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "ragged offset by uid": (
        at("a", ragged_offset_name="offsets", ragged_offset_uid=107),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got 'offsets': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "ragged offset without a name": (
        at("a", ragged_offset_uid=0),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got '0': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "ragged offset of a name that another tensor has": (
        both(
            at("a", ragged_offset_name="b", ragged_offset_uid=0),
            keyed("9", old_tensor("offsets", 9)),
            at("b", name="offsets"),
            ports(inputs={"IN_0": "a", "IN_1": 9}),
        ),
        "$.tensors.a.ragged_offset_uid: expected a ragged offset, got 'b': "
        f"the dump lost a tensor {AGAIN}",
    ),
    "uid twice": (
        both(
            keyed("8", old_tensor("b", 8)),
            keyed("9", old_tensor("c", 8)),
            ports(inputs={"IN_0": "a", "IN_1": 8}),
        ),
        '$.tensors["8"].uid: expected a uid of its own, got 8, the uid of $.tensors["9"] too '
        "(set_uid() each tensor to another number, or none of them)",
    ),
    "uid -1": (
        both(keyed("-1", old_tensor("b", -1)), ports(inputs={"IN_0": "a", "IN_1": -1})),
        '$.tensors["-1"].uid: expected an assigned uid, got -1 '
        "(call graph.validate() before dumping the graph)",
    ),
    "rank": (
        at("b", stride=[1]),
        "$.tensors.b.stride: expected 2 entries as in dim, got 1 "
        "(set dim and stride of this tensor to the same rank)",
    ),
    "tensors as a list": (
        lambda raw: raw.update(tensors=[tensor(1)]),
        "$.tensors: expected object, got array",
    ),
    "port as a float": (
        ports(inputs={"IN_0": 1.5}),
        "$.nodes[0].inputs[...]: expected int | str, got float",
    ),
    "peer without a shape": (
        ports(peer_stats=[{"name": "p"}]),
        '$.nodes[0].peer_stats[0]: expected a field "dim", got none',
    ),
    "scalar of an older index": (
        both(
            version(10700),
            keyed("b", old_scalar("b", {"index": 0, "value": "3F800000"})),
        ),
        "$.tensors.b.pass_by_value.value: expected an INT32, got '3F800000'",
    ),
    "shape not inferred": (
        at("y", dim=[], stride=[]),
        "$.tensors.y.dim: expected the shape of an operand, got []: the graph was dumped before "
        "its shapes were inferred "
        "(call graph.validate() first, or set dim and stride of this tensor)",
    ),
}


def broken(name: str) -> bytes:
    raw = old_add()
    REFUSED[name][0](raw)
    return to_json(raw)


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_lost_or_broken_is_refused(name: str) -> None:
    with pytest.raises(GraphFormatError) as caught:
        read_graph(broken(name), "F")
    assert str(caught.value) == with_remedy(f"F: {REFUSED[name][1]}")
    assert caught.value.dialect == "structure v1"


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
        "$.variant_pack_uids: expected uids of tensors, constants or workspace parts, got 107 "
        "(plan and structure are of different graphs: write the file again with serialize())",
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


ONE_NAME = (
    "$.nodes[0].inputs.IN_1: expected one tensor of each name, got 'a' at $.nodes[0].inputs.IN_0 "
    "too: of two tensors with that name the dump would have lost one "
    "(if it is not the same tensor, dump the graph again with nvidia-cudnn-frontend 1.27 or newer)"
)
NO_OFFSETS = (
    "$.nodes[0]: expected ragged offsets if the graph has any, got a dump of frontend 1.19 or "
    "older, which leaves them out "
    "(if it has some, dump the graph again with nvidia-cudnn-frontend 1.27 or newer)"
)
WARNED: dict[str, tuple[Document, str]] = {
    "one name at two ports": (
        old_document(
            [node("POINTWISE", {"IN_0": "a", "IN_1": "a"}, {"OUT_0": "y"})],
            [old_tensor("a"), old_tensor("y")],
        ),
        ONE_NAME,
    ),
    "padding mask": (
        old_document(
            [node("SDPA_FWD", {"Q": "q", "K": "k", "V": "v"}, {"O": "o"}, padding_mask=True)],
            [old_tensor(name) for name in "qkvo"],
            11900,
        ),
        NO_OFFSETS,
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_may_be_lost_without_a_trace_gives_a_warning(name: str) -> None:
    raw, message = WARNED[name]
    assert [str(warning) for warning in read(raw).warnings] == [message]
    with pytest.raises(GraphFormatError) as caught:
        read(raw, strict=True)
    assert str(caught.value) == f"F: {message}"


@pytest.mark.parametrize("number", [12000, 12600])
def test_no_warning_where_ragged_offsets_are_written(number: int) -> None:
    raw, _ = WARNED["padding mask"]
    assert read(raw | {"cudnn_frontend_version": number}).warnings == ()


def test_no_warning_for_one_uid_at_two_ports_or_a_result_read_twice() -> None:
    nodes = [
        node("POINTWISE", {"IN_0": 1, "IN_1": 1}, {"OUT_0": "t"}),
        node("POINTWISE", {"IN_0": "t", "IN_1": "t"}, {"OUT_0": "y"}),
    ]
    raw = old_document(
        nodes, [old_tensor("a", 1), old_tensor("t", is_virtual=True), old_tensor("y")]
    )
    assert read(raw).warnings == ()


def test_data_types_are_inherited() -> None:
    raw = old_add()
    for item in raw["tensors"].values():
        item["data_type"] = None
    assert {item.data_type for item in read(raw).tensors} == {"BFLOAT16"}


def test_scalars_keep_their_default() -> None:
    raw = old_add()
    raw["tensors"]["b"] = scalar(0, "b", {"index": 3, "value": FLOAT_ONE}, uid_assigned=False)
    (default,) = (item.default for item in bind_document(raw).arguments if item.default)
    assert default.value == 1.0
