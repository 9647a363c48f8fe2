"""A graph as it was built: what lowering wrote is undone, what only looks like it is not."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from support.documents import (
    DATA,
    Document,
    node,
    plan_document,
    scalar,
    tensor,
    to_json,
    to_ubjson,
)

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.model.lowering import as_built
from cudnn_bindgen.codegen.read.graph import read_graph

PLANS = DATA / "plans"
Edit = Callable[[Document], Any]


def load(path: str) -> Document:
    raw: Document = json.loads((DATA / path).read_bytes())
    return raw


def read(raw: Document) -> Graph:
    return read_graph(to_ubjson(raw) if "cudnn_backend_data" in raw else to_json(raw))


def digest(raw: Document) -> str:
    return fingerprint(read(raw))


def find(raw: Document, uid: int) -> Document:
    (item,) = (each for each in raw["tensors"] if each["uid"] == uid)
    found: Document = item
    return found


def turn(raw: Document, port: str) -> None:
    """Exchange the last two axes of the tensor at a port of the first node."""
    item = find(raw, raw["nodes"][0]["inputs"][port])
    for field in ("dim", "stride"):
        item[field] = [item[field][axis] for axis in (0, 1, 3, 2)]


def bits(value: float) -> Document:
    """A FLOAT as the frontend writes it."""
    return {"index": 3, "value": struct.pack(">f", value).hex().upper()}


def forward(**attributes: Any) -> Document:
    """Attention with head size 8 over 4 queries and 6 keys, as it is built."""
    q, k = {"dim": [2, 3, 4, 8], "stride": [96, 32, 8, 1]}, {"dim": [2, 3, 6, 8]}
    k["stride"] = [144, 48, 8, 1]
    attention = node("SDPA", {"Q": 1, "K": 2, "V": 3}, {"O": 4}, **attributes)
    operands = [tensor(1, "q", **q), tensor(2, "k", **k), tensor(3, "v", **k), tensor(4, "o", **q)]
    return {**load("structure-v2/zero_dim.json"), "nodes": [attention], "tensors": operands}


def backward(**attributes: Any) -> Document:
    raw = load("structure-v2/sdpa_bwd.json")
    raw["nodes"][0] |= attributes
    return raw


def with_scale(raw: Document, *, name: str = "", value: Document | None = None) -> Document:
    """What lowering makes of `attn_scale_value`, or something like it."""
    raw["nodes"][0]["inputs"]["Attn_scale"] = 90
    raw["tensors"].append(scalar(90, name, value or bits(0.125)))
    return raw


def with_lengths(raw: Document, *names: str) -> Document:
    raw["nodes"][0]["inputs"] |= {"SEQ_LEN_Q": 90, "SEQ_LEN_KV": 91}
    raw["nodes"][0]["padding_mask"] = True
    sizes = {"dim": [3, 1, 1, 1], "stride": [1, 1, 1, 1], "data_type": "INT32"}
    raw["tensors"] += [
        tensor(uid, name, **sizes) for uid, name in zip((90, 91), names, strict=True)
    ]
    return raw


WORKAROUND = tuple(f"workaround_padding_mask_seq_len_{side}" for side in ("q", "kv"))
SCALED = {"attn_scale_value": "3E000000"}


# Before and after


def test_one_graph_planned_by_two_versions_of_cudnn() -> None:
    """cuDNN 9.19 exchanged K's axes, 9.27 did not; each was resolved to its own implementation."""
    old, new = (
        read_graph((PLANS / f"cudnn-{version}-sm90" / "sdpa_thd.plan").read_bytes())
        for version in ("9.19", "9.27")
    )
    assert old.tensors != new.tensors and old.nodes != new.nodes
    assert fingerprint(old) == fingerprint(new)
    # In memory nothing was exchanged.
    assert as_built(old).tensors[:12] == as_built(new).tensors[:12] == new.tensors[:12]
    # So the plan of one loads into the module of the other.
    here, there = bind(old), bind(new)
    assert [(a.uid, a.name) for a in here.arguments] == [(a.uid, a.name) for a in there.arguments]
    assert here.plans[0].uids == there.plans[0].uids
    assert here.plans[0].constants != there.plans[0].constants


