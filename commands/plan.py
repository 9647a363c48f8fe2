"""The command line of planning: ``cudnn-bindgen plan``."""

from __future__ import annotations

from pathlib import Path

import click

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.read.source import display_name, is_stdin, read_source
from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.commands.errors import warn
from cudnn_bindgen.commands.options import reading_options

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen plan attn.json                          # attn.plan here, for this GPU
  cudnn-bindgen plan run.log --index 2 -o attn.plan
  cudnn-bindgen plan scale.json --const "mul::IN_1=0.5" # a constant that no file holds
  cudnn-bindgen plan attn.json --autotune               # the fastest of all, by measurement
  cudnn-bindgen plan attn.json --engine 8 --knobs STAGES=2,TILE_SIZE=3
"""
)
@click.argument("graph", type=_PATH)
@click.option("-o", "--output", type=_PATH, help="File to write; default NAME.plan here.")
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
@reading_options
def plan(
    graph: Path,
    output: Path | None,
    constants: tuple[str, ...],
    arguments: tuple[str, ...],
    heuristics: str,
    autotune: bool,
    engine: int | None,
    knobs: str | None,
    max_workspace: int | None,
    reading: ReadOptions,
) -> None:
    """Make a plan of GRAPH for the GPU of this machine, with NVIDIA's frontend.

    GRAPH is a structure dump, a log with graphs in it, a plan file for another GPU or cuDNN, or -
    for standard input.
    """
    from cudnn_bindgen.frontend.planning.constants import parse_constants
    from cudnn_bindgen.frontend.planning.make_plan import describe, make_plan, read_input
    from cudnn_bindgen.frontend.planning.options import PlanOptions, parse_knobs

    if knobs is not None and engine is None:
        raise PlanError("--knobs: expected --engine, got none")
    modes = tuple(filter(None, (mode.strip() for mode in heuristics.split(","))))
    options = PlanOptions(modes, engine, parse_knobs(knobs or ""), max_workspace, autotune)
    target = output or Path("graph.plan" if is_stdin(graph) else f"{graph.stem}.plan")
    if not is_stdin(graph) and target.exists() and target.samefile(graph):
        raise PlanError(f"--output: expected another file than GRAPH, got {target}")
    said = parse_constants(constants, arguments)
    file = display_name(graph)
    structure = read_input(read_source(graph), file, reading)
    warn(structure.warnings, file)

    def tell(text: str) -> None:
        click.echo(printable(f"{file}: {text}"), err=True)

    try:
        if autotune:
            from cudnn_bindgen.frontend.planning.progress import progress_bar

            with progress_bar() as watch:
                data = make_plan(structure, said, options, tell, watch)
        else:
            data = make_plan(structure, said, options, tell)
    except PlanError as error:
        error.file = file
        raise
    from cudnn_bindgen.codegen.output import write_files

    write_files(target.parent, {target.name: data})
    if autotune:
        from cudnn_bindgen.codegen.render.show import print_candidates

        print_candidates(data)
    click.echo(printable(f"{target}: {describe(data)}"), err=True)
