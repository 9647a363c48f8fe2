"""``plan --autotune``: every plan that cuDNN offers is built, compared, timed; the best is taken.

How: docs/plans.md, "Autotune".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.evidence import Candidate, Timing, read_engine
from cudnn_bindgen.codegen.model.graph import Graph as Model
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.planning.agreement import find_tolerances
from cudnn_bindgen.frontend.planning.candidates import (
    build_at,
    first_reasons,
    none_left,
    own_plans,
    refused,
    serialize,
)
from cudnn_bindgen.frontend.planning.cuda import Cuda
from cudnn_bindgen.frontend.planning.evidence import Choice
from cudnn_bindgen.frontend.planning.frontend import Graph, Module, RefusedError, refusals
from cudnn_bindgen.frontend.planning.measure import ROUNDS, SEED, Bench
from cudnn_bindgen.frontend.planning.wanted import find_wanted

# What is being done, how much of it is done, of how much.
Watch: TypeAlias = Callable[[str, int, int], None]


def unwatched(what: str, done: int, total: int) -> None:
    """Show nobody how far it has come."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Where plans run, and who watches."""

    cuda: Cuda
    watch: Watch


@dataclass(frozen=True, slots=True)
class Session:
    """A graph whose plans cuDNN has offered, and what it takes to run them."""

    graph: Graph
    limit: int | None
    frontend: Module
    handle: object
    cuda: Cuda
    watch: Watch

    def execute(self, index: int, addresses: Mapping[int, int], workspace: int) -> None:
        """Launch one plan on the handle's stream."""
        with refusals(self.frontend, f"plan {index} does not run"):
            self.graph.execute_plan_at_index(dict(addresses), workspace, index, self.handle)


def autotune(
    graph: Graph, limit: int | None, frontend: Module, handle: object, tuning: Tuning
) -> Choice:
    """Build, compare and time all plans, and make the best of them the graph's candidate.

    `limit` is the largest workspace.

    Raises
    ------
    PlanError
        None of them can be taken, or the GPU failed.
    """
    session = Session(graph, limit, frontend, handle, tuning.cuda, tuning.watch)
    with refusals(session.frontend, "cannot set the stream of a cuDNN handle"):
        session.frontend.set_stream(session.handle, session.cuda.stream)
    found, model = _build_all(session)
    built = [item for item in found if item.outcome == "built"]
    bench = Bench(
        session.cuda,
        session.execute,
        find_wanted(model),
        find_tolerances(model),
        max(item.workspace or 0 for item in built),
    )
    ran = {item.rank: item for item in _compare_all(built, bench, session.watch)}
    timed = bench.time(
        [rank for rank, item in ran.items() if item.outcome == "agrees"],
        lambda done, total: session.watch("timing", done, total),
    )
    for rank, measured in timed.items():
        if isinstance(measured, str):
            ran[rank] = refused(ran[rank], "not capturable", measured)
        else:
            times = {"microseconds": round(measured.median, 3), "spread": round(measured.spread, 3)}
            ran[rank] = msgspec.structs.replace(ran[rank], **times)
    candidates = tuple(ran.get(item.rank, item) for item in found)
    chosen = fastest(candidates)
    if chosen is None:
        raise PlanError(f"--autotune: no plan can be taken: {first_reasons(candidates)}")
    build_at(session.graph, chosen.rank, limit, session.frontend)
    return Choice(
        "autotune",
        chosen.rank,
        candidates,
        session.cuda.name,
        session.cuda.driver,
        Timing(SEED, bench.operand_bytes, bench.sets, ROUNDS),
    )


def fastest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the fastest of those that agree, in doubt the one that the heuristics rank first.

    In doubt means that its median is not farther from the smallest than the larger of both spreads.
    """
    timed = [
        (item.microseconds, item.spread or 0.0, item)
        for item in candidates
        if item.outcome == "agrees" and item.microseconds is not None
    ]
    if not timed:
        return None
    best, spread, _ = min(timed, key=lambda one: (one[0], one[2].rank))
    tied = [item for time, own, item in timed if time - best <= max(own, spread)]
    return min(tied, key=lambda item: item.rank)


def _build_all(session: Session) -> tuple[list[Candidate], Model]:
    """Return all candidates, and the graph as the first one that builds has it."""
    found: list[Candidate] = []
    only_limit = True
    model: Model | None = None
    seen: dict[str, int] = {}
    indices = list(own_plans(session.graph))
    for done, index in enumerate(indices):
        session.watch("building", done, len(indices))
        item = Candidate(index, "built")
        try:
            item = msgspec.structs.replace(
                item, workspace=build_at(session.graph, index, session.limit, session.frontend)
            )
            # A plan that cannot be serialized cannot be taken.
            read = read_graph(serialize(session.graph, session.frontend))
        except (PlanError, GraphFormatError) as error:
            found.append(refused(item, "refused", error.problem))
            only_limit &= isinstance(error, PlanError) and not isinstance(error, RefusedError)
            continue
        if read.plan is None:
            found.append(refused(item, "refused", f"plan {index} is not in its file"))
            continue
        engine, knobs = read_engine(read.plan.engine)
        item = msgspec.structs.replace(item, engine=engine, knobs=knobs)
        first = seen.setdefault(read.plan.engine, index)
        if first != index:  # two heuristics name the same
            item = refused(item, "repeated", f"the same as plan {first}")
        found.append(item)
        model = model or read
    session.watch("building", len(indices), len(indices))
    if model is None:
        raise none_left(found, only_limit)
    return found, model


def _compare_all(built: Sequence[Candidate], bench: Bench, watch: Watch) -> Iterable[Candidate]:
    for done, item in enumerate(built):
        watch("comparing", done, len(built))
        difference = bench.try_out(item.rank)
        if isinstance(difference, str):
            yield refused(item, "refused", difference)
            continue
        outcome = "agrees" if difference.agrees else "differs"
        yield msgspec.structs.replace(
            item,
            outcome=outcome,
            agreement=round(difference.error, 4) if difference.error != float("inf") else None,
            reason=shorten(difference.problem, 300),
        )
    watch("comparing", len(built), len(built))
