from __future__ import annotations

import itertools
import random

import pytest

from cudnn_bindgen.codegen.model import lowering, ports
from cudnn_bindgen.codegen.model.ports import (
    ATTENTION,
    PORTS,
    Ports,
    is_elementwise_port,
    order_inputs,
    order_outputs,
)
from cudnn_bindgen.codegen.model.score_mods import MODIFIED

# Nodes as nvidia-cudnn-frontend 1.18 to 1.32 wrote them: tag, required, optional, outputs.
NODES = [
    (
        "BATCHNORM",
        ["X", "SCALE", "BIAS", "EPSILON"],
        ["PREV_RUNNING_MEAN", "PREV_RUNNING_VAR", "MOMENTUM"],
        ["Y", "MEAN", "INV_VARIANCE", "NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR"],
    ),
    ("BLOCK_SCALE_QUANTIZE", ["X"], [], ["Y", "scale"]),
    ("CONCATENATE", ["0", "1"], [], ["Y"]),
    ("CONV_FPROP", ["X", "W"], [], ["Y"]),
    ("LAYER_NORM", ["X", "SCALE", "BIAS", "EPSILON"], [], ["Y", "MEAN", "INV_VARIANCE"]),
    ("MATMUL", ["A", "B"], [], ["C"]),
    ("MOE_GROUPED_MATMUL", ["Token", "Weight", "FirstTokenOffset"], [], ["Output"]),
    ("POINTWISE", ["IN_0"], [], ["OUT_0"]),
    ("POINTWISE", ["IN_0", "IN_1"], [], ["OUT_0"]),
    ("RESHAPE", ["X"], [], ["Y"]),
    ("SDPA", ["Q", "K", "V"], ["Attn_scale", "Seed", "Offset"], ["O", "Stats"]),
    ("SDPA", ["Q", "K", "V"], ["Attn_scale", "SEQ_LEN_Q", "SEQ_LEN_KV"], ["O", "Stats"]),
    (
        "SDPA",
        ["Q", "K", "V"],
        ["SEQ_LEN_Q", "SEQ_LEN_KV", "Page_table_K", "Page_table_V"],
        ["O"],
    ),
    ("SDPA_BWD", ["Q", "K", "V", "O", "dO", "Stats"], [], ["dQ", "dK", "dV"]),
    ("SDPA_FWD", ["Q", "K", "V"], [], ["O", "Stats"]),
    ("SLICE", ["X"], [], ["Y"]),
]


def shuffled(names: list[str]) -> list[str]:
    return random.Random(7).sample(sorted(names), len(names))


@pytest.mark.parametrize(("tag", "required", "optional", "outputs"), NODES)
def test_nodes_in_real_files(
    tag: str, required: list[str], optional: list[str], outputs: list[str]
) -> None:
    assert order_inputs(tag, shuffled(required + optional)) == (required, optional)
    assert order_outputs(tag, shuffled(outputs)) == outputs
    assert set(required + optional) <= {*PORTS[tag].inputs, *PORTS[tag].optional} or (
        tag == "CONCATENATE"
    )
    assert set(outputs) <= set(PORTS[tag].outputs)


def test_order_does_not_depend_on_the_order_in_the_file() -> None:
    for names in itertools.permutations(["Q", "V", "Bias", "new_10", "new_9"]):
        assert order_inputs("SDPA", names) == (["Q", "V"], ["Bias", "new_9", "new_10"])
        assert order_outputs("SDPA", names) == ["Bias", "new_9", "new_10", "Q", "V"]


def test_sdpa_order() -> None:
    assert PORTS["SDPA"] == Ports(
        inputs=("Q", "K", "V"),
        optional=(
            "Attn_scale",
            "Bias",
            "SEQ_LEN_Q",
            "SEQ_LEN_KV",
            "CU_SEQ_LEN_Q",
            "CU_SEQ_LEN_KV",
            "Seed",
            "Offset",
            "Dropout_mask",
            "Dropout_scale",
            "Page_table_K",
            "Page_table_V",
            "Block_mask",
            "Descale_Q",
            "Descale_K",
            "Descale_V",
            "Descale_S",
            "Scale_S",
            "Scale_O",
            "SINK_TOKEN",
        ),
        outputs=("O", "Stats", "Max", "Sum_exp", "RNG_DUMP", "Amax_S", "Amax_O"),
    )
    assert PORTS["SDPA_FWD"] == PORTS["SDPA"]


