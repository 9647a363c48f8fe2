"""What the axes of a tensor are called: from the port of the node that gives them a meaning.

Names for arguments and messages only; cuDNN counts axes. Where nothing is known they are d0, d1 ….
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cudnn_bindgen.codegen.model.graph import Graph, Node

_IMAGE = {4: ("n", "c", "h", "w"), 5: ("n", "c", "d", "h", "w")}
_FILTER = {4: ("k", "c", "r", "s"), 5: ("k", "c", "t", "r", "s")}
_SEQUENCE = {4: ("b", "h", "s", "d")}
_SCORES = {4: ("b", "h", "s_q", "s_kv")}

# (pattern of tags, pattern of ports, rank → names); the first that fits.
_KNOWN = (
    (r"SDPA.*", r"[QKVO](_T)?|d[QKVO](_T|_f16)?|Stats|Max|Sum_exp", _SEQUENCE),
    (r"SDPA.*", r"Bias|dBias|Dropout_mask|RNG_DUMP", _SCORES),
    (r"CONV_.*", r"W|DW", _FILTER),
    (r"CONV_.*|.*NORM.*|RESAMPLE|DBN.*|GENSTATS", r"D?[XY]", _IMAGE),
)
_PRODUCT = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}
# Nodes whose tensors have the same axes at all ports.
_ELEMENTWISE = ("POINTWISE", "BLOCK_SCALE_QUANTIZE", "BLOCK_SCALE_DEQUANTIZE")


def name_axes(graph: Graph) -> dict[int, tuple[str, ...]]:
    """Return the axes' names of each tensor, by uid; all are identifiers, distinct in a tensor."""
    ranks = {tensor.uid: len(tensor.dim) for tensor in graph.tensors}
    names: dict[int, tuple[str, ...]] = {}
    for node in graph.nodes:
        for port, uid in node.ports:
            known = _at_port(node.tag, port, ranks[uid])
            if known:
                names.setdefault(uid, known)
    for node in (*graph.nodes, *reversed(graph.nodes)):
        _spread(node, ranks, names)
    return {
        uid: names.get(uid) or tuple(f"d{axis}" for axis in range(rank))
        for uid, rank in ranks.items()
    }


def _at_port(tag: str, port: str, rank: int) -> tuple[str, ...]:
    if tag.startswith("MATMUL") and port in _PRODUCT and rank >= 2:
        batch = ("b",) if rank == 3 else tuple(f"b{axis}" for axis in range(rank - 2))
        return batch + _PRODUCT[port]
    for tags, ports, names in _KNOWN:
        if re.fullmatch(tags, tag) and re.fullmatch(ports, port):
            return names.get(rank, ())
    return ()


def _spread(node: Node, ranks: Mapping[int, int], names: dict[int, tuple[str, ...]]) -> None:
    if node.tag not in _ELEMENTWISE:
        return
    known = next((names[uid] for _, uid in node.ports if uid in names), None)
    if known:
        for _, uid in node.ports:
            if ranks[uid] == len(known):
                names.setdefault(uid, known)
