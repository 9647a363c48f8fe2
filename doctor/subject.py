"""What the doctor is asked about: a built module or a graph file, against what is here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.model.graph import dotted
from cudnn_bindgen.codegen.read.source import read_source
from cudnn_bindgen.doctor.finding import Finding, hung
from cudnn_bindgen.doctor.libraries import Found
from cudnn_bindgen.doctor.probe import ask
from cudnn_bindgen.runtime.errors import plan_command

# SM, SM count, version of cuDNN.
Plan: TypeAlias = tuple[int, int, int]

_BUILD = "emit and build it again: cudnn-bindgen build GRAPH -d FOLDER"
_POLICY = "CUDNN_BINDGEN_LAUNCH"


class Subject(NamedTuple):
    """A name or a file, and whether it is a built module."""

    given: str
    is_module: bool


def subject_of(given: str) -> Subject:
    """Say what is meant: a file that is no extension module is a graph's."""
    path = Path(given)
    is_name = not path.exists() and all(map(str.isidentifier, given.split(".")))
    return Subject(given, is_name or path.suffix == ".so")


def examine(subject: Subject, here: Found) -> Iterator[Finding]:
    """Yield what is to be said of it on this machine."""
    if subject.is_module:
        yield from _examine_module(subject.given, here)
    else:
        yield from _examine_file(Path(subject.given), here)


def _examine_module(given: str, here: Found) -> Iterator[Finding]:
    path = given if Path(given).exists() else ""
    name = Path(given).name.partition(".")[0] if path else given
    found = ask("module", name, path)
    if findings := hung("module", found):
        yield from findings
        return
    if "error" in found:
        kind = found.get("kind", "")
        problem = f"{kind}: {found['error']}" if kind else found["error"]
        yield Finding("module", problem, "problem", _remedy(kind, found["error"], name))
        return
    yield Finding("module", f"{found['path']}, graph {found['fingerprint']}")
    fits = False
    for graph in found["graphs"]:
        plans = [(sm, count, version) for sm, count, version, *_ in graph["plans"]]
        compared = [*_compare(graph["source"], plans, here)]
        fits = fits or any(one.what.startswith("plan for") and not one.remedy for one in compared)
        yield from compared
    policy = os.environ.get(_POLICY) or "auto"
    yield Finding("launch policy", f"{policy} ({_POLICY})")
    if fits:
        launch = ask("launch", name, path)
        yield from hung("launch", launch) or [_examine_launch(launch)]


def _remedy(kind: str, problem: str, name: str) -> str:
    if kind == "ModuleNotFoundError" and name.partition(".")[0] in problem:
        return "give its file, or have PYTHONPATH name its folder"
    if "LAUNCH" in problem:
        return f"set {_POLICY} to auto, direct or record, or unset it"
    return _BUILD


def _examine_launch(launch: dict[str, object]) -> Finding:
    if "error" not in launch:
        return Finding("launch", f"by a record, once proven; kernels and copies: {launch['nodes']}")
    return Finding(
        "launch",
        f"direct, not by a record: {launch['error']}",
        "warn",
        "docs/launch-records.md says what cannot be recorded; direct launches are right as well",
    )


def _examine_file(path: Path, here: Found) -> Iterator[Finding]:
    try:
        binding = bind_graphs(read_graphs(read_source(path), path.name))
    except (EmitError, GraphFormatError) as error:
        yield Finding("graph", str(error), "problem", f"cudnn-bindgen show {path.name} explains it")
        return
    except OSError as error:
        problem = f"{path}: {error.strerror or error}"
        remedy = "name a built module, its file, or a graph file"
        yield Finding("graph", problem, "problem", remedy)
        return
    yield Finding("graph", f"{path.name}, {binding.dialect}, graph {binding.fingerprint}")
    plans = [(plan.sm, plan.sm_count, plan.cudnn_version) for plan in binding.plans]
    yield from _compare(path.name, plans, here)


def _compare(source: str, plans: Sequence[Plan], here: Found) -> Iterator[Finding]:
    """Yield for each kind of GPU here which plan it takes, or which command makes one."""
    there = "; ".join(map(_describe, dict.fromkeys(plans))) or "none"
    if not here.gpus:
        said = f"{source} has {there}; no GPU here to compare with"
        if plans:
            yield Finding("plans", said)
        else:
            yield Finding("plans", said, "warn", plan_command(source))
    for sm, count in dict.fromkeys(here.gpus):
        gpu = f"sm_{sm}:{count}"
        what = f"plan for {gpu}"
        if not here.cudnn:
            yield Finding(what, f"{source} has {there}; no cuDNN here to compare with", "warn")
        elif taken := _choose(plans, (sm, count, here.cudnn)):
            yield Finding(what, f"{source}: {_describe(taken)}")
        else:
            yield Finding(
                what,
                f"{source} has {there}; here is {_describe((sm, count, here.cudnn))}",
                "problem",
                plan_command(source, gpu),
            )


def _choose(plans: Sequence[Plan], here: Plan) -> Plan | None:
    """Return the plan that the runtime takes (docs/bundles.md, at load)."""
    sm, _, version = here
    alike = [plan for plan in plans if (plan[0], plan[2]) == (sm, version)]
    if here in alike:
        return here
    if (sm, 0, version) in alike:
        return (sm, 0, version)
    return alike[0] if len(plans) == 1 and alike else None


def _describe(plan: Plan) -> str:
    sm, count, version = plan
    return f"sm_{sm}{f':{count}' if count else ''} under cuDNN {dotted(version)}"
