"""What each node tag has: its ports in argument order.

Read from nvidia-cudnn-frontend 1.32: the port names from utils/serialize.h, their order from the
graph builders (enum order where a builder sets a port by attribute), what is required from the code
that lowers each node. Compared with 1.18 and 1.23 for the spellings of older files.

Two ports never reach a file under their own name, because the frontend has no text for them and
writes the first name of the list instead: REDUCTION's `Group_offset` appears as a second `X` and
MOE_GROUPED_MATMUL's `TopKScores` as a second `Token`, so one of the two tensors is lost. The nodes
SOFTMAX, DIAGONAL_BAND_MASK and PAGED_CACHE_LOAD have no tag: they exist only inside lowered SDPA.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one node tag, each tuple in argument order.

    `inputs` are the positional arguments of the builder and whatever lowering insists on; a few of
    them are absent from some nodes (`IN_1` of a relu, `SCALE` of a layernorm without one).
    `optional` are inputs that an attribute adds. A tag with neither takes any number of inputs.
    `tensors_in_node` names the node fields that hold whole tensor objects instead of references.
    """

    inputs: tuple[str, ...]
    optional: tuple[str, ...] = ()
    outputs: tuple[str, ...]
    tensors_in_node: tuple[str, ...] = ()


_NORM_BACKWARD = ("DY", "X", "SCALE", "MEAN", "INV_VARIANCE")
_NORM_GRADIENTS = ("DX", "DSCALE", "DBIAS")
_NORM_OUTPUTS = ("Y", "MEAN", "INV_VARIANCE")
_OVERRIDES = ("M_override", "N_override", "K_override")
_RUNNING = ("NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR")

_SDPA_OPTIONAL = (
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
)
_SDPA_BACKWARD_OPTIONAL = (
    "Attn_scale",
    "Bias",
    "SEQ_LEN_Q",
    "SEQ_LEN_KV",
    "Seed",
    "Offset",
    "Dropout_mask",
    "Dropout_scale",
    "Dropout_scale_inv",
)
_SDPA_OUTPUTS = ("O", "Stats", "Max", "Sum_exp", "RNG_DUMP", "Amax_S", "Amax_O")
# One class writes all forward tags, so each of them may carry any of its ports.
_SDPA = Ports(
    inputs=("Q", "K", "V"),
    optional=(
        *_SDPA_OPTIONAL,
        *("Descale_Q", "Descale_K", "Descale_V", "Descale_S", "Scale_S", "Scale_O"),
        "SINK_TOKEN",
    ),
    outputs=_SDPA_OUTPUTS,
)
_SDPA_FP8_BACKWARD_OUTPUTS = (
    *("dQ", "dK", "dV", "Amax_dQ", "Amax_dK", "Amax_dV", "Amax_dP"),
    "Amax_d",  # frontend 1.18 and 1.23 write Amax_dP so
    "DSINK_TOKEN",
)

