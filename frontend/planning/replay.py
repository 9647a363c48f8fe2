"""Node → Call: one entry for each tag, and what cannot be replayed, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.codegen.model.ports import fields_with_tensors
from cudnn_bindgen.codegen.text import member, shorten
from cudnn_bindgen.frontend.planning.call import Call, Operand
from cudnn_bindgen.frontend.planning.replay_attention import ATTENTION
from cudnn_bindgen.frontend.planning.replay_linear import LINEAR
from cudnn_bindgen.frontend.planning.replay_norms import NORMS
from cudnn_bindgen.frontend.planning.replay_pointwise import POINTWISE
from cudnn_bindgen.frontend.planning.replay_shapes import SHAPES
from cudnn_bindgen.frontend.planning.rules import Rule, data_type

Choose = Callable[[Node, str], Rule]

# A rule, or a function that chooses one by the node's attributes.
REPLAYS: Mapping[str, Rule | Choose] = MappingProxyType(
    {**ATTENTION, **LINEAR, **NORMS, **POINTWISE, **SHAPES}
)

_NO_BUILDER = "the frontend's Python API has no builder for it (frontend 1.23 to 1.32)"

REFUSED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("BN_FINALIZE", "DBN_WEIGHT", "MATMUL_FP8", "RESAMPLE", "RNG"), _NO_BUILDER)
)

_IN_CPP = "build the graph in C++, serialize() it there, and emit from that plan file"


def replay(node: Node, path: str) -> Call:
    """Return the call that builds `node`, which stands at `path`.

    Raises
    ------
    PlanError
        No public call of the frontend builds it as it is.
    """
    rule = _find_rule(node, path)
    arguments: dict[str, object] = {"name": node.name}
    for side, ports in (("inputs", node.inputs + node.optional), ("outputs", node.outputs)):
        for port, uid in ports:
            keyword = rule.inputs.get(port) if side == "inputs" else rule.made.get(port)
            if keyword is not None:
                arguments[keyword] = Operand(uid)
            elif port not in (rule.read if side == "inputs" else rule.outputs):
                raise PlanError(
                    f"expected a port that pygraph.{rule.method} takes, got {shorten(port)}",
                    path=member(f"{path}.{side}", port),
                    hint=_IN_CPP,
                )
    arguments |= _values(rule, node, path)
    if rule.extend is not None:
        arguments |= rule.extend(node, path)
    returned = dict(node.outputs)
    return Call(
        method=rule.method,
        path=path,
        arguments=arguments,
        outputs=tuple(returned.get(port) for port in rule.outputs),
    )


def _find_rule(node: Node, path: str) -> Rule:
    if node.tag in REFUSED:
        raise PlanError(
            f"cannot rebuild {node.tag}: {REFUSED[node.tag]}", path=f"{path}.tag", hint=_IN_CPP
        )
    found = REPLAYS.get(node.tag)
    if found is None:
        raise PlanError(
            f"expected a node tag of frontend 1.32, got {shorten(node.tag)}",
            path=f"{path}.tag",
            hint="a newer cudnn-bindgen may know it",
        )
    return found if isinstance(found, Rule) else found(node, path)


def _values(rule: Rule, node: Node, path: str) -> dict[str, object]:
    """Return the arguments that attributes become; refuse those that no argument stands for."""
    carried = fields_with_tensors(node.tag)
    arguments: dict[str, object] = {}
    for name, value in node.attributes.items():
        place = member(path, name)
        if name in rule.values:
            keyword, convert = rule.values[name]
            converted = None if value is None else convert(value, place)
            if converted is not None:
                arguments[keyword] = converted
        elif name == "compute_data_type" and rule.has_compute_type:
            if value is not None:
                arguments[name] = data_type(value, place)
        elif name not in rule.derived and name not in carried:
            _check_fixed(rule, name, value, place)
    return arguments


def _check_fixed(rule: Rule, name: str, value: Any, place: str) -> None:
    """Refuse an attribute that is not at the one value that the builder gives it."""
    # As for fingerprints: null and false are what older frontends do not write.
    if value is None or value is False:
        return
    if name in rule.fixed:
        if value in rule.fixed[name]:
            return
        problem = f"cannot be told: expected {rule.fixed[name][0]!r}"
    else:
        problem = "is not known to have it: expected no such attribute"
    raise PlanError(
        f"pygraph.{rule.method} {problem}, got {shorten(repr(value))}", path=place, hint=_IN_CPP
    )
