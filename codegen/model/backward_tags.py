"""Which node computes gradients of which: where ports of both graphs mean the same tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudnn_bindgen.codegen.model.ports import PORTS

# Tag of a node → the tags of those that it is the backward pass of. Only tags whose ports have the
# same names there; DX is the gradient of X, and so on.
GRADIENT_OF: Mapping[str, frozenset[str]] = {
    "ADA_LAYER_NORM_BPROP": frozenset(["ADA_LAYER_NORM"]),
    "CONV_DGRAD": frozenset(["CONV_FPROP"]),
    "CONV_WGRAD": frozenset(["CONV_FPROP"]),
    "DBN": frozenset(["BATCHNORM"]),
    "INSTANCE_NORM_BPROP": frozenset(["INSTANCE_NORM"]),
    "LAYER_NORM_BPROP": frozenset(["LAYER_NORM"]),
    "MOE_GROUPED_MATMUL_BWD": frozenset(["MOE_GROUPED_MATMUL"]),
    "RMS_NORM_BPROP": frozenset(["RMS_NORM"]),
    "SDPA_BWD": frozenset(["SDPA", "SDPA_FWD"]),
    "SDPA_FP8_BWD": frozenset(["SDPA_FP8_FWD"]),
    "SDPA_MXFP8_BWD": frozenset(["SDPA_MXFP8_FWD"]),
}


def comparable_ports(
    forward: Sequence[str], backward: Sequence[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return which ports of either graph, given by its nodes' tags, tell what an operand is.

    Those of the node that has a gradient, and of the one that computes it. None where there are
    several such nodes; nor ports that another node of the graph has, too, or might have.
    """
    pairs = [
        (one, other)
        for other in backward
        for one in forward
        if one in GRADIENT_OF.get(other, frozenset())
    ]
    if len(pairs) != 1:
        return frozenset(), frozenset()
    [(one, other)] = pairs
    return _ports(one, forward), _ports(other, backward)


def _ports(tag: str, tags: Sequence[str]) -> frozenset[str]:
    others = list(tags)
    others.remove(tag)
    if not PORTS.keys() >= {*others}:
        return frozenset()
    return _all_ports(tag).difference(*map(_all_ports, others))


def _all_ports(tag: str) -> frozenset[str]:
    ports = PORTS[tag]
    return frozenset([*ports.inputs, *ports.optional, *ports.outputs])
