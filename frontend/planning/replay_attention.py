"""How attention is built, forward and backward, in all its precisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.frontend.planning.call import Operand
from cudnn_bindgen.frontend.planning.rules import (
    Convert,
    Rule,
    enum,
    flag,
    integer,
    number,
    same,
    switch,
)

_Values = Mapping[str, tuple[str, Convert]]

_LENGTHS = {"SEQ_LEN_Q": "seq_len_q", "SEQ_LEN_KV": "seq_len_kv"}
_FORWARD_OPTIONS = {
    "Attn_scale": "attn_scale",
    "SINK_TOKEN": "sink_token",
    **_LENGTHS,
    "CU_SEQ_LEN_Q": "cu_seq_len_q",
    "CU_SEQ_LEN_KV": "cu_seq_len_kv",
    "Page_table_K": "paged_attention_k_table",
    "Page_table_V": "paged_attention_v_table",
}
_BACKWARD_OPTIONS = {"Attn_scale": "attn_scale", "SINK_TOKEN": "sink_token", **_LENGTHS}
_QKV = {"Q": "q", "K": "k", "V": "v"}
_FORWARD_SCALES = {
    "Descale_Q": "descale_q",
    "Descale_K": "descale_k",
    "Descale_V": "descale_v",
    "Descale_S": "descale_s",
    "Scale_S": "scale_s",
    "Scale_O": "scale_o",
}
_DROPOUT = frozenset({"Seed", "Offset", "Dropout_mask", "Dropout_scale", "Dropout_scale_inv"})

_COMMON: _Values = {
    "attn_scale_value": ("attn_scale", number),
    "padding_mask": ("use_padding_mask", switch),
    "max_total_seq_len_q": ("max_total_seq_len_q", integer),
    "max_total_seq_len_kv": ("max_total_seq_len_kv", integer),
    "diagonal_alignment": ("diagonal_alignment", enum("diagonal_alignment")),
}
_BAND: _Values = {
    "left_bound": ("diagonal_band_left_bound", integer),
    "right_bound": ("diagonal_band_right_bound", integer),
}
_SHORT_BAND: _Values = {
    "left_bound": ("left_bound", integer),
    "right_bound": ("right_bound", integer),
}
_ALIBI: _Values = {"alibi_mask": ("use_alibi_mask", switch)}
_FORWARD: _Values = {
    **_COMMON,
    "generate_stats": ("generate_stats", flag),
    "max_seq_len_kv": ("paged_attention_max_seq_len_kv", integer),
    "implementation": ("implementation", enum("attention_implementation")),
    "unfuse_fma": ("unfuse_fma", switch),
}
_LOG2: _Values = {"stats_use_log2": ("stats_use_log2", switch)}
_BACKWARD: _Values = {
    **_COMMON,
    "is_deterministic_algorithm": ("use_deterministic_algorithm", switch),
}
# What the frontend takes from the method and the tensors.
_WORKED_OUT = frozenset({"is_mxfp8", "mma_core_mode", "dropout_probability"})
# Frontend 1.18 has them beside the bounds that they set.
_OLD_MASKS = frozenset({"causal_mask", "causal_mask_bottom_right"})


def _dropout(*mask: str) -> Callable[[Node, str], dict[str, object]]:
    """Return what makes the one argument for dropout: a probability, or a mask and its scales."""

    def extend(node: Node, path: str) -> dict[str, object]:
        ports = {port: uid for port, uid in node.optional if port in _DROPOUT}
        probability = node.attributes.get("dropout_probability")
        if not ports and probability is None:
            return {}
        if probability is not None and set(ports) == {"Seed", "Offset"}:
            drop = number(probability, f"{path}.dropout_probability")
            return {"dropout": (drop, Operand(ports["Seed"]), Operand(ports["Offset"]))}
        if probability is None and set(ports) == set(mask):
            return {"dropout": tuple(Operand(ports[port]) for port in mask)}
        raise PlanError(
            f"expected dropout by a probability, Seed and Offset, or by {', '.join(mask)}, got "
            f"{', '.join(sorted(ports)) or 'none of them'} and probability {probability!r}",
            path=path,
        )

    return extend


_WITH_MASK = _dropout("Dropout_mask", "Dropout_scale")
_WITH_MASKS = _dropout("Dropout_mask", "Dropout_scale", "Dropout_scale_inv")

_SDPA = Rule(
    method="sdpa",
    inputs={**_QKV, **_FORWARD_OPTIONS, "Bias": "bias", "Block_mask": "block_mask"},
    outputs=("O", "Stats"),
    made={"Max": "score_max", "Sum_exp": "score_sum_exp", "RNG_DUMP": "rng_dump"},
    values={**_FORWARD, **_BAND, **_ALIBI, **_LOG2},
    extend=_WITH_MASK,
    read=_DROPOUT,
    derived=_WORKED_OUT | _OLD_MASKS,
)
_SDPA_FP8 = Rule(
    method="sdpa_fp8",
    inputs={**_QKV, **_FORWARD_OPTIONS, **_FORWARD_SCALES, "Bias": "bias"},
    outputs=("O", "Stats", "Amax_S", "Amax_O"),
    made={"Max": "score_max", "Sum_exp": "score_sum_exp", "RNG_DUMP": "rng_dump"},
    values={**_FORWARD, **_SHORT_BAND, **_ALIBI, **_LOG2},
    extend=_WITH_MASK,
    read=_DROPOUT,
    derived=_WORKED_OUT | _OLD_MASKS,
)
_SDPA_MXFP8 = Rule(
    method="sdpa_mxfp8",
    inputs={
        **_QKV,
        **_FORWARD_OPTIONS,
        "Descale_Q": "descale_q",
        "Descale_K": "descale_k",
        "Descale_V": "descale_v",
    },
    outputs=("O", "Stats", "Amax_O"),
    values={**_FORWARD, **_BAND},
    derived=_WORKED_OUT,
)


def _first_tag(node: Node, path: str) -> Rule:
    """Choose what frontend 1.18, which has one tag for all, built."""
    core = node.attributes.get("mma_core_mode")
    return _SDPA_FP8 if isinstance(core, str) and core.startswith("FP8") else _SDPA


_FP8_BACKWARD_SCALES = {
    "Descale_Q": "descale_q",
    "Descale_K": "descale_k",
    "Descale_V": "descale_v",
    "Descale_O": "descale_o",
    "Descale_dO": "descale_dO",
    "Descale_S": "descale_s",
    "Descale_dP": "descale_dP",
    "Scale_S": "scale_s",
    "Scale_dP": "scale_dP",
    "Scale_dQ": "scale_dQ",
    "Scale_dK": "scale_dK",
    "Scale_dV": "scale_dV",
}
_MXFP8_BACKWARD = {
    **_QKV,
    "Q_T": "q_T",
    "K_T": "k_T",
    "O": "o_f16",
    "dO_f16": "dO_f16",
    "dO_T": "dO_T",
    **same("dO"),
    "Stats": "stats",
    "Descale_Q": "descale_q",
    "Descale_Q_T": "descale_q_T",
    "Descale_K": "descale_k",
    "Descale_K_T": "descale_k_T",
    "Descale_V": "descale_v",
    "Descale_dO": "descale_dO",
    "Descale_dO_T": "descale_dO_T",
}
_GRADIENTS = ("dQ", "dK", "dV")

ATTENTION: Mapping[str, Rule | Callable[[Node, str], Rule]] = {
    "SDPA": _SDPA,
    # The dump has no type that it computes in: the graph's is taken (docs/plans.md).
    "SDPA_BWD": Rule(
        method="sdpa_backward",
        inputs={
            **_QKV,
            "O": "o",
            "dO": "dO",
            "Stats": "stats",
            "Bias": "bias",
            **_BACKWARD_OPTIONS,
        },
        outputs=_GRADIENTS,
        made={"dBias": "dBias", "DSINK_TOKEN": "dSink_token", "RNG_DUMP": "rng_dump"},
        values={**_BACKWARD, **_BAND, **_ALIBI},
        extend=_WITH_MASKS,
        read=_DROPOUT,
        derived=_WORKED_OUT,
    ),
    "SDPA_FP8_BWD": Rule(
        method="sdpa_fp8_backward",
        inputs={
            **_QKV,
            "O": "o",
            "dO": "dO",
            "Stats": "stats",
            **_BACKWARD_OPTIONS,
            **_FP8_BACKWARD_SCALES,
        },
        outputs=(*_GRADIENTS, "Amax_dQ", "Amax_dK", "Amax_dV", "Amax_dP"),
        made={"DSINK_TOKEN": "dSink_token"},
        values={**_BACKWARD, **_SHORT_BAND},
        extend=_WITH_MASKS,
        read=_DROPOUT,
        derived=_WORKED_OUT,
    ),
    "SDPA_FP8_FWD": _SDPA_FP8,
    "SDPA_FWD": _first_tag,
    "SDPA_MXFP8_BWD": Rule(
        method="sdpa_mxfp8_backward",
        inputs={**_MXFP8_BACKWARD, **_BACKWARD_OPTIONS},
        outputs=(*_GRADIENTS, "Amax_dQ", "Amax_dK", "Amax_dV"),
        made={"DSINK_TOKEN": "dSink_token"},
        values={**_BACKWARD, **_SHORT_BAND},
        extend=_WITH_MASKS,
        read=_DROPOUT,
        derived=_WORKED_OUT,
    ),
    "SDPA_MXFP8_FWD": _SDPA_MXFP8,
}
