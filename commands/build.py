"""The command line of compiling: ``cudnn-bindgen build``."""

from __future__ import annotations

from pathlib import Path

import click

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.commands.chain import check_chain_options
from cudnn_bindgen.commands.errors import fail
from cudnn_bindgen.commands.family import check_family_options
from cudnn_bindgen.commands.graphs import module_of
from cudnn_bindgen.commands.modules import Wanted, build_modules
from cudnn_bindgen.commands.options import (
    PATH,
    ModuleOptions,
    force_option,
    module_options,
    quiet_option,
)


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen build attn.plan -d mymodel/            # mymodel/attn.*.so beside its sources
  cudnn-bindgen build graphs/*.plan -d mymodel/ -j 8   # all of them, eight at once
  cudnn-bindgen build attn.json --for h100,b200,rtx5090 -d mymodel/    # with plans for these
  cudnn-bindgen build --family attn attn_b*.plan -d mymodel/       # all of them in one module
  cudnn-bindgen build --chain layer.toml -d mymodel/   # graphs that are wired: one call, one launch
"""
)
@click.argument("graphs", type=PATH, nargs=-1, required=True, metavar="GRAPH...")
@click.option("-d", "--directory", type=PATH, required=True, help="Folder for the modules.")
@click.option("--name", help="Name of the module, for one GRAPH; default from its file name.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=None,
    help="Planners and compilers at once; default: cores.",
)
@force_option
@quiet_option
@module_options
def build(
    graphs: tuple[Path, ...],
    directory: Path,
    name: str | None,
    jobs: int | None,
    force: bool,
    quiet: bool,
    options: ModuleOptions,
) -> None:
    """Emit each GRAPH and compile it. What is up to date is left alone."""
    check_family_options(options, name)
    check_chain_options(options, graphs)
    single = {
        "--name": name,
        "--index": options.reading.index,
        "--backward": options.torch.backward or None,
    }
    for option, value in single.items():
        if value is not None and len(graphs) > 1:
            raise EmitError(f"{option}: expected one GRAPH, got several")
    if options.family.name is not None:
        wanted = [Wanted(graphs, options.family.name, directory, options)]
    else:
        wanted = [
            Wanted((graph,), module_of(graph, name), directory, options)
            for graph in dict.fromkeys(graphs)
        ]
    modules, failed = build_modules(wanted, jobs, force=force, quiet=quiet)
    if failed:
        fail(f"{failed} of {modules} modules not compiled")
