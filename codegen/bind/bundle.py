"""A bundle → the graphs of its plans, and plan files → a bundle.

A bundle is no dialect: those say how one graph is spelled, and the file that they read is what a
bundle holds, byte for byte. So it is taken apart here, each plan is read as if it were a file of
its own, and its key, which is never believed but read from the plan, is compared with
``bundle.json``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph, PlanInfo, dotted, under
from cudnn_bindgen.codegen.read.archive import (
    NAME,
    BundledPlan,
    PlanEntry,
    digest,
    is_bundle,
    pack,
    unpack,
)
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.options import DEFAULT, ReadOptions


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a plan is chosen by."""

    sm: int
    sm_count: int
    cudnn_version: int

    def __str__(self) -> str:
        count = self.sm_count or "any number of"
        return f"SM {self.sm} with {count} multiprocessors under {under(self.cudnn_version)}"

    @property
    def file_name(self) -> str:
        """Name of the plan file in a bundle."""
        made_by = f"cudnn-{dotted(self.cudnn_version)}" if self.cudnn_version else "kernels"
        return f"sm{self.sm}-{self.sm_count}-{made_by}.plan"


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan file that was read; `name` is for messages."""

    name: str
    key: Key
    content: bytes
    graph: Graph
    engine: str


def read_graphs(data: bytes, file: str = "", options: ReadOptions = DEFAULT) -> tuple[Graph, ...]:
    """Read a graph file or a bundle.

    Returns
    -------
    tuple of Graph
        One of a graph file; of a bundle one for each plan, all the same graph, sorted by SM, SM
        count and cuDNN version.

    Raises
    ------
    GraphFormatError
        As `read_graph` does; or the bundle is not as it was written.
    """
    if not is_bundle(data):
        return (read_graph(data, file, options),)
    plans = _read_bundle(data, file, options)
    _check_one_graph(plans)
    return tuple(plan.graph for plan in plans)


def first_plan(data: bytes, file: str = "") -> bytes:
    """Return a graph file of the graph in `data`: a bundle's first plan file, else `data` itself.

    Raises
    ------
    GraphFormatError
        The bundle is not as it was written.
    """
    return _read_bundle(data, file, DEFAULT)[0].content if is_bundle(data) else data


def write_bundle(files: Iterable[tuple[str, bytes]], options: ReadOptions = DEFAULT) -> bytes:
    """Make one bundle of plan files and bundles.

    Parameters
    ----------
    files
        Name, for error messages, and content of each; at least one. Plans that are equal count
        once.
    options
        How to read them.

    Returns
    -------
    bytes
        The same whatever order they were in, as long as zlib is the same.

    Raises
    ------
    GraphFormatError
        One has no plan, two are for the same key, they are of several graphs, or too many.
    """
    found = [plan for name, data in files for plan in _read_plans(data, name, options)]
    # Those of one key: of another graph they are no choice.
    _check_one_graph(found)
    plans: dict[Key, _Plan] = {}
    for plan in found:
        known = plans.setdefault(plan.key, plan)
        if known.content != plan.content:
            error = GraphFormatError(
                f"expected one plan for {plan.key}, got another in {known.name}",
                hint="leave one of them out",
            )
            error.file = plan.name
            raise error
    ordered = [plans[key] for key in sorted(plans)]
    return pack([BundledPlan(_entry(plan), plan.content) for plan in ordered])


def replace_plan(bundle: bytes, plan: bytes, file: str = "") -> bytes:
    """Return `bundle` with `plan` in it, in place of the one for the same device and cuDNN.

    Raises
    ------
    GraphFormatError
        The bundle is not as it was written, or the plan is of another graph.
    """
    new = _read_plan(plan, file, DEFAULT)
    others = [old for old in _read_bundle(bundle, file, DEFAULT) if old.key != new.key]
    return write_bundle([*((old.name, old.content) for old in others), (file, plan)])


def describe_plans(data: bytes, options: ReadOptions = DEFAULT) -> list[str]:
    """Say in a line each for what the plans of a bundle were made."""
    plans = _read_bundle(data, "", options)
    return [f"{plan.key}, {plan.engine}, {len(plan.content)} bytes" for plan in plans]


def merge_warnings(graphs: Iterable[Graph]) -> list[GraphFormatError]:
    """Return what is odd about the graphs of a file, each once."""
    found = {(w.path, w.problem): w for graph in graphs for w in graph.warnings}
    return list(found.values())


def _read_plans(data: bytes, file: str, options: ReadOptions) -> list[_Plan]:
    if is_bundle(data):
        return _read_bundle(data, file, options)
    return [_read_plan(data, file, options)]


def _read_bundle(data: bytes, file: str, options: ReadOptions) -> list[_Plan]:
    try:
        files = unpack(data)
    except GraphFormatError as error:
        error.file, error.dialect = file, NAME
        raise
    plans = [
        _read_plan(bundled.content, f"{file}/{bundled.entry.name}", options) for bundled in files
    ]
    for bundled, plan in zip(files, plans, strict=True):
        entry = bundled.entry
        said = Key(entry.sm, entry.sm_count, entry.cudnn_version)
        if (said, entry.name) != (plan.key, plan.key.file_name):
            refusal = GraphFormatError(
                f"expected a plan for {said}, as bundle.json says of it, got one for {plan.key}",
                hint="the bundle was edited: make it again with cudnn-bindgen bundle",
            )
            refusal.file, refusal.dialect = plan.name, NAME
            raise refusal
    return sorted(plans, key=lambda plan: plan.key)


def _read_plan(data: bytes, name: str, options: ReadOptions) -> _Plan:
    graph = read_graph(data, name, options)
    info = graph.plan
    if info is None:
        error = GraphFormatError(
            "expected a plan, got structure only",
            hint="make a plan of it with cudnn-bindgen plan, on each GPU that it is for",
        )
        error.file = name
        raise error
    return _Plan(name, _key(info), data, graph, info.engine)


def _key(info: PlanInfo) -> Key:
    return Key(info.sm, info.sm_count, info.cudnn_version)


def _entry(plan: _Plan) -> PlanEntry:
    key = plan.key
    return PlanEntry(
        name=key.file_name,
        sm=key.sm,
        sm_count=key.sm_count,
        cudnn_version=key.cudnn_version,
        engine=plan.engine,
        sha256=digest(plan.content),
    )


def _check_one_graph(plans: list[_Plan]) -> None:
    bind_graphs([plan.graph for plan in plans], names=[plan.name for plan in plans])