@pytest.mark.parametrize("tag", ["SDPA_FP8_FWD", "SDPA_MXFP8_FWD"])
def test_forward_attention_tags_share_one_set_of_ports(tag: str) -> None:
    table, sdpa = PORTS[tag], PORTS["SDPA"]
    assert {*table.inputs, *table.optional} == {*sdpa.inputs, *sdpa.optional}
    assert table.outputs == sdpa.outputs


def test_quantized_backward_tags_share_one_set_of_ports() -> None:
    fp8, mxfp8 = PORTS["SDPA_FP8_BWD"], PORTS["SDPA_MXFP8_BWD"]
    assert {*fp8.inputs, *fp8.optional} == {*mxfp8.inputs, *mxfp8.optional}
    assert fp8.outputs == mxfp8.outputs


def test_old_spelling_of_amax_dp_keeps_its_place() -> None:
    assert order_outputs("SDPA_FP8_BWD", ["DSINK_TOKEN", "Amax_d", "Amax_dV"]) == [
        "Amax_dV",
        "Amax_d",
        "DSINK_TOKEN",
    ]


@pytest.mark.parametrize("tag", ["DBN", "INSTANCE_NORM_BPROP", "LAYER_NORM_BPROP"])
def test_norm_backward_order(tag: str) -> None:
    names = ["INV_VARIANCE", "MEAN", "SCALE", "X", "DY"]
    assert order_inputs(tag, names) == (["DY", "X", "SCALE", "MEAN", "INV_VARIANCE"], [])
    assert order_outputs(tag, ["DBIAS", "DSCALE", "DX"]) == ["DX", "DSCALE", "DBIAS"]


def test_optional_bias_comes_last() -> None:
    names = ["BIAS", "EPSILON", "SCALE", "X"]
    assert order_inputs("RMS_NORM", names) == (["X", "SCALE", "EPSILON"], ["BIAS"])


def test_numbered_ports_are_required_and_counted() -> None:
    names = [str(number) for number in range(12)]
    assert order_inputs("CONCATENATE", sorted(names)) == (names, [])


def test_unknown_tag_requires_everything_in_natural_order() -> None:
    names = ["in10", "B", "in2", "a", "IN1"]
    assert order_inputs("NEW_NODE", names) == (["a", "B", "IN1", "in2", "in10"], [])
    assert order_outputs("NEW_NODE", names) == ["a", "B", "IN1", "in2", "in10"]
    assert order_inputs("NEW_NODE", []) == ([], [])


def test_unknown_port_of_a_known_tag_is_optional_and_last() -> None:
    names = ["x10", "K_override", "B", "x9", "A", "a"]
    assert order_inputs("MATMUL", names) == (["A", "B"], ["K_override", "a", "x9", "x10"])
    assert order_outputs("MATMUL", ["Amax", "C"]) == ["C", "Amax"]


def test_natural_order_is_total() -> None:
    # Equal but for case or leading zeros: the text decides, so that no order depends on a hash.
    for names in itertools.permutations(["in_1", "IN_1", "in_01"]):
        assert order_outputs("NEW_NODE", names) == ["IN_1", "in_01", "in_1"]


def test_natural_order_takes_numbers_of_any_length() -> None:
    long = "1" * 5000
    assert order_outputs("NEW_NODE", [long, "2", "²", ""]) == ["", "2", long, "²"]


# All that the headers of nvidia-cudnn-frontend 1.32 write as "tag" of a node.
TAGS = """
    ADA_LAYER_NORM ADA_LAYER_NORM_BPROP BATCHNORM BATCHNORM_INFERENCE BLOCK_SCALE_DEQUANTIZE
    BLOCK_SCALE_QUANTIZE BN_FINALIZE CONCATENATE CONV_DGRAD CONV_FPROP CONV_WGRAD DBN DBN_WEIGHT
    GENSTATS INSTANCE_NORM INSTANCE_NORM_BPROP LAYER_NORM LAYER_NORM_BPROP MATMUL MATMUL_FP8
    MOE_GROUPED_MATMUL MOE_GROUPED_MATMUL_BWD POINTWISE REDUCTION RESAMPLE RESHAPE RMS_NORM
    RMS_NORM_BPROP RNG ROPE ROPE_BWD SDPA SDPA_BWD SDPA_FP8_BWD SDPA_FP8_FWD SDPA_MXFP8_BWD
    SDPA_MXFP8_FWD SLICE TRANSPOSE
"""