def test_axes_that_calls_override_keep_their_order() -> None:
    """A call's dims of K would mean other axes in a plan that has them exchanged."""
    raw = forward(implementation="UNIFIED")
    exchanged = copy.deepcopy(raw)
    turn(exchanged, "K")
    assert digest(raw) == digest(exchanged)
    for each in (raw, exchanged):
        each["context"]["is_override_shape_enabled"] = True
    assert digest(raw) != digest(exchanged)


@pytest.mark.parametrize("way", ["AUTO", "COMPOSITE", "UNIFIED", None])
def test_how_attention_is_built_is_not_what_it_is(way: str | None) -> None:
    assert digest(forward(implementation=way)) == digest(forward())


def test_k_of_one_key() -> None:
    """Both strides are 1, so that only the dims tell."""
    raw = forward()
    for uid in (2, 3):
        find(raw, uid).update(dim=[2, 3, 1, 8], stride=[24, 8, 1, 1])
    turned = copy.deepcopy(raw)
    turn(turned, "K")
    assert digest(turned) == digest(raw)


def test_k_of_as_many_keys_as_its_head_is_long() -> None:
    raw = forward()
    for uid in (2, 3):
        find(raw, uid).update(dim=[2, 3, 8, 8], stride=[192, 64, 8, 1])
    turned = copy.deepcopy(raw)
    turn(turned, "K")
    assert digest(turned) == digest(raw)


def test_k_with_heads_inside_of_tokens() -> None:
    raw = forward()
    find(raw, 2).update(dim=[2, 3, 6, 8], stride=[144, 8, 24, 1])
    turned = copy.deepcopy(raw)
    turn(turned, "K")
    assert digest(turned) == digest(raw)


def test_dropout_by_a_probability_gets_scales() -> None:
    raw = backward(dropout_probability="3DCCCCCD")
    raw["nodes"][0]["inputs"] |= {"Seed": 80, "Offset": 81}
    raw["tensors"] += [
        scalar(uid, name, data_type="INT64") for uid, name in ((80, "seed"), (81, "offset"))
    ]
    lowered = copy.deepcopy(raw)
    lowered["nodes"][0]["inputs"] |= {"Dropout_scale": 90, "Dropout_scale_inv": 91}
    lowered["tensors"] += [
        scalar(90, "mul_p_dropout_scale::IN_1", {"index": 3, "value": "3F8E38E4"}),
        scalar(91, "", {"index": 3, "value": "3F666666"}),
    ]
    assert digest(lowered) == digest(raw)
    find(lowered, 91)["pass_by_value"]["value"] = "3F666667"
    assert digest(lowered) != digest(raw)


def test_lengths_of_the_frontends_own_lie_in_its_workspace() -> None:
    lowered = with_lengths(backward(padding_mask=False), *WORKAROUND)
    own = {str(uid): [0, 16 * (uid - 90), ["40400000"] * 3] for uid in (90, 91)}
    plan = plan_document(lowered, workspace_modifications=own, fe_workspace_size=32)
    assert digest(plan) == digest(backward(padding_mask=False))


# What only looks like it

PAGED = {"Page_table_K": 80, "Page_table_V": 81}


def paged() -> Document:
    raw = forward()
    raw["nodes"][0]["inputs"] |= PAGED
    sizes = {"dim": [2, 1, 1, 1], "stride": [1, 1, 1, 1], "data_type": "INT32"}
    raw["tensors"] += [tensor(uid, f"pages{uid}", **sizes) for uid in PAGED.values()]
    return raw


def turned(raw: Document, port: str) -> Document:
    turn(raw, port)
    return raw


def edited(raw: Document, edit: Edit) -> Document:
    edit(raw)
    return raw


