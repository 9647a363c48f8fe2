"""How nodes are built that move, join, reduce, rotate or quantize."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.frontend.planning.call import Operand
from cudnn_bindgen.frontend.planning.rules import Rule, enum, integer, integers, number, switch

_ROTATION = {"output_scale": ("output_scale", number), "rope_dim": ("rope_dim", integer)}


def _join(node: Node, path: str) -> dict[str, object]:
    """Pass the tensors to join in the order of their ports, which are numbers."""
    return {"inputs": [Operand(uid) for _, uid in node.inputs]}


def _slice(node: Node, path: str) -> dict[str, object]:
    """Pass start, end and step of each axis."""
    bounds = check(node.attributes.get("slices", []), list[tuple[int, int]], f"{path}.slices")
    steps = node.attributes.get("slice_strides") or [1] * len(bounds)
    steps = check(steps, list[int], f"{path}.slice_strides")
    if len(steps) != len(bounds):
        raise PlanError(
            f"expected {len(bounds)} entries as in slices, got {len(steps)}",
            path=f"{path}.slice_strides",
        )
    pairs = zip(bounds, steps, strict=True)
    return {"slices": [slice(start, end, step) for (start, end), step in pairs]}


def _concatenate(node: Node, path: str) -> Rule:
    return Rule(
        method="concatenate",
        outputs=("Y",),
        values={"axis": ("axis", integer), "in_place_index": ("in_place_index", integer)},
        extend=_join,
        read=frozenset(port for port, _ in node.inputs if port.isdecimal()),
        has_compute_type=False,
    )


SHAPES: Mapping[str, Rule | Callable[[Node, str], Rule]] = {
    "BLOCK_SCALE_DEQUANTIZE": Rule(
        method="block_scale_dequantize",
        inputs={"X": "input", "scale": "descale"},
        outputs=("Y",),
        values={
            "block_size": ("block_size", integers),
            "is_negative_scale": ("is_negative_scale", switch),
        },
    ),
    # Its `transpose` is in no file, and needs to be in none: it only chooses strides that are not
    # stated, and a file states them.
    "BLOCK_SCALE_QUANTIZE": Rule(
        method="block_scale_quantize",
        inputs={"X": "input"},
        outputs=("Y", "scale"),
        values={"block_size": ("block_size", integer), "axis": ("axis", integer)},
    ),
    "CONCATENATE": _concatenate,
    "REDUCTION": Rule(
        method="reduction",
        inputs={"X": "input"},
        outputs=("Y",),
        values={"mode": ("mode", enum("reduction_mode"))},
        fixed={"is_deterministic": (False,)},
    ),
    # dim and stride of the node are a second way to state those of its output.
    "RESHAPE": Rule(
        method="reshape",
        inputs={"X": "input"},
        outputs=("Y",),
        values={"reshape_mode": ("reshape_mode", enum("reshape_mode"))},
        derived=frozenset({"compute_data_type", "dim", "stride"}),
        has_compute_type=False,
    ),
    "ROPE": Rule(
        method="rope",
        inputs={"INPUT": "input", "FREQS": "freqs"},
        outputs=("OUTPUT",),
        values=_ROTATION,
    ),
    "ROPE_BWD": Rule(
        method="rope_backward",
        inputs={"DY": "dY", "FREQS": "freqs"},
        outputs=("DX",),
        values=_ROTATION,
    ),
    "SLICE": Rule(
        method="slice",
        inputs={"X": "input"},
        outputs=("Y",),
        extend=_slice,
        derived=frozenset({"slices", "slice_strides"}),
    ),
    "TRANSPOSE": Rule(
        method="transpose",
        inputs={"X": "input"},
        outputs=("Y",),
        values={"permutation": ("permutation", integers)},
    ),
}
