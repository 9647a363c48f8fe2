"""The command line of compiling: ``cudnn-bindgen build``."""

from __future__ import annotations

from pathlib import Path

import click

from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.output import is_foreign, write_files
from cudnn_bindgen.codegen.read.options import FamilyOptions, ReadOptions, Targets, TorchOptions
from cudnn_bindgen.codegen.render.files import check_apart, check_free
from cudnn_bindgen.commands.errors import fail
from cudnn_bindgen.commands.family import check_family_options, render_files
from cudnn_bindgen.commands.graphs import (
    module_of,
    named,
    plan_files,
    refuse_to_replace,
    render_all,
)
from cudnn_bindgen.commands.options import (
    PATH,
    family_options,
    force_option,
    override_options,
    quiet_option,
    reading_options,
    target_options,
    torch_options,
)
from cudnn_bindgen.commands.outcome import Made, tell


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen build attn.plan -d mymodel/            # mymodel/attn.*.so beside its sources
  cudnn-bindgen build graphs/*.plan -d mymodel/ -j 8   # all of them, eight at once
  cudnn-bindgen build attn.json --for h100,b200,rtx5090 -d mymodel/    # with plans for these
  cudnn-bindgen build --family attn attn_b*.plan -d mymodel/       # all of them in one module
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
@target_options
@reading_options
@override_options
@torch_options
@family_options
def build(
    graphs: tuple[Path, ...],
    directory: Path,
    name: str | None,
    jobs: int | None,
    force: bool,
    quiet: bool,
    targets: Targets,
    reading: ReadOptions,
    overriding: OverrideOptions,
    torch: TorchOptions,
    family: FamilyOptions,
) -> None:
    """Emit each GRAPH and compile it. What is up to date is left alone."""
    check_family_options(family, name, reading, overriding, torch)
    single = (("--name", name), ("--index", reading.index), ("--backward", torch.backward or None))
    for option, value in single:
        if value is not None and len(graphs) > 1:
            raise EmitError(f"{option}: expected one GRAPH, got several")
    modules = {graph: module_of(graph, name) for graph in graphs}
    if family.name is None:
        check_apart({str(graph): [module] for graph, module in modules.items()})
    planned = plan_files(graphs, targets, reading, jobs)
    files: dict[str, dict[str, str]] = {}
    made: list[Made] = []
    if family.name is not None:
        files[family.name], made = render_files(graphs, family, family.name, reading, planned)
    else:
        for graph, module in modules.items():
            bound = named(graph, module, reading, overriding, planned)
            files[str(graph)], several = render_all(graph, bound, reading, torch, targets)
            made += several
        check_apart(files)
    check_free(files)
    from cudnn_bindgen.codegen.compile import compile_all, extension_path, foreign_modules

    names = sorted(file for emitted in files.values() for file in emitted)
    sources = [directory / file for file in names if file.endswith(".pyx")]
    if not force:
        foreign = [path for path in map(directory.joinpath, names) if is_foreign(path)]
        refuse_to_replace([*foreign, *foreign_modules(sources, directory)])
    for emitted in files.values():
        write_files(directory, emitted)
    compiled, failed = compile_all(sources, directory, jobs)
    for one in () if quiet else made:
        source = directory / f"{one.module}.pyx"
        how = "compiled" if source in compiled else "up to date:"
        if source not in failed:
            tell(how, [extension_path(directory, one.module)], one, reading.index)
    if failed:
        fail(f"{len(failed)} of {len(sources)} modules not compiled")