PORTS: Mapping[str, Ports] = MappingProxyType(
    {
        "ADA_LAYER_NORM": Ports(
            inputs=("X", "SCALE", "EPSILON"), optional=("BIAS",), outputs=_NORM_OUTPUTS
        ),
        "ADA_LAYER_NORM_BPROP": Ports(
            inputs=_NORM_BACKWARD, optional=("EPSILON",), outputs=_NORM_GRADIENTS
        ),
        "BATCHNORM": Ports(
            inputs=("X", "SCALE", "BIAS", "EPSILON"),
            optional=("PREV_RUNNING_MEAN", "PREV_RUNNING_VAR", "MOMENTUM"),
            outputs=(*_NORM_OUTPUTS, *_RUNNING),
            tensors_in_node=("peer_stats",),
        ),
        "BATCHNORM_INFERENCE": Ports(
            inputs=("X", "MEAN", "INV_VARIANCE", "SCALE", "BIAS"), outputs=("Y",)
        ),
        "BLOCK_SCALE_DEQUANTIZE": Ports(inputs=("X", "scale"), outputs=("Y",)),
        "BLOCK_SCALE_QUANTIZE": Ports(inputs=("X",), outputs=("Y", "scale")),
        "BN_FINALIZE": Ports(
            inputs=(
                *("SUM", "SQ_SUM", "SCALE", "BIAS", "EPSILON", "ACCUM_COUNT"),
                # The builder lets these be absent, lowering does not.
                *("PREV_RUNNING_MEAN", "PREV_RUNNING_VAR", "MOMENTUM"),
            ),
            outputs=("EQ_SCALE", "EQ_BIAS", "MEAN", "INV_VARIANCE", *_RUNNING),
        ),
        # Its ports are "0", "1", ...: as many as there are tensors to join.
        "CONCATENATE": Ports(inputs=(), outputs=("Y",)),
        "CONV_DGRAD": Ports(inputs=("DY", "W"), outputs=("DX",)),
        "CONV_FPROP": Ports(inputs=("X", "W"), outputs=("Y",)),
        "CONV_WGRAD": Ports(inputs=("DY", "X"), outputs=("DW",)),
        "DBN": Ports(
            inputs=_NORM_BACKWARD, outputs=_NORM_GRADIENTS, tensors_in_node=("peer_stats",)
        ),
        # In the order of the other backward norms, though its builder takes SCALE last.
        "DBN_WEIGHT": Ports(
            inputs=_NORM_BACKWARD,
            outputs=("DSCALE", "DBIAS", "EQ_BIAS", "EQ_SCALE_DY", "EQ_SCALE_X"),
        ),
        "GENSTATS": Ports(inputs=("X",), outputs=("SUM", "SQ_SUM")),
        "INSTANCE_NORM": Ports(inputs=("X", "SCALE", "BIAS", "EPSILON"), outputs=_NORM_OUTPUTS),
        "INSTANCE_NORM_BPROP": Ports(inputs=_NORM_BACKWARD, outputs=_NORM_GRADIENTS),
        "LAYER_NORM": Ports(inputs=("X", "SCALE", "BIAS", "EPSILON"), outputs=_NORM_OUTPUTS),
        "LAYER_NORM_BPROP": Ports(
            inputs=_NORM_BACKWARD,
            optional=("EPSILON",),  # the frontend adds it for cuDNN before 8.9.6
            outputs=_NORM_GRADIENTS,
        ),
        "MATMUL": Ports(inputs=("A", "B"), optional=_OVERRIDES, outputs=("C",)),
        "MATMUL_FP8": Ports(
            inputs=("A", "B", "Descale_A", "Descale_B", "Scale_C"),
            optional=_OVERRIDES,
            outputs=("C", "Amax_C"),
        ),
        "MOE_GROUPED_MATMUL": Ports(
            inputs=("Token", "Weight", "FirstTokenOffset"),
            optional=("TokenIndex", "TokenKs"),
            outputs=("Output",),
        ),
        "MOE_GROUPED_MATMUL_BWD": Ports(
            inputs=("DOutput", "Token", "FirstTokenOffset"), outputs=("DWeight",)
        ),
        "POINTWISE": Ports(inputs=("IN_0", "IN_1", "IN_2"), outputs=("OUT_0",)),
        "REDUCTION": Ports(inputs=("X",), outputs=("Y",)),
        "RESAMPLE": Ports(inputs=("X",), outputs=("Y", "Index")),
        "RESHAPE": Ports(inputs=("X",), outputs=("Y",)),
        "RMS_NORM": Ports(
            inputs=("X", "SCALE", "EPSILON"), optional=("BIAS",), outputs=("Y", "INV_VARIANCE")
        ),
        "RMS_NORM_BPROP": Ports(
            inputs=("DY", "X", "SCALE", "INV_VARIANCE"), outputs=_NORM_GRADIENTS
        ),
        "RNG": Ports(inputs=("Seed", "Offset"), outputs=("Y",)),
        "ROPE": Ports(inputs=("INPUT", "FREQS"), outputs=("OUTPUT",)),
        "ROPE_BWD": Ports(inputs=("DY", "FREQS"), outputs=("DX",)),
        "SDPA": _SDPA,
        "SDPA_BWD": Ports(
            inputs=("Q", "K", "V", "O", "dO", "Stats"),
            optional=(*_SDPA_BACKWARD_OPTIONAL, "SINK_TOKEN"),
            outputs=("dQ", "dK", "dV", "dBias", "RNG_DUMP", "DSINK_TOKEN"),
        ),
        "SDPA_FP8_BWD": Ports(
            inputs=(
                *("Q", "K", "V", "O", "dO", "Stats"),
                *("Descale_Q", "Descale_K", "Descale_V", "Descale_O", "Descale_dO"),
                *("Descale_S", "Descale_dP"),
                *("Scale_S", "Scale_dQ", "Scale_dK", "Scale_dV", "Scale_dP"),
            ),
            optional=(
                *("Q_T", "K_T", "dO_T", "dO_f16"),
                *_SDPA_BACKWARD_OPTIONAL,
                *("Descale_dO_T", "Descale_K_T", "Descale_Q_T", "SINK_TOKEN"),
            ),
            outputs=_SDPA_FP8_BACKWARD_OUTPUTS,
        ),
        "SDPA_FP8_FWD": Ports(
            inputs=(
                *("Q", "K", "V"),
                *("Descale_Q", "Descale_K", "Descale_V", "Descale_S", "Scale_S", "Scale_O"),
            ),
            optional=(*_SDPA_OPTIONAL, "SINK_TOKEN"),
            outputs=_SDPA_OUTPUTS,
        ),
        "SDPA_FWD": _SDPA,  # as frontend 1.18 writes SDPA
        "SDPA_MXFP8_BWD": Ports(
            inputs=(
                *("Q", "Q_T", "K", "K_T", "V", "O", "dO_f16", "dO", "dO_T", "Stats"),
                *("Descale_Q", "Descale_Q_T", "Descale_K", "Descale_K_T", "Descale_V"),
                *("Descale_dO", "Descale_dO_T"),
            ),
            optional=(
                *_SDPA_BACKWARD_OPTIONAL,
                *("Descale_O", "Descale_S", "Descale_dP"),
                *("Scale_S", "Scale_dQ", "Scale_dK", "Scale_dV", "Scale_dP", "SINK_TOKEN"),
            ),
            outputs=_SDPA_FP8_BACKWARD_OUTPUTS,
        ),
        "SDPA_MXFP8_FWD": Ports(
            inputs=("Q", "K", "V", "Descale_Q", "Descale_K", "Descale_V"),
            optional=(*_SDPA_OPTIONAL, "Descale_S", "Scale_S", "Scale_O", "SINK_TOKEN"),
            outputs=_SDPA_OUTPUTS,
        ),
        "SLICE": Ports(inputs=("X",), outputs=("Y",)),
        "TRANSPOSE": Ports(inputs=("X",), outputs=("Y",)),
    }
)

