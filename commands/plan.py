"""The command line of planning: ``cudnn-bindgen plan``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudnn_bindgen.codegen.bind.bundle import describe_plans, replace_plan, write_bundle
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.output import write_files
from cudnn_bindgen.codegen.read.archive import is_bundle
from cudnn_bindgen.codegen.read.dialects.python_plan import recognise as is_python_plan
from cudnn_bindgen.codegen.read.options import ReadOptions, Targets
from cudnn_bindgen.codegen.read.source import display_name, is_stdin, read_source
from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.commands.errors import warn
from cudnn_bindgen.commands.options import PATH, reading_options, target_options

if TYPE_CHECKING:
    from cudnn_bindgen.frontend.planning.constants import Constants
    from cudnn_bindgen.frontend.planning.options import PlanOptions

_BUNDLE, _PLAN = ".bundle", ".plan"


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen plan attn.json --for h100,b200,rtx5090  # attn.bundle, on a machine without them
  cudnn-bindgen plan graphs/*.json --for h100 -d plans/ # plans/NAME.plan of each
  cudnn-bindgen plan attn.json                          # attn.plan here, for this GPU
  cudnn-bindgen plan run.log --index 2 -o attn.plan
  cudnn-bindgen plan scale.json --const "mul::IN_1=0.5" # a constant that no file holds
  cudnn-bindgen plan attn.json --autotune               # the fastest of all, by measurement
  cudnn-bindgen plan attn.bundle --autotune -o attn.bundle    # and put it into the bundle
  cudnn-bindgen plan attn.json --engine 8 --knobs STAGES=2,TILE_SIZE=3
"""
)
@click.argument("graphs", type=PATH, nargs=-1, required=True, metavar="GRAPH...")
@click.option(
    "-o", "--output", type=PATH, help="File to write; default NAME.plan, NAME.bundle if several."
)
@click.option("-d", "--directory", type=PATH, help="Folder for the files; default here.")
@target_options
@click.option(
    "--const",
    "constants",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a constant of compile time; may be repeated.",
)
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME",
    help="This scalar is no constant: callers pass it; may be repeated.",
)
@click.option(
    "--say",
    "facts",
    multiple=True,
    metavar="FACT",
    help="What a graph printed before lowering leaves out; may be repeated. docs/planning.md.",
)
@click.option(
    "--heuristics",
    default="A,FALLBACK",
    show_default=True,
    metavar="MODE,...",
    help="cuDNN's heuristics to ask, in this order.",
)
@click.option(
    "--autotune",
    is_flag=True,
    help="Run all plans on the GPU and take the fastest; needs PyTorch.",
)
@click.option("--engine", type=click.IntRange(min=0), help="Take this engine, ask no heuristics.")
@click.option("--knobs", metavar="KNOB=N,...", help="Knobs of --engine.")
@click.option(
    "--max-workspace",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Pass over plans that need more.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Planners at once; default: cores.")
@reading_options
def plan(
    graphs: tuple[Path, ...],
    output: Path | None,
    directory: Path | None,
    constants: tuple[str, ...],
    arguments: tuple[str, ...],
    facts: tuple[str, ...],
    heuristics: str,
    autotune: bool,
    engine: int | None,
    knobs: str | None,
    max_workspace: int | None,
    jobs: int | None,
    targets: Targets,
    reading: ReadOptions,
) -> None:
    """Make plans of GRAPH with NVIDIA's frontend: for the GPUs of --for, else for this one.

    GRAPH is a structure dump, a log with graphs in it, a plan file for another GPU or cuDNN, a
    bundle of them, or - for standard input.
    """
    from cudnn_bindgen.frontend.planning.constants import parse_constants
    from cudnn_bindgen.frontend.planning.options import PlanOptions, parse_knobs

    if knobs is not None and engine is None:
        raise PlanError("--knobs: expected --engine, got none")
    if targets.gpus and autotune:
        raise PlanError("--autotune: expected no --for: plans are measured on the GPU at hand")
    if output is not None and (len(graphs) > 1 or directory is not None):
        raise PlanError("--output: expected one GRAPH and no --directory: it is one file")
    modes = tuple(filter(None, (mode.strip() for mode in heuristics.split(","))))
    options = PlanOptions(
        modes, engine, parse_knobs(knobs or ""), max_workspace, autotune, targets.only_cudnn
    )
    said = parse_constants(constants, arguments, facts)
    if targets.gpus:
        from cudnn_bindgen.commands.planned import find_targets, plan_for

        gpus, cudnns = find_targets(targets)
        suffix = _PLAN if len(gpus) * len(cudnns) == 1 else _BUNDLE
        if suffix == _BUNDLE and output is not None and output.suffix == _PLAN:
            raise PlanError(f"--output: expected a bundle for several plans, got {output}")
        files = _targets(graphs, output, directory, suffix)
        planned, are_all = plan_for(graphs, gpus, cudnns, reading, said, options, jobs)
        for graph, plans in planned.items():
            named = [(display_name(graph), plan) for plan in plans]
            is_bundled = files[graph].suffix == _BUNDLE
            _write(files[graph], write_bundle(named) if is_bundled else plans[0])
        if not are_all:
            sys.exit(2)
        return
    for graph, target in _targets(graphs, output, directory, _PLAN).items():
        _write(target, _plan_here(graph, target, reading, said, options))


def _targets(
    graphs: Sequence[Path], output: Path | None, directory: Path | None, suffix: str
) -> dict[Path, Path]:
    """Return the file to write for each GRAPH.

    Raises
    ------
    PlanError
        Two have one, or a plan would replace its GRAPH.
    """
    files: dict[Path, Path] = {}
    owners: dict[Path, Path] = {}
    for graph in graphs:
        files[graph] = file = _target(graph, output, directory, suffix)
        if owners.setdefault(file, graph) != graph:
            raise PlanError(f"{file}: expected one GRAPH for it, got {owners[file]} and {graph}")
    return files


def _target(graph: Path, output: Path | None, directory: Path | None, suffix: str) -> Path:
    name = "graph" if is_stdin(graph) else graph.stem
    target = output or (directory or Path()) / f"{name}{suffix}"
    is_same = not is_stdin(graph) and target.exists() and target.samefile(graph)
    if is_same and target.suffix != _BUNDLE:
        raise PlanError(f"--output: expected another file than GRAPH, got {target}")
    return target


def _write(target: Path, data: bytes) -> None:
    from cudnn_bindgen.frontend.planning.make_plan import describe

    write_files(target.parent, {target.name: data})
    lines: Sequence[str] = describe_plans(data) if is_bundle(data) else [describe(data)]
    for line in lines:
        click.echo(printable(f"{target}: {line}"), err=True)


def _plan_here(
    graph: Path, target: Path, reading: ReadOptions, said: Constants, options: PlanOptions
) -> bytes:
    """Return a plan for the GPU of this machine, in the bundle that GRAPH is if one is written."""
    from cudnn_bindgen.commands.planned import trace_python_plan
    from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_any

    file, source = display_name(graph), read_source(graph)
    if is_python_plan(source):
        return trace_python_plan(source, file, reading)
    structure = read_any(source, said, file, reading)
    warn(structure.warnings, file)

    def tell(text: str) -> None:
        click.echo(printable(f"{file}: {text}"), err=True)

    try:
        if options.autotune:
            from cudnn_bindgen.codegen.render.show import print_candidates
            from cudnn_bindgen.frontend.planning.progress import progress_bar

            with progress_bar() as watch:
                data = make_plan(structure, said, options, tell, watch)
            print_candidates(data)
        else:
            data = make_plan(structure, said, options, tell)
    except PlanError as error:
        error.file = file
        raise
    if target.suffix != _BUNDLE:
        return data
    return replace_plan(source, data, file) if is_bundle(source) else write_bundle([(file, data)])
