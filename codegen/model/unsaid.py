"""What no dump says of a graph, found in cuDNN's text of its plan.

That are constants of compile time, score modifiers, and the type in which some nodes compute. Where
a text cannot be understood, the plan's graph is one of its own: equal to no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec

from cudnn_bindgen.codegen.model.graph import Node, PlanInfo, Tensor, is_made_up
from cudnn_bindgen.codegen.model.operation_graph import OperationGraph, TextTensor, kind, names_in
from cudnn_bindgen.codegen.model.scalar import read_constant, write_bits
from cudnn_bindgen.codegen.model.score_mods import MODIFIED, UnknownTextError, find_score_mods

# Index of a node, or -1; what only a plan says of it; and how.
Unsaid = tuple[int, str, Any]


class OnlyInPlan(msgspec.Struct, frozen=True):
    """What a plan says of its structure, which a module keeps beside it (write_structure.py).

    `constants` of compile time have a type and bits.
    """

    constants: dict[str, tuple[str, str]] = {}
    unsaid: list[Unsaid] = []


_TYPED = frozenset({"MOE_GROUPED_MATMUL", "MOE_GROUPED_MATMUL_BWD"})

# Each is looked for in the whole text; real graphs have one, rarely two.
_MOST_ATTENTION = 16


def find_unsaid(
    nodes: Sequence[Node],
    tensors: Mapping[int, Tensor],
    plan: PlanInfo,
    compute_type: str | None,
) -> OnlyInPlan:
    """Find what a plan's text says of its graph and no dump does.

    `tensors` are the graph's by uid, `compute_type` the type in which it computes. The result is
    the same however a cuDNN and a frontend wrote it.

    Raises
    ------
    GraphFormatError
        A constant in it is none.
    """
    text = plan.operation_graph
    own = hashlib.sha256(plan.text.encode()).hexdigest()[:32]
    constants: dict[str, tuple[str, str]] = {}
    found: list[Unsaid] = []
    for uid, tensor in tensors.items():
        if not tensor.is_pass_by_value or tensor.value or uid in plan.bound_uids:
            continue
        path, said = text.tensors.get(str(uid), ("", None)) if text else ("", TextTensor())
        if said is not None and said.hasConstValue:
            value = read_constant(said.constValue, said.data_type, path)
            constants[str(uid)] = write_bits(value)
        elif said is not None:
            found = [(-1, "constant", own)]
    if text is not None:
        callers = bound_by_callers(tensors.values(), plan)
        try:
            found += _of_nodes(nodes, text, plan, callers, compute_type)
        except UnknownTextError:
            found.append((-1, "text", own))
    return OnlyInPlan(constants, found)


def bound_by_callers(tensors: Iterable[Tensor], plan: PlanInfo | None) -> set[int]:
    """Return which tensors, if not virtual, the caller binds (docs/design.md, Scalars)."""
    tensors = list(tensors)
    uids = {tensor.uid for tensor in tensors if tensor.value is None or not is_made_up(tensor.name)}
    if plan is None:
        return uids
    uids &= plan.bound_uids
    uids -= {part.uid for part in plan.workspace_parts}
    uids -= {replacement.target for replacement in plan.replacements}
    # A constant with a value in the graph is that scalar's default, and stays the caller's.
    with_value = {tensor.uid for tensor in tensors if tensor.value is not None}
    return uids - ({uid for uid, _ in plan.constants} - with_value)


def _of_nodes(
    nodes: Sequence[Node],
    text: OperationGraph,
    plan: PlanInfo,
    callers: Set[int],
    compute_type: str | None,
) -> Iterator[Unsaid]:
    attention = [index for index, node in enumerate(nodes) if node.tag in MODIFIED]
    if len(attention) > _MOST_ATTENTION:
        raise UnknownTextError
    for index in attention:
        for what, how in find_score_mods(nodes[index], text, plan, callers):
            yield index, what, how
    written = {
        name: str(each.get("mathPrec", "")).removeprefix("CUDNN_DATA_")
        for each in text.operations
        if kind(each).startswith("MOE_")
        for name in names_in(each)
    }
    for index, node in enumerate(nodes):
        said = {written.get(str(uid), "") for _, uid in node.outputs if node.tag in _TYPED}
        for each in sorted(said - {"", compute_type}):
            yield index, "compute_data_type", each
