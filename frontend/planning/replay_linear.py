"""How matrix products and convolutions are built."""

from __future__ import annotations

from collections.abc import Mapping

from cudnn_bindgen.frontend.planning.rules import Rule, enum, integer, integers, number

_WINDOW = {
    "pre_padding": ("pre_padding", integers),
    "post_padding": ("post_padding", integers),
    "stride": ("stride", integers),
    "dilation": ("dilation", integers),
}


def _convolution(method: str, inputs: Mapping[str, str], output: str) -> Rule:
    return Rule(
        method=method,
        inputs=inputs,
        outputs=(output,),
        values=_WINDOW,
        # The methods take a mode, but the package does not export the enum that it is of.
        fixed={"math_mode": ("CROSS_CORRELATION",)},
    )


LINEAR: Mapping[str, Rule] = {
    "CONV_DGRAD": _convolution("conv_dgrad", {"DY": "loss", "W": "filter"}, "DX"),
    "CONV_FPROP": _convolution("conv_fprop", {"X": "image", "W": "weight"}, "Y"),
    "CONV_WGRAD": _convolution("conv_wgrad", {"X": "image", "DY": "loss"}, "DW"),
    "MATMUL": Rule(
        method="matmul",
        inputs={"A": "A", "B": "B"},
        outputs=("C",),
        values={"padding_value": ("padding", number)},
    ),
    # Neither dump has the type it computes in: the graph's is taken (docs/plans.md).
    "MOE_GROUPED_MATMUL": Rule(
        method="moe_grouped_matmul",
        inputs={
            "Token": "token",
            "Weight": "weight",
            "FirstTokenOffset": "first_token_offset",
            "TokenIndex": "token_index",
            "TokenKs": "token_ks",
        },
        outputs=("Output",),
        values={"mode": ("mode", enum("moe_grouped_matmul_mode")), "top_k": ("top_k", integer)},
    ),
    "MOE_GROUPED_MATMUL_BWD": Rule(
        method="moe_grouped_matmul_bwd",
        inputs={
            "DOutput": "doutput",
            "Token": "token",
            "FirstTokenOffset": "first_token_offset",
        },
        outputs=("DWeight",),
    ),
}
