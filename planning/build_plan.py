"""Structure → plan file, on the GPU of this process."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.planning.frontend import Graph, Module, RefusedError, find_member, refusals
from cudnn_bindgen.planning.implementation import leave_open, named
from cudnn_bindgen.planning.options import PlanOptions
from cudnn_bindgen.planning.rebuild import check_dump, rebuild
from cudnn_bindgen.planning.structure import Structure

# Ids from here on are not cuDNN's: the frontend has kernels of its own, which no binding can run.
_FIRST_FOREIGN_ENGINE = 10_000

# Of the plans that do not build, how many reasons are told.
_TOLD = 3


def build_plan(
    structure: Structure,
    constants: Mapping[int, int | float],
    options: PlanOptions,
    frontend: Module,
    tell: Callable[[str], None] = lambda text: None,
) -> bytes:
    """Return a plan file for the current CUDA device.

    The structure in the plan file is compared with `structure` once more: what lowering changes
    beyond docs/plans.md is an error. `tell` is told if attention is not implemented as it is there.

    Raises
    ------
    PlanError
        There is no GPU, the graph is not rebuilt as it is, or cuDNN has no plan for it.
    """
    with refusals(frontend, "expected a GPU that cuDNN can use, got none"):
        handle = frontend.create_handle()
    refusal = ""
    try:
        data, refusal = _serialized_somehow(structure, constants, options, frontend, handle)
    except BaseException as error:
        _forget_frames(error)
        raise
    finally:
        frontend.destroy_handle(handle)
    built = leave_open(structure) if refusal else structure
    found = check_dump(data, built, frozenset(constants))
    if refusal:
        tell(
            f"attention is {named(structure)} in the file and {named(found)} in the plan, because "
            f"it was refused: {refusal}"
        )
    return data


def _serialized_somehow(
    structure: Structure,
    constants: Mapping[int, int | float],
    options: PlanOptions,
    frontend: Module,
    handle: object,
) -> tuple[bytes, str]:
    """Return the plan file of a graph as it is, or with attention as the frontend chooses.

    And why it is the latter: what the former was refused for.
    """
    try:
        return _serialized(structure, constants, options, frontend, handle), ""
    except RefusedError as error:
        free = leave_open(structure)
        if free == structure:
            raise
        _forget_frames(error)
        refused = error
    try:
        data = _serialized(free, constants, options, frontend, handle)
    except PlanError as error:
        _forget_frames(error)
        if error.problem == refused.problem:
            raise
        raise PlanError(
            f"{refused.problem}; with another implementation of attention: {error.problem}",
            path=refused.path,
            hint=refused.hint,
        ) from None
    return data, refused.problem


def _serialized(
    structure: Structure,
    constants: Mapping[int, int | float],
    options: PlanOptions,
    frontend: Module,
    handle: object,
) -> bytes:
    graph = rebuild(structure, constants, frontend, handle)
    _choose(graph, options, frontend)
    with refusals(frontend, "cannot serialize the plan"):
        return bytes(graph.serialize())


def _forget_frames(error: BaseException | None) -> None:
    """Let go of the graph that the frames of an error hold: it must not outlive its handle."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, PlanError):
            # A cleared frame still holds its function, and so what a comprehension closed over.
            error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _choose(graph: Graph, options: PlanOptions, frontend: Module) -> None:
    """Build the plan that `options` ask for; it is then the graph's candidate."""
    with refusals(frontend, "cuDNN does not take the graph"):
        graph.build_operation_graph()
    if options.engine is not None:
        _pin(graph, options, frontend)
        return
    modes = [
        find_member(frontend, "heur_mode", name, "--heuristics") for name in options.heuristics
    ]
    with refusals(frontend, "cuDNN has no plan for the graph"):
        graph.create_execution_plans(modes)
        if options.max_workspace is not None:
            graph.deselect_workspace_greater_than(options.max_workspace)
    reasons, only_limit = [], True
    for index in _own_plans(graph):
        try:
            _build_at(graph, index, options.max_workspace, frontend)
        except PlanError as error:
            reasons.append(error.problem)
            only_limit &= not isinstance(error, RefusedError)
        else:
            return
    told = "; ".join(reasons[:_TOLD]) or "it offers none of its own"
    more = f"; and {len(reasons) - _TOLD} more" if len(reasons) > _TOLD else ""
    # Where it is the user's limit alone, another graph would not do.
    kind = PlanError if reasons and only_limit else RefusedError
    raise kind(f"cuDNN has no plan for the graph: {told}{more}")


def _pin(graph: Graph, options: PlanOptions, frontend: Module) -> None:
    """Build one engine with its knobs."""
    knobs = {
        find_member(frontend, "knob_type", name, "--knobs"): value
        for name, value in options.knobs.items()
    }
    with refusals(frontend, f"cuDNN does not take engine {options.engine}"):
        graph.create_execution_plan(options.engine, knobs)
        index = graph.get_execution_plan_count() - 1
    _build_at(graph, index, options.max_workspace, frontend)


def _own_plans(graph: Graph) -> Iterator[int]:
    """Yield the positions of cuDNN's own plans, the best first.

    Frontend 1.27 and newer rank plans of their own kernels among them.
    """
    plans = getattr(graph, "plans", None)
    if plans is None:
        yield from range(graph.get_execution_plan_count())
        return
    for index, plan in enumerate(plans):
        if 0 <= plan.engine_id < _FIRST_FOREIGN_ENGINE:
            yield index


def _build_at(graph: Graph, index: int, limit: int | None, frontend: Module) -> None:
    with refusals(frontend, f"plan {index} does not build"):
        graph.build_plan_at_index(index)
        size = graph.get_workspace_size_plan_at_index(index)
    if limit is not None and size > limit:
        raise PlanError(f"plan {index}: expected a workspace of at most {limit} bytes, got {size}")
