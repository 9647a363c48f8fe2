"""Structure → plan file, for the GPU of this process or for one that is described."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.evidence import Candidate
from cudnn_bindgen.frontend.planning.autotune import Tuning, Watch, autotune, unwatched
from cudnn_bindgen.frontend.planning.candidates import (
    ask_heuristics,
    build_at,
    none_left,
    own_plans,
    refused,
    serialize,
)
from cudnn_bindgen.frontend.planning.cuda import load_cuda
from cudnn_bindgen.frontend.planning.evidence import Choice, add_evidence
from cudnn_bindgen.frontend.planning.frontend import (
    Graph,
    Module,
    RefusedError,
    device_of,
    find_member,
    refusals,
)
from cudnn_bindgen.frontend.planning.implementation import leave_open, named
from cudnn_bindgen.frontend.planning.options import PlanOptions
from cudnn_bindgen.frontend.planning.own_engines import own_engine, trace_plan
from cudnn_bindgen.frontend.planning.rebuild import check_dump, rebuild
from cudnn_bindgen.frontend.planning.structure import Structure
from cudnn_bindgen.frontend.planning.trace import Trace
from cudnn_bindgen.frontend.planning.wanted import waits_for_peers


def build_plan(
    structure: Structure,
    constants: Mapping[int, int | float],
    options: PlanOptions,
    frontend: Module,
    tell: Callable[[str], None] = lambda text: None,
    watch: Watch = unwatched,
    properties: str | None = None,
    trace: Trace | None = None,
) -> bytes:
    """Return a plan file with how the plan was chosen in it.

    It is for the current CUDA device, or for the one that has these `properties`. Engines of the
    frontend's own are asked as well where there is a `trace`.

    The structure in the plan file is compared with `structure` once more: what lowering changes
    beyond docs/plans.md is an error. `tell` is told if attention is not implemented as it is there.

    Raises
    ------
    PlanError
        There is no GPU, the graph is not rebuilt as it is, or cuDNN has no plan for it.
    """
    tuning = _tuning(structure, watch) if options.autotune else None
    if trace:
        trace.offer(frontend)
    with device_of(frontend, properties) as device:

        def serialized(graph: Structure) -> bytes:
            data, choice = _serialized(graph, constants, options, frontend, device, tuning, trace)
            return add_evidence(data, choice, options, frontend, properties or "")

        try:
            data, refusal = _serialized_somehow(structure, serialized)
        except BaseException as error:
            forget_frames(error)
            raise
    built = leave_open(structure) if refusal else structure
    found = check_dump(data, built, frozenset(constants))
    if refusal:
        tell(
            f"attention is {named(structure)} in the file and {named(found)} in the plan, because "
            f"it was refused: {refusal}"
        )
    return data


def _tuning(structure: Structure, watch: Watch) -> Tuning:
    if waits_for_peers(structure.nodes):
        raise PlanError(
            "--autotune: expected a graph that one GPU executes, got one with peer_stats, which "
            "waits for other GPUs",
            hint="plan without --autotune",
        )
    return Tuning(load_cuda(), watch)


def _serialized_somehow(
    structure: Structure, serialized: Callable[[Structure], bytes]
) -> tuple[bytes, str]:
    """Return the plan file of a graph as it is, or with attention as the frontend chooses.

    And why it is the latter: what the former was refused for.
    """
    try:
        return serialized(structure), ""
    except RefusedError as error:
        free = leave_open(structure)
        if free == structure:
            raise
        forget_frames(error)
        refused = error
    try:
        data = serialized(free)
    except PlanError as error:
        forget_frames(error)
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
    device: Mapping[str, object],
    tuning: Tuning | None,
    trace: Trace | None,
) -> tuple[bytes, Choice]:
    graph = rebuild(structure, constants, frontend, device)
    with refusals(frontend, "cuDNN does not take the graph"):
        graph.build_operation_graph()
    if options.engine is not None:
        return _pin(graph, options, frontend, trace)
    ask_heuristics(graph, options, frontend)
    if tuning is None:
        return _take_first(graph, options, frontend, trace)
    choice = autotune(graph, options.max_workspace, frontend, device["handle"], tuning)
    return serialize(graph, frontend), choice


def forget_frames(error: BaseException | None) -> None:
    """Let go of the graph that the frames of an error hold: it must not outlive its handle."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, PlanError):
            # A cleared frame still holds its function, and so what a comprehension closed over.
            error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _take_first(
    graph: Graph, options: PlanOptions, frontend: Module, trace: Trace | None
) -> tuple[bytes, Choice]:
    """Build the first plan that builds; it is then the graph's candidate."""
    candidates, only_limit = [], True
    refusing: dict[int, int] = {}  # engine of the frontend's own → its first plan
    plans = range(graph.get_execution_plan_count()) if trace else own_plans(graph)
    for index in plans:
        engine = own_engine(graph, index)
        if engine in refusing:
            # Compiling takes seconds, and what cannot be traced cannot with other knobs.
            reason = f"as plan {refusing[engine]}"
            candidates.append(refused(Candidate(index, "refused"), "refused", reason))
            continue
        try:
            traced, size = _build(graph, index, options, frontend, trace)
        except PlanError as error:
            candidates.append(refused(Candidate(index, "refused"), "refused", error.problem))
            only_limit &= not isinstance(error, RefusedError)
            if engine is not None:
                refusing[engine] = index
        else:
            candidates.append(Candidate(index, "taken", workspace=size))
            data = traced or serialize(graph, frontend)
            return data, Choice("heuristics", index, tuple(candidates))
    raise none_left(candidates, only_limit)


def _build(
    graph: Graph, index: int, options: PlanOptions, frontend: Module, trace: Trace | None
) -> tuple[bytes, int]:
    """Build a plan; return its plan file if it is traced, else nothing, and its workspace."""
    if trace is None or own_engine(graph, index) is None:
        return b"", build_at(graph, index, options.max_workspace, frontend)
    trace.prepare()
    with trace.listening():
        size = build_at(graph, index, options.max_workspace, frontend)
    is_asked = options.engine is not None
    return trace_plan(graph, index, frontend, trace, takes_packed=is_asked), size


def _pin(
    graph: Graph, options: PlanOptions, frontend: Module, trace: Trace | None
) -> tuple[bytes, Choice]:
    """Build one engine with its knobs; it is then the graph's candidate."""
    knobs = {
        find_member(frontend, "knob_type", name, "--knobs"): value
        for name, value in options.knobs.items()
    }
    with refusals(frontend, f"cuDNN does not take engine {options.engine}"):
        graph.create_execution_plan(options.engine, knobs)
        index = graph.get_execution_plan_count() - 1
    traced, size = _build(graph, index, options, frontend, trace)
    data = traced or serialize(graph, frontend)
    return data, Choice("engine", index, (Candidate(index, "taken", workspace=size),))
