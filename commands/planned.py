"""`--for`: what `plan`, `emit` and `build` do to have plans of their graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from cudnn_bindgen.codegen.bind.bundle import write_bundle
from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.dialects.python_plan import NAME as PYTHON_PLAN
from cudnn_bindgen.codegen.read.dialects.python_plan import read_head
from cudnn_bindgen.codegen.read.dialects.python_plan import recognise as is_python_plan
from cudnn_bindgen.codegen.read.options import ReadOptions, Targets
from cudnn_bindgen.codegen.read.source import display_name, read_source
from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.commands.errors import complain, warn
from cudnn_bindgen.frontend.planning.constants import NOTHING, Constants
from cudnn_bindgen.frontend.planning.deviceless import (
    Answer,
    Cudnn,
    Task,
    find_cudnn,
    make_plans,
    own_cudnn,
    use_cache,
)
from cudnn_bindgen.frontend.planning.gpus import Gpu, find_gpus
from cudnn_bindgen.frontend.planning.make_plan import is_of_kernels, read_any
from cudnn_bindgen.frontend.planning.options import HEURISTICS, PlanOptions


def find_targets(targets: Targets) -> tuple[Sequence[Gpu], Sequence[Cudnn | None]]:
    """Return the GPUs that plans are for, and each cuDNN to plan with; None is the system's."""
    cudnns = [*map(find_cudnn, targets.cudnns)] if targets.cudnns else [own_cudnn()]
    return find_gpus(targets.gpus), cudnns


def plan_for(
    graphs: Sequence[Path],
    gpus: Sequence[Gpu],
    cudnns: Sequence[Cudnn | None],
    reading: ReadOptions,
    constants: Constants = NOTHING,
    options: PlanOptions = HEURISTICS,
    jobs: int | None = None,
    make: Callable[..., Mapping[tuple[Path, str], Answer | PlanError]] = make_plans,
) -> tuple[dict[Path, list[bytes]], bool]:
    """Return the plan files of each GRAPH, one for each GPU and cuDNN, and whether all were made.

    Why a plan was not made is printed, and its GRAPH is left out.
    """
    tasks = {
        (graph, gpu.name): task
        for graph in graphs
        for gpu, task in _tasks(graph, gpus, reading, constants, options)
    }
    plans: dict[Path, list[bytes]] = {graph: [] for graph in graphs}
    failed: set[Path] = set()
    for cudnn in cudnns:
        for (graph, gpu), answer in make(tasks, cudnn, jobs).items():
            if isinstance(answer, Answer):
                # Kernels are the same whichever cuDNN the frontend was planning with.
                if cudnn is cudnns[0] or not is_of_kernels(answer.plan):
                    plans[graph].append(answer.plan)
                for text in answer.told:
                    click.echo(printable(f"{display_name(graph)}: {gpu}: {text}"), err=True)
            else:
                failed.add(graph)
                answer.problem = f"{gpu}: {answer.problem}"
                complain(answer)
    return {graph: made for graph, made in plans.items() if graph not in failed}, not failed


def planned_files(
    graphs: Sequence[Path], targets: Targets, reading: ReadOptions, jobs: int | None = None
) -> dict[Path, bytes]:
    """Return a bundle of the plans of each GRAPH: from the cache where they were made before.

    If one is not made, the program ends with status 2.
    """
    options = PlanOptions(only_cudnn=targets.only_cudnn)
    gpus, cudnns = find_targets(targets)
    plans, are_all = plan_for(
        graphs, gpus, cudnns, reading, options=options, jobs=jobs, make=use_cache
    )
    if not are_all:
        sys.exit(2)
    return {
        graph: write_bundle([(display_name(graph), plan) for plan in made])
        for graph, made in plans.items()
    }


def trace_python_plan(data: bytes, file: str, reading: ReadOptions) -> bytes:
    """Return the plan of kernels of a Python plan, for the GPU that it names, or from the cache.

    Raises
    ------
    GraphFormatError
        The file is not as the frontend writes it.
    PlanError
        The frontend does not build it, or it cannot be traced.
    """
    try:
        read_head(data)
    except GraphFormatError as error:
        error.file, error.dialect = file, PYTHON_PLAN
        raise
    answer = use_cache({file: Task(graph=data, file=file, reading=reading)}, own_cudnn())[file]
    if isinstance(answer, PlanError):
        raise answer
    return answer.plan


def _tasks(
    graph: Path,
    gpus: Sequence[Gpu],
    reading: ReadOptions,
    constants: Constants,
    options: PlanOptions,
) -> list[tuple[Gpu, Task]]:
    """Return what is to be planned, after all has been refused that can be without a planner."""
    file, data = display_name(graph), read_source(graph)
    if not is_python_plan(data):
        warn(read_any(data, constants, file, reading).warnings, file)
    return [
        (
            gpu,
            Task(
                graph=data,
                file=file,
                reading=reading,
                constants=constants,
                options=options,
                properties=gpu.properties,
            ),
        )
        for gpu in gpus
    ]
