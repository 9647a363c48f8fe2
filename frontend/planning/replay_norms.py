"""How normalisations are built, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping

from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.frontend.planning.call import Operand
from cudnn_bindgen.frontend.planning.rules import Rule, enum

_FORWARD = {"X": "input", "SCALE": "scale", "BIAS": "bias", "EPSILON": "epsilon"}
_BACKWARD = {"DY": "grad", "X": "input", "SCALE": "scale", "INV_VARIANCE": "inv_variance"}
_MEAN = {"MEAN": "mean"}
_PHASE = {"forward_phase": ("norm_forward_phase", enum("norm_forward_phase"))}
_OUTPUTS = ("Y", "MEAN", "INV_VARIANCE")
_GRADIENTS = ("DX", "DSCALE", "DBIAS")


def _peers(node: Node, path: str) -> dict[str, object]:
    """Pass the statistics of other devices, which the node carries itself."""
    peers = [Operand(uid) for field, uid in node.extra if field == "peer_stats"]
    return {"peer_stats": peers} if peers else {}


def _has_bias_gradient(node: Node, path: str) -> dict[str, object]:
    """Ask for the bias's gradient if the node writes it: no attribute of the file says so."""
    return {"has_dbias": "DBIAS" in dict(node.outputs)}


def _none_for_absent(*keywords: str) -> dict[str, object]:
    return dict.fromkeys(keywords)


def _batchnorm(node: Node, path: str) -> dict[str, object]:
    """Pass None for what batchnorm takes without a default."""
    found = dict(node.inputs + node.optional)
    absent = [keyword for port, keyword in _RUNNING.items() if port not in found]
    return _none_for_absent(*absent) | _peers(node, path)


def _affine(node: Node, path: str) -> dict[str, object]:
    """Pass None for a scale or bias that is not there: older frontends have no default."""
    found = dict(node.inputs + node.optional)
    return _none_for_absent(*(_FORWARD[port] for port in ("SCALE", "BIAS") if port not in found))


_RUNNING = {
    "PREV_RUNNING_MEAN": "in_running_mean",
    "PREV_RUNNING_VAR": "in_running_var",
    "MOMENTUM": "momentum",
}


def _forward(method: str, outputs: tuple[str, ...] = _OUTPUTS) -> Rule:
    return Rule(method=method, inputs=_FORWARD, outputs=outputs, values=_PHASE, extend=_affine)


def _backward(method: str) -> Rule:
    return Rule(method=method, inputs=_BACKWARD | _MEAN, outputs=_GRADIENTS)


NORMS: Mapping[str, Rule] = {
    "ADA_LAYER_NORM": _forward("adalayernorm"),
    "ADA_LAYER_NORM_BPROP": _backward("adalayernorm_backward"),
    "BATCHNORM": Rule(
        method="batchnorm",
        inputs=_FORWARD | _RUNNING,
        outputs=(*_OUTPUTS, "NEXT_RUNNING_MEAN", "NEXT_RUNNING_VAR"),
        extend=_batchnorm,
    ),
    "BATCHNORM_INFERENCE": Rule(
        method="batchnorm_inference",
        inputs={"X": "input", "SCALE": "scale", "BIAS": "bias"}
        | {"MEAN": "mean", "INV_VARIANCE": "inv_variance"},
        outputs=("Y",),
    ),
    "DBN": Rule(
        method="batchnorm_backward",
        inputs=_BACKWARD | _MEAN,
        outputs=_GRADIENTS,
        extend=_peers,
    ),
    "GENSTATS": Rule(method="genstats", inputs={"X": "input"}, outputs=("SUM", "SQ_SUM")),
    "INSTANCE_NORM": _forward("instancenorm"),
    "INSTANCE_NORM_BPROP": _backward("instancenorm_backward"),
    "LAYER_NORM": _forward("layernorm"),
    "LAYER_NORM_BPROP": _backward("layernorm_backward"),
    "RMS_NORM": _forward("rmsnorm", ("Y", "INV_VARIANCE")),
    "RMS_NORM_BPROP": Rule(
        method="rmsnorm_backward",
        inputs=_BACKWARD,
        outputs=_GRADIENTS,
        extend=_has_bias_gradient,
    ),
}
