"""How pointwise operations are built: a method for each mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.planning.rules import Convert, Rule, integer, number

_UNARY = ("input",)
_AB = ("a", "b")
_INPUTS = ("input0", "input1")
_COMPARISON = ("input", "comparison")
_GRADIENT = ("loss", "input")

# Mode → method, keywords of IN_0, IN_1, IN_2. The keywords are the frontend's.
METHODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ABS": ("abs", _UNARY),
    "ADD": ("add", _AB),
    "ADD_SQUARE": ("add_square", _AB),
    "BINARY_SELECT": ("binary_select", ("input0", "input1", "mask")),
    "CEIL": ("ceil", _UNARY),
    "CMP_EQ": ("cmp_eq", _COMPARISON),
    "CMP_GE": ("cmp_ge", _COMPARISON),
    "CMP_GT": ("cmp_gt", _COMPARISON),
    "CMP_LE": ("cmp_le", _COMPARISON),
    "CMP_LT": ("cmp_lt", _COMPARISON),
    "CMP_NEQ": ("cmp_neq", _COMPARISON),
    "COS": ("cos", _UNARY),
    "DIV": ("div", _AB),
    "ELU_BWD": ("elu_backward", _GRADIENT),
    "ELU_FWD": ("elu", _UNARY),
    "ERF": ("erf", _UNARY),
    "EXP": ("exp", _UNARY),
    "FLOOR": ("floor", _UNARY),
    "GELU_APPROX_TANH_BWD": ("gelu_approx_tanh_backward", _GRADIENT),
    "GELU_APPROX_TANH_FWD": ("gelu_approx_tanh", _UNARY),
    "GELU_BWD": ("gelu_backward", _GRADIENT),
    "GELU_FWD": ("gelu", _UNARY),
    "GEN_INDEX": ("gen_index", _UNARY),
    "IDENTITY": ("identity", _UNARY),
    "LOG": ("log", _UNARY),
    "LOGICAL_AND": ("logical_and", _AB),
    "LOGICAL_NOT": ("logical_not", _UNARY),
    "LOGICAL_OR": ("logical_or", _AB),
    "MAX": ("max", _INPUTS),
    "MIN": ("min", _INPUTS),
    "MOD": ("mod", _INPUTS),
    "MUL": ("mul", _AB),
    "NEG": ("neg", _UNARY),
    "POW": ("pow", _INPUTS),
    "RECIPROCAL": ("reciprocal", _UNARY),
    "RELU_BWD": ("relu_backward", _GRADIENT),
    "RELU_FWD": ("relu", _UNARY),
    "RSQRT": ("rsqrt", _UNARY),
    "SIGMOID_BWD": ("sigmoid_backward", _GRADIENT),
    "SIGMOID_FWD": ("sigmoid", _UNARY),
    "SIN": ("sin", _UNARY),
    "SOFTPLUS_BWD": ("softplus_backward", _GRADIENT),
    "SOFTPLUS_FWD": ("softplus", _UNARY),
    "SQRT": ("sqrt", _UNARY),
    "SUB": ("sub", _AB),
    "SWISH_BWD": ("swish_backward", _GRADIENT),
    "SWISH_FWD": ("swish", _UNARY),
    "TAN": ("tan", _UNARY),
    "TANH_BWD": ("tanh_backward", _GRADIENT),
    "TANH_FWD": ("tanh", _UNARY),
}

_CLIPS: Mapping[str, tuple[str, Convert]] = {
    "relu_lower_clip": ("lower_clip", number),
    "relu_lower_clip_slope": ("negative_slope", number),
    "relu_upper_clip": ("upper_clip", number),
}
_SWISH: Mapping[str, tuple[str, Convert]] = {"swish_beta": ("swish_beta", number)}
_VALUES: Mapping[str, Mapping[str, tuple[str, Convert]]] = {
    "GEN_INDEX": {"axis": ("axis", integer)},
    "RELU_BWD": _CLIPS,
    "RELU_FWD": _CLIPS,
    "SWISH_BWD": _SWISH,
    "SWISH_FWD": _SWISH,
}


def _pointwise(node: Node, path: str) -> Rule:
    mode = node.attributes.get("mode")
    if not isinstance(mode, str) or mode not in METHODS:
        raise PlanError(
            f"expected a pointwise mode of frontend 1.32, got {shorten(repr(mode))}",
            path=f"{path}.mode",
            hint="a newer cudnn-bindgen may know it",
        )
    method, keywords = METHODS[mode]
    return Rule(
        method=method,
        inputs={f"IN_{index}": keyword for index, keyword in enumerate(keywords)},
        outputs=("OUT_0",),
        values=_VALUES.get(mode, {}),
        derived=frozenset({"mode"}),
    )


POINTWISE: Mapping[str, Callable[[Node, str], Rule]] = {"POINTWISE": _pointwise}