_UNKNOWN = Ports(inputs=(), outputs=())

ATTENTION = frozenset(tag for tag in PORTS if tag.startswith("SDPA"))

_ELEMENTWISE = re.compile(
    r"(CU_)?SEQ_LEN_(Q|KV)|seqLen|[MNK]_override"
    r"|Page_table_[KV]|pageTable"
    r"|Seed|Offset|FirstTokenOffset|TokenIndex|TokenKs"
    r"|EPSILON|MOMENTUM|ACCUM_COUNT"
    r"|Attn_scale|Dropout_scale(_inv)?|(Descale|Scale|Amax)_\w+"
)


def order_inputs(tag: str, ports: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split the input ports found on a node into required and optional ones, in argument order.

    Ports that the table lacks follow the known optional ones, in natural order. If the table knows
    no input of the tag, all of them are required.
    """
    table = PORTS.get(tag, _UNKNOWN)
    found = frozenset(ports)
    required = [port for port in table.inputs if port in found]
    optional = [port for port in table.optional if port in found]
    others = sorted(found.difference(required, optional), key=_natural_key)
    if not table.inputs and not table.optional:
        return others, []
    return required, optional + others


def order_outputs(tag: str, ports: Iterable[str]) -> list[str]:
    """Put the output ports found on a node in argument order, those unknown last."""
    found = frozenset(ports)
    known = [port for port in PORTS.get(tag, _UNKNOWN).outputs if port in found]
    return known + sorted(found.difference(known), key=_natural_key)


def find_unknown(tag: str, ports: Iterable[str]) -> list[str]:
    """Return those of a known tag's ports that its table lacks."""
    table = PORTS[tag]
    if not table.inputs and not table.optional:  # any number of inputs
        return [port for port in ports if port not in table.outputs and not port.isdecimal()]
    known = {*table.inputs, *table.optional, *table.outputs}
    return [port for port in ports if port not in known]


def fields_with_tensors(tag: str) -> tuple[str, ...]:
    """Return the node fields that hold whole tensor objects."""
    return PORTS.get(tag, _UNKNOWN).tensors_in_node


def is_elementwise_port(port: str, tag: str = "") -> bool:
    """Whether kernels read or write the port's tensor element by element.

    The frontend states 16 bytes for every tensor, but callers pass slices of metadata arrays and
    single scalars, which are aligned to one element only.
    """
    # In the MXFP8 tags a descale is a tensor of block scales, which kernels load as tiles.
    if tag.startswith("SDPA_MXFP8") and port.startswith("Descale_"):
        return False
    return _ELEMENTWISE.fullmatch(port) is not None


def _natural_key(port: str) -> tuple[list[tuple[str, int, str]], str]:
    """Order "2" before "10", ignoring case, but never call two different ports equal."""
    parts: list[tuple[str, int, str]] = []
    for text, digits in re.findall(r"([^0-9]*)([0-9]*)", port.casefold()):
        # Digits are compared as text of known length: int() refuses more than 4300 of them.
        number = digits.lstrip("0")
        parts.append((text, len(number), number))
    return parts, port
