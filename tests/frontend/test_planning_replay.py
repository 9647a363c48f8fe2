"""Which call of the frontend each node becomes; no frontend needed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.documents import document, node, tensor, to_json

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.codegen.model.ports import PORTS
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.call import Call, Member, Operand
from cudnn_bindgen.frontend.planning.replay import REFUSED, REPLAYS, replay
from cudnn_bindgen.frontend.planning.rules import Rule

# Ports that no builder of the Python API takes or returns, by tag; all others are replayed.
OVERRIDES = {"M_override", "N_override", "K_override"}
FORWARD_SCALES = {"Descale_Q", "Descale_K", "Descale_V", "Descale_S", "Scale_S", "Scale_O"}
UNREACHABLE: dict[str, set[str]] = {
    "ADA_LAYER_NORM_BPROP": {"EPSILON"},  # the frontend adds it by itself, for cuDNN before 8.9.6
    "LAYER_NORM_BPROP": {"EPSILON"},
    "MATMUL": OVERRIDES,
    "SDPA": {*FORWARD_SCALES, "Amax_S", "Amax_O"},  # of the tags for FP8; one class has them all
    "SDPA_BWD": set(),
    "SDPA_FP8_BWD": {
        *("Q_T", "K_T", "dO_T", "dO_f16", "Bias", "Amax_d"),
        *("Descale_dO_T", "Descale_K_T", "Descale_Q_T"),
    },
    "SDPA_FP8_FWD": {"Block_mask"},
    "SDPA_MXFP8_BWD": {
        *("Bias", "Descale_O", "Descale_S", "Descale_dP", "Amax_dP", "Amax_d"),
        *("Scale_S", "Scale_dQ", "Scale_dK", "Scale_dV", "Scale_dP"),
    },
    "SDPA_MXFP8_FWD": {
        *("Bias", "Block_mask", "Seed", "Offset", "Dropout_mask", "Dropout_scale"),
        *("Descale_S", "Scale_S", "Scale_O", "Max", "Sum_exp", "RNG_DUMP", "Amax_S"),
    },
}


def example(tag: str, **fields: Any) -> Node:
    """A node with all ports of its tag."""
    ports = PORTS[tag]
    count = iter(range(1, 100))
    return Node(
        tag=tag,
        name="n",
        inputs=tuple((port, next(count)) for port in ports.inputs or ("0", "1")),
        optional=tuple((port, next(count)) for port in ports.optional),
        outputs=tuple((port, next(count)) for port in ports.outputs),
        attributes=fields,
    )


def rule_of(tag: str) -> Rule:
    found = REPLAYS[tag]
    fields = {"mode": "BINARY_SELECT"} if tag == "POINTWISE" else {}
    return found if isinstance(found, Rule) else found(example(tag, **fields), "$")


def one_node(raw: dict[str, Any], **fields: Any) -> Node:
    """Read the node of a graph with one."""
    uids = sorted({*raw["inputs"].values(), *raw["outputs"].values()})
    graph = read_graph(to_json(document([raw | fields], [tensor(uid) for uid in uids])))
    return graph.nodes[0]


def call_of(raw: dict[str, Any], **fields: Any) -> Call:
    return replay(one_node(raw, **fields), "$.nodes[0]")


def test_every_tag_is_replayed_or_refused_with_a_reason() -> None:
    assert {*REPLAYS, *REFUSED} == set(PORTS)
    assert not {*REPLAYS} & {*REFUSED}
    assert all(len(reason) > 20 for reason in REFUSED.values())


@pytest.mark.parametrize("tag", sorted(REPLAYS))
def test_the_ports_of_a_tag(tag: str) -> None:
    """A port is an argument, is returned, or is listed as unreachable."""
    rule, node = rule_of(tag), example(tag)
    known = {*rule.inputs, *rule.read, *rule.made, *rule.outputs}
    ports = {port for port, _ in node.inputs + node.optional + node.outputs}
    expected = UNREACHABLE.get("SDPA" if tag == "SDPA_FWD" else tag, set())
    assert ports - known == expected
    assert {*rule.made} & {*rule.outputs} == set()
    keywords = [*rule.inputs.values(), *rule.made.values(), *(k for k, _ in rule.values.values())]
    # Only attn_scale has two sources: a tensor and an attribute.
    assert {k for k in keywords if keywords.count(k) > 1} <= {"attn_scale"}


@pytest.mark.parametrize("tag", sorted(REFUSED))
def test_a_tag_without_a_builder(tag: str) -> None:
    with pytest.raises(PlanError, match=rf"cannot rebuild {tag}: .*no builder") as caught:
        replay(example(tag), "$.nodes[7]")
    assert caught.value.path == "$.nodes[7].tag"
    assert "C++" in caught.value.hint


def test_an_unknown_tag() -> None:
    unknown = Node(tag="FOLD", name="n", inputs=(), optional=(), outputs=(("Y", 1),))
    with pytest.raises(PlanError, match=r"expected a node tag of frontend 1\.32, got FOLD"):
        replay(unknown, "$.nodes[0]")


RELU = node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2}, name="act", mode="RELU_FWD")
MATMUL = node("MATMUL", {"A": 1, "B": 2}, {"C": 3}, name="mm")
SDPA = node("SDPA", {"Q": 1, "K": 2, "V": 3}, {"O": 4}, name="s")


def test_tensors_and_values_become_arguments() -> None:
    call = call_of(MATMUL, padding_value=0.5, compute_data_type="FLOAT")
    assert call == Call(
        method="matmul",
        path="$.nodes[0]",
        arguments={
            "name": "mm",
            "A": Operand(1),
            "B": Operand(2),
            "padding": 0.5,
            "compute_data_type": Member("data_type", "FLOAT"),
        },
        outputs=(3,),
    )


def test_floats_are_their_bits() -> None:
    call = call_of(RELU, relu_lower_clip="3E000000", relu_upper_clip=6.0)
    assert (call.arguments["lower_clip"], call.arguments["upper_clip"]) == (0.125, 6.0)


@pytest.mark.parametrize("value", [10**400, 1e39, "3E", "word", {}, [1.0]])
def test_what_is_no_float(value: object) -> None:
    with pytest.raises(GraphFormatError, match=r"expected .*FLOAT") as caught:
        replay(_with_clip(value), "$.nodes[0]")
    assert caught.value.path == "$.nodes[0].relu_lower_clip"


def _with_clip(value: object) -> Node:
    # Past the reader: JSON has no integer of that size, UBJSON has.
    attributes = {"mode": "RELU_FWD", "relu_lower_clip": value}
    return dataclasses.replace(one_node(RELU), attributes=attributes)


def test_outputs_that_are_passed() -> None:
    call = call_of(SDPA | {"outputs": {"O": 4, "Max": 5, "Sum_exp": 6}}, generate_stats=False)
    assert call.outputs == (4, None)
    assert (call.arguments["score_max"], call.arguments["score_sum_exp"]) == (
        Operand(5),
        Operand(6),
    )
    assert call.arguments["generate_stats"] is False


def test_dropout_is_one_argument() -> None:
    inputs = SDPA["inputs"] | {"Seed": 5, "Offset": 6}
    call = call_of(SDPA | {"inputs": inputs}, dropout_probability="3DCCCCCD")
    drop, *seeds = call.arguments["dropout"]  # type: ignore[misc]
    assert (round(drop, 6), seeds) == (0.1, [Operand(5), Operand(6)])
    with pytest.raises(PlanError, match="expected dropout by a probability, Seed and Offset"):
        call_of(SDPA, dropout_probability="3DCCCCCD")
    with pytest.raises(PlanError, match="got Offset, Seed and probability None"):
        call_of(SDPA | {"inputs": inputs})


def test_switches_that_are_off_are_not_passed() -> None:
    """So that a frontend which does not have a switch yet builds what does not need it."""
    off = call_of(SDPA, stats_use_log2=False, unfuse_fma=False, alibi_mask=False)
    assert set(off.arguments) == {"name", "q", "k", "v"}
    assert call_of(SDPA, stats_use_log2=True).arguments["stats_use_log2"] is True


def test_the_parts_of_a_concatenation_keep_their_order() -> None:
    inputs = {str(index): index + 1 for index in range(12)}
    call = call_of(node("CONCATENATE", inputs, {"Y": 50}, axis=1))
    assert call.arguments["inputs"] == [Operand(uid) for uid in range(1, 13)]


def test_slices_have_steps() -> None:
    raw = node("SLICE", {"X": 1}, {"Y": 2}, slices=[[0, 4], [1, 9]])
    assert call_of(raw).arguments["slices"] == [slice(0, 4, 1), slice(1, 9, 1)]
    stepped = call_of(raw, slice_strides=[1, 2])
    assert stepped.arguments["slices"] == [slice(0, 4, 1), slice(1, 9, 2)]
    with pytest.raises(PlanError, match="expected 2 entries as in slices, got 1"):
        call_of(raw, slice_strides=[1])


def test_gradients_of_a_bias_are_asked_for_where_they_are_written() -> None:
    inputs = {"DY": 1, "X": 2, "SCALE": 3, "INV_VARIANCE": 4}
    for outputs, has_bias in (({"DX": 5}, False), ({"DX": 5, "DBIAS": 6}, True)):
        call = call_of(node("RMS_NORM_BPROP", inputs, outputs))
        assert call.arguments["has_dbias"] is has_bias


@pytest.mark.parametrize(
    ("raw", "fields", "path", "problem"),
    [
        (MATMUL, {"swizzle": 3}, ".swizzle", "pygraph.matmul is not known to have it"),
        (RELU, {"elu_alpha": "3F800000"}, ".elu_alpha", "pygraph.relu is not known to have it"),
        (RELU, {"mode": "FOLD"}, ".mode", "expected a pointwise mode of frontend 1.32, got 'FOLD'"),
        (RELU, {"mode": None}, ".mode", "expected a pointwise mode of frontend 1.32, got None"),
        (
            node("REDUCTION", {"X": 1}, {"Y": 2}, mode="ADD"),
            {"is_deterministic": True},
            ".is_deterministic",
            "pygraph.reduction cannot be told: expected False, got True",
        ),
        (
            node("CONV_FPROP", {"X": 1, "W": 2}, {"Y": 3}),
            {"math_mode": "CONVOLUTION"},
            ".math_mode",
            "pygraph.conv_fprop cannot be told: expected 'CROSS_CORRELATION', got 'CONVOLUTION'",
        ),
        (
            MATMUL | {"inputs": {"A": 1, "B": 2, "M_override": 4}},
            {},
            ".inputs.M_override",
            "expected a port that pygraph.matmul takes, got M_override",
        ),
        (
            MATMUL | {"outputs": {"C": 3, "D": 4}},
            {},
            ".outputs.D",
            "expected a port that pygraph.matmul takes, got D",
        ),
    ],
)
def test_what_no_call_builds(
    raw: dict[str, Any], fields: dict[str, Any], path: str, problem: str
) -> None:
    with pytest.raises(PlanError) as caught:
        call_of(raw, **fields)
    assert caught.value.path == f"$.nodes[0]{path}"
    assert problem in caught.value.problem


@pytest.mark.parametrize("value", [None, False])
def test_attributes_that_say_nothing_are_passed_over(value: object) -> None:
    """Newer frontends write what older ones do not know, as null or false."""
    assert "swizzle" not in call_of(MATMUL, swizzle=value).arguments


def test_the_first_tag_of_attention_is_told_by_its_mode() -> None:
    old = SDPA | {"tag": "SDPA_FWD"}
    assert call_of(old, mma_core_mode="HALF").method == "sdpa"
    assert call_of(old, mma_core_mode="FP8_E5M2").method == "sdpa_fp8"
