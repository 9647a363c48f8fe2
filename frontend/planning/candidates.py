"""The plans that a graph has been offered, by their positions in the frontend's list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.evidence import Candidate
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.planning.frontend import (
    Graph,
    Module,
    RefusedError,
    find_member,
    refusals,
)
from cudnn_bindgen.frontend.planning.options import PlanOptions
from cudnn_bindgen.frontend.planning.own_engines import own_engine

# Of one plan's reason, in evidence; of plans that do not build, how many reasons are told.
_LONGEST = 300
_TOLD = 3


def ask_heuristics(graph: Graph, options: PlanOptions, frontend: Module) -> None:
    """Let cuDNN offer its plans, those with too much workspace left out."""
    modes = [
        find_member(frontend, "heur_mode", name, "--heuristics") for name in options.heuristics
    ]
    with refusals(frontend, "cuDNN has no plan for the graph"):
        graph.create_execution_plans(modes)
        if options.max_workspace is not None:
            graph.deselect_workspace_greater_than(options.max_workspace)


def own_plans(graph: Graph) -> Iterator[int]:
    """Yield the positions of cuDNN's own plans, the best first.

    Frontend 1.27 and newer rank plans of their own kernels among them.
    """
    for index in range(graph.get_execution_plan_count()):
        if own_engine(graph, index) is None:
            yield index


def build_at(graph: Graph, index: int, limit: int | None, frontend: Module) -> int:
    """Build a plan, which is the graph's candidate then, and return its workspace in bytes."""
    with refusals(frontend, f"plan {index} does not build"):
        graph.build_plan_at_index(index)
        size = int(graph.get_workspace_size_plan_at_index(index))
    if limit is not None and size > limit:
        raise PlanError(f"plan {index}: expected a workspace of at most {limit} bytes, got {size}")
    return size


def serialize(graph: Graph, frontend: Module) -> bytes:
    """Return the plan file of the graph's candidate."""
    with refusals(frontend, "cannot serialize the plan"):
        return bytes(graph.serialize())


def refused(item: Candidate, outcome: str, reason: str) -> Candidate:
    """Return a candidate that is not taken, and why."""
    return msgspec.structs.replace(item, outcome=outcome, reason=shorten(reason, _LONGEST))


def first_reasons(candidates: Sequence[Candidate]) -> str:
    """Return the first reasons of plans that are not taken."""
    reasons = [item.reason for item in candidates if item.reason]
    told = "; ".join(reasons[:_TOLD]) or "it offers none of its own"
    return f"{told}; and {len(reasons) - _TOLD} more" if len(reasons) > _TOLD else told


def none_left(candidates: Sequence[Candidate], only_limit: bool) -> PlanError:
    """Return the error for a graph of which no plan builds, for the user's limit alone or not."""
    # Where it is the limit alone, another graph would not do.
    kind = PlanError if candidates and only_limit else RefusedError
    return kind(f"cuDNN has no plan for the graph: {first_reasons(candidates)}")