# Name → two graphs that differ in what they compute, or in what callers pass.
PAIRS: dict[str, tuple[Document, Document]] = {
    "queries": (forward(), turned(forward(), "Q")),
    "values of the forward pass": (forward(), turned(forward(), "V")),
    "keys in pages": (paged(), turned(paged(), "K")),
    "keys of another head": (
        edited(forward(), lambda raw: find(raw, 2).update(dim=[2, 3, 8, 4], stride=[96, 32, 4, 1])),
        edited(forward(), lambda raw: find(raw, 2).update(dim=[2, 3, 4, 8], stride=[96, 32, 1, 4])),
    ),
    "keys whose head lies last in memory": (
        edited(forward(), lambda raw: find(raw, 2).update(stride=[144, 48, 1, 6])),
        edited(
            forward(), lambda raw: find(raw, 2).update(dim=[2, 3, 8, 6], stride=[144, 48, 6, 1])
        ),
    ),
    "no attention": (
        edited(forward(), lambda raw: raw["nodes"][0].update(tag="MATMUL")),
        turned(edited(forward(), lambda raw: raw["nodes"][0].update(tag="MATMUL")), "K"),
    ),
    "another scale": (forward(**SCALED), with_scale(forward(**SCALED), value=bits(0.25))),
    "a scale of the same bits": (
        forward(**SCALED),
        with_scale(forward(**SCALED), value={"index": 1, "value": 0x3E000000}),
    ),
    "a scale that callers may pass": (forward(**SCALED), with_scale(forward(**SCALED), name="s")),
    "a scale that callers must pass": (
        forward(**SCALED),
        edited(with_scale(forward(**SCALED)), lambda raw: find(raw, 90).update(pass_by_value=None)),
    ),
    "a scale beside no attribute": (forward(), with_scale(forward())),
    "a scale and an attribute that is no number": (
        forward(attn_scale_value="x"),
        with_scale(forward(attn_scale_value="x")),
    ),
    "no scale": (forward(), forward(**SCALED)),
    "lengths of callers": (
        backward(padding_mask=False),
        with_lengths(backward(), "seq_len_q", "seq_len_kv"),
    ),
    # Without a plan they might be the frontend's; but then callers would have to pass them.
    "lengths named as the frontend's": (
        backward(padding_mask=False),
        with_lengths(backward(), *WORKAROUND),
    ),
    "lengths named as the frontend's, in a plan": (
        backward(padding_mask=False),
        plan_document(with_lengths(backward(), *WORKAROUND)),
    ),
    "implementation of something else": (
        edited(forward(implementation="A"), lambda raw: raw["nodes"][0].update(tag="FOLD")),
        edited(forward(implementation="B"), lambda raw: raw["nodes"][0].update(tag="FOLD")),
    ),
    "an attribute beside the implementation": (
        forward(implementation="UNIFIED", unfuse_fma=False),
        forward(implementation="UNIFIED", unfuse_fma=True),
    ),
    "deterministic": (backward(), backward(is_deterministic_algorithm=True)),
}


@pytest.mark.parametrize("one, other", PAIRS.values(), ids=PAIRS)
def test_what_only_looks_lowered(one: Document, other: Document) -> None:
    assert digest(one) != digest(other)


def test_a_scale_that_another_node_reads_stays_in_the_graph() -> None:
    raw = with_scale(forward(**SCALED))
    exp = node("POINTWISE", {"IN_0": 4, "IN_1": 90}, {"OUT_0": 70}, mode="MUL")
    raw["nodes"].append(exp)
    raw["tensors"].append(tensor(70, "y", dim=[2, 3, 4, 8], stride=[96, 32, 8, 1]))
    built = as_built(read(raw))
    assert 90 in {item.uid for item in built.tensors}
    assert "Attn_scale" not in dict(built.nodes[0].ports)
    assert as_built(built) == built


def test_block_scales_of_three_axes_are_left_alone() -> None:
    """A damaged file: nothing is read out of bounds."""
    raw = turned(forward(), "K")
    raw["nodes"][0] |= {"tag": "SDPA_MXFP8_FWD"}
    raw["nodes"][0]["inputs"]["Descale_K"] = 90
    raw["tensors"].append(tensor(90, "sf", dim=[2, 3, 4], stride=[12, 4, 1]))
    built = as_built(read(raw))
    assert {item.uid: item for item in built.tensors}[90].dim == (2, 3, 4)
