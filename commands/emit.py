"""The command line of emitting: ``cudnn-bindgen emit``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from cudnn_bindgen.codegen.bind.sidecar import sidecars
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.output import depfile as dependency_rule
from cudnn_bindgen.codegen.output import find_differences, is_foreign, write_files
from cudnn_bindgen.codegen.read.source import display_name, is_stdin
from cudnn_bindgen.codegen.render.files import check_free
from cudnn_bindgen.commands.chain import check_chain_options
from cudnn_bindgen.commands.check import check_modules, is_module
from cudnn_bindgen.commands.family import check_family_options
from cudnn_bindgen.commands.graphs import graph_files, module_of, plan_files, refuse_to_replace
from cudnn_bindgen.commands.modules import render_module
from cudnn_bindgen.commands.options import (
    PATH,
    ModuleOptions,
    force_option,
    list_option,
    module_options,
    parse_options,
    quiet_option,
)
from cudnn_bindgen.commands.outcome import tell


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen emit attn.plan                         # attn.pyx, attn.pyi, attn.pxd here
  cudnn-bindgen emit attn.plan -o mymodel/_attn.pyx    # module _attn in mymodel/
  cudnn-bindgen emit attn.plan -o -                    # the .pyx on standard output
  cudnn-bindgen emit attn.bundle                       # for all GPUs that it has plans for
  cudnn-bindgen emit attn.json --for h100,b200         # with plans for these GPUs
  cudnn-bindgen emit attn.plan -o mymodel/_attn.pyx --check        # exit 1 if not up to date
  cudnn-bindgen emit --check mymodel/*.pyx graphs/     # by the options that each module states
  cudnn-bindgen emit run.log --list                    # the graphs that a log holds
  cudnn-bindgen emit run.log --index 2 -o attn.pyx     # the second of them
  cudnn-bindgen emit attn.plan --torch --backward attn_bwd.plan    # also attn_torch.py
  cudnn-bindgen emit --family attn attn_b*.plan        # one module for several shapes
  cudnn-bindgen emit --chain layer.toml                # one module for graphs that are wired
"""
)
@click.argument("graphs", type=PATH, nargs=-1, required=True, metavar="GRAPH...")
@click.option("-o", "--output", metavar="OUT.pyx|-", help="File to write; default NAME.pyx here.")
@click.option("--name", help="Name of the module; default from OUT.pyx, else from GRAPH.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 with a diff if not up to date.")
@click.option("--depfile", type=PATH, help="Write a Makefile rule for build systems.")
@force_option
@quiet_option
@list_option
@module_options
def emit(
    graphs: tuple[Path, ...],
    output: str | None,
    name: str | None,
    check: bool,
    depfile: Path | None,
    force: bool,
    quiet: bool,
    is_list: bool,
    options: ModuleOptions,
) -> None:
    """Write the binding of GRAPH: a .pyx module, its .pyi stub and its .pxd declarations.

    GRAPH is a plan file, a bundle of them, a structure dump, a log with graphs in it, or - for
    standard input. With --check also modules and folders of them, beside their graphs.
    """
    if check and output is None and any(map(is_module, graphs)):
        if options != parse_options([]) or name or depfile:
            raise EmitError("--check: expected no other option, modules say their own, got one")
        _exit(check_modules(graphs))
    graph, family, torch = graphs[0], options.family, options.torch
    if len(graphs) > 1 and (is_list or family.name is None):
        raise EmitError(f"GRAPH: expected one, or --family, got {len(graphs)}")
    check_family_options(options, name)
    check_chain_options(options, graphs)
    if is_list and options.is_chain:
        raise EmitError("--chain: expected no --list, got both")
    if is_list:
        from cudnn_bindgen.codegen.render.show import show_list

        show_list(graph, options.reading, as_json=False)
        return
    target = Path(output) if output not in (None, "-") else None
    if target is not None and target.suffix != ".pyx":
        raise EmitError(f'--output: expected a file name that ends in .pyx, got "{output}"')
    option, name = ("--name", name) if family.name is None else ("--family", family.name)
    if target is not None and name is not None and name != target.stem:
        raise EmitError(f"{option}: expected {target.stem}, the stem of --output, got {name}")
    if output == "-" and (check or depfile):
        raise EmitError("--output: expected a file for --check and --depfile, got -")
    if output == "-" and torch.namespace is not None:
        raise EmitError("--output: expected a file for --torch, got -")
    if depfile and any(map(is_stdin, graphs)):
        raise EmitError("--depfile: expected GRAPH to be a file, got -")
    if check and options.targets.gpus:
        raise EmitError(
            "--check: expected no --for, whose plans differ in bytes that nothing reads: check the "
            "module, which keeps its plans: emit --check OUT.pyx GRAPH"
        )
    module = module_of(graph, target.stem if target is not None and name is None else name)
    made_of = graph_files(graphs, options)
    files, made = render_module(graphs, module, options, plan_files(made_of, options))
    if output == "-":
        click.echo(files[f"{module}.pyx"], nl=False)
        return
    directory = target.parent if target else Path()
    if check:
        _exit(find_differences(directory, files))
    check_free({display_name(graph): files})
    # The module first: without `deps = gcc` ninja wants a depfile to begin with the first output.
    names = sorted(files, key=lambda file: (file != f"{module}.pyx", file))
    outputs = [directory / file for file in names]
    if not force:
        refuse_to_replace([*filter(is_foreign, outputs)])
    if depfile:
        every = dict.fromkeys((*graphs, *made_of, *torch.backward))
        sources = [file for one in every for file in (one, *sidecars(one))]
        if depfile.resolve() in (file.resolve() for file in (*outputs, *sources)):
            raise EmitError(f"--depfile: expected a file of its own, got {depfile}")
        rule = dependency_rule(outputs, sources)
        write_files(depfile.parent, {depfile.name: rule})
    changed = write_files(directory, files)
    if depfile:
        # ninja and make go by time: what keeps an old one they would emit again, for ever.
        for path in outputs:
            path.touch()
    for one in () if quiet else made:
        own = [path for path in outputs if path.stem in (one.module, f"{one.module}_torch")]
        how = "wrote" if {*own} & {*changed} else "up to date:"
        tell(how, own, one, options.reading.index)


def _exit(differences: Sequence[str]) -> NoReturn:
    for difference in differences:
        click.echo(difference, nl=False)
    sys.exit(1 if differences else 0)