def test_all_tags_are_known_and_one_of_older_frontends() -> None:
    assert sorted(PORTS) == sorted([*TAGS.split(), "SDPA_FWD"])


def test_table_is_sorted_by_tag() -> None:
    assert list(PORTS) == sorted(PORTS)
    assert len(PORTS) == 40


def test_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        ports.PORTS["SDPA"] = Ports(inputs=(), outputs=())  # type: ignore[index]


@pytest.mark.parametrize("tag", PORTS)
def test_no_port_is_listed_twice(tag: str) -> None:
    table = PORTS[tag]
    inputs = table.inputs + table.optional
    assert len(set(inputs)) == len(inputs)
    assert len(set(table.outputs)) == len(table.outputs)
    assert table.outputs
    assert table.inputs or tag == "CONCATENATE"


@pytest.mark.parametrize("tag", PORTS)
def test_table_order_is_argument_order(tag: str) -> None:
    table = PORTS[tag]
    found = shuffled([*table.inputs, *table.optional])
    assert order_inputs(tag, found) == ([*table.inputs], [*table.optional])
    assert order_outputs(tag, shuffled([*table.outputs])) == [*table.outputs]


def test_tensors_inside_nodes() -> None:
    inside = {tag: table.tensors_in_node for tag, table in PORTS.items() if table.tensors_in_node}
    assert inside == {"BATCHNORM": ("peer_stats",), "DBN": ("peer_stats",)}


def test_elementwise_ports() -> None:
    elementwise = {
        port
        for table in PORTS.values()
        for port in (*table.inputs, *table.optional, *table.outputs)
        if is_elementwise_port(port) and not port.startswith(("Descale_", "Scale_", "Amax_"))
    }
    assert elementwise == {
        "ACCUM_COUNT",
        "Attn_scale",
        "CU_SEQ_LEN_KV",
        "CU_SEQ_LEN_Q",
        "Dropout_scale",
        "Dropout_scale_inv",
        "EPSILON",
        "FirstTokenOffset",
        "K_override",
        "MOMENTUM",
        "M_override",
        "N_override",
        "Offset",
        "Page_table_K",
        "Page_table_V",
        "SEQ_LEN_KV",
        "SEQ_LEN_Q",
        "Seed",
        "TokenIndex",
        "TokenKs",
    }


@pytest.mark.parametrize("port", ["Descale_Q", "Scale_dP", "Amax_dQ", "seqLen", "pageTable"])
def test_more_elementwise_ports(port: str) -> None:
    assert is_elementwise_port(port)


@pytest.mark.parametrize(
    "port", ["Q", "SCALE", "scale", "Bias", "Stats", "Dropout_mask", "Token", "Seed_2", "xSeed", ""]
)
def test_tensors_that_are_loaded_in_vectors(port: str) -> None:
    assert not is_elementwise_port(port)


def test_block_scales_are_not_elementwise() -> None:
    assert is_elementwise_port("Descale_Q", "SDPA_FP8_FWD")
    assert not is_elementwise_port("Descale_Q", "SDPA_MXFP8_FWD")
    assert not is_elementwise_port("Descale_dO_T", "SDPA_MXFP8_BWD")
    assert is_elementwise_port("Amax_O", "SDPA_MXFP8_FWD")


def test_attention_is_what_lowering_and_score_modifiers_know() -> None:
    forward = {"SDPA", "SDPA_FWD", "SDPA_FP8_FWD", "SDPA_MXFP8_FWD"}
    backward = {"SDPA_BWD", "SDPA_FP8_BWD", "SDPA_MXFP8_BWD"}
    assert forward | backward == ATTENTION
    assert forward | {"SDPA_BWD"} == MODIFIED
    assert {tag for tag, turned in lowering._TURNED.items() if "V" in turned} == backward
