"""What `emit` and `build` say when they are done: what was made, for which GPUs, what is next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from cudnn_bindgen.codegen.model.graph import under
from cudnn_bindgen.codegen.read.source import is_stdin
from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.module_data import PlanParts

# Names of one kind of GPU, and files of one command, that a line has room for.
_MOST = 3


class Made(NamedTuple):
    """A module, and the plans of each graph file that it was made of."""

    module: str
    plans: Mapping[Path, Sequence[PlanParts]]


def tell(how: str, files: Iterable[Path], made: Made, index: int | None = None) -> None:
    """Say what was made, and how a plan is made of what has none; `index`: of a log's graph."""
    first, *others = sorted(files)
    names = (file.suffix if file.stem == first.stem else file.name for file in others)
    plans = [plan for several in made.plans.values() for plan in several]
    _say(f"{how} {', '.join((str(first), *names))}: module {made.module}; {_describe(plans)}")
    lacking = [graph for graph, several in made.plans.items() if not several]
    if lacking:
        graphs = ["GRAPH" if is_stdin(one) else shlex.quote(str(one)) for one in lacking]
        given = graphs[:_MOST] + ["..."] * (len(graphs) > _MOST)
        chosen = [f"--index {index}"] if index is not None else []
        command = " ".join(["cudnn-bindgen plan", *given, *chosen, "--for h100,b200"])
        _say(f"next: {command}    # then emit that, or load_plan() it; names: cudnn-bindgen gpus")


def _describe(plans: Sequence[PlanParts]) -> str:
    if not plans:
        return "no plan"
    devices: dict[int, dict[str, None]] = {}
    for plan in plans:
        gpu = _describe_gpu(plan.sm, plan.sm_count)
        devices.setdefault(plan.cudnn_version, {})[gpu] = None
    return "; ".join(
        f"planned for {', '.join(gpus)} under {under(version)}" for version, gpus in devices.items()
    )


def _describe_gpu(sm: int, sm_count: int) -> str:
    """Return a GPU as --for takes it, and the names that it has."""
    from cudnn_bindgen.frontend.planning.gpus import load_table

    if not sm_count:
        return f"sm_{sm}"
    table = load_table().gpus.items()
    names = [name for name, gpu in table if (gpu.sm, gpu.sm_count) == (sm, sm_count)]
    more = [*names[:_MOST], *["..."] * (len(names) > _MOST)]
    return f"sm_{sm}:{sm_count}" + (f" ({', '.join(more)})" if names else "")


def _say(line: str) -> None:
    click.echo(printable(line), err=True)
