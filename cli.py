"""The command line: options → calls → exit codes. Exit 1: not up to date; 2: bad input."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind_graphs import bind_graphs
from cudnn_bindgen.codegen.binding import Binding
from cudnn_bindgen.codegen.bundle import merge_warnings, read_graphs
from cudnn_bindgen.codegen.bundle_command import bundle
from cudnn_bindgen.codegen.command_errors import Group, fail, warn
from cudnn_bindgen.codegen.command_family import check_family_options, render_files
from cudnn_bindgen.codegen.command_options import (
    family_options,
    override_options,
    reading_options,
    torch_options,
)
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.graph import Graph
from cudnn_bindgen.codegen.modules import Named, check_apart, render_modules
from cudnn_bindgen.codegen.naming import check_module_name, module_name
from cudnn_bindgen.codegen.options import FamilyOptions, ReadOptions, TorchOptions
from cudnn_bindgen.codegen.output import depfile as dependency_rule
from cudnn_bindgen.codegen.output import find_differences, write_files
from cudnn_bindgen.codegen.overrides import OverrideOptions
from cudnn_bindgen.codegen.render import render
from cudnn_bindgen.codegen.sidecar import choose_options, sidecars
from cudnn_bindgen.codegen.source import display_name, is_stdin, read_source
from cudnn_bindgen.planning.command import plan
from cudnn_bindgen.recording.command import record, report

_GRAPH = click.Path(path_type=Path)


_LIST = click.option("--list", "is_list", is_flag=True, help="Only list the graphs of a log.")


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cudnn-bindgen")
def main() -> None:
    """Emit and build Cython bindings specialised for serialized cuDNN graphs."""


@main.command(
    epilog="""\b
Examples:
  cudnn-bindgen emit attn.plan                         # attn.pyx, attn.pyi, attn.pxd here
  cudnn-bindgen emit attn.plan -o mymodel/_attn.pyx    # module _attn in mymodel/
  cudnn-bindgen emit attn.plan -o -                    # the .pyx on standard output
  cudnn-bindgen emit attn.bundle                       # for all GPUs that it has plans for
  cudnn-bindgen emit attn.plan -o mymodel/_attn.pyx --check        # exit 1 if not up to date
  cudnn-bindgen emit run.log --list                    # the graphs that a log holds
  cudnn-bindgen emit run.log --index 2 -o attn.pyx     # the second of them
  cudnn-bindgen emit attn.plan --torch --backward attn_bwd.plan    # also attn_torch.py
  cudnn-bindgen emit --family attn attn_b*.plan        # one module for several shapes
"""
)
@click.argument("graphs", type=_GRAPH, nargs=-1, required=True, metavar="GRAPH...")
@click.option("-o", "--output", metavar="OUT.pyx|-", help="File to write; default NAME.pyx here.")
@click.option("--name", help="Name of the module; default from OUT.pyx, else from GRAPH.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 with a diff if not up to date.")
@click.option("--depfile", type=_GRAPH, help="Write a Makefile rule for build systems.")
@_LIST
@reading_options
@override_options
@torch_options
@family_options
def emit(
    graphs: tuple[Path, ...],
    output: str | None,
    name: str | None,
    check: bool,
    depfile: Path | None,
    is_list: bool,
    reading: ReadOptions,
    overriding: OverrideOptions,
    torch: TorchOptions,
    family: FamilyOptions,
) -> None:
    """Write the binding of GRAPH: a .pyx module, its .pyi stub and its .pxd declarations.

    GRAPH is a plan file, a bundle of them, a structure dump, a log with graphs in it, or - for
    standard input.
    """
    graph = graphs[0]
    if len(graphs) > 1 and (is_list or family.name is None):
        raise EmitError(f"GRAPH: expected one, or --family, got {len(graphs)}")
    check_family_options(family, name, reading, overriding, torch)
    if is_list:
        from cudnn_bindgen.codegen.show import show_list

        show_list(graph, reading, as_json=False)
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
    module = _module(graph, target.stem if target is not None and name is None else name)
    if family.name is None:
        files = _render(_named(graph, module, reading, overriding), reading, torch)
    else:
        files = render_files(graphs, family, module, reading)
    if output == "-":
        click.echo(files[f"{module}.pyx"], nl=False)
        return
    directory = target.parent if target else Path()
    if check:
        differences = find_differences(directory, files)
        for difference in differences:
            click.echo(difference, nl=False)
        sys.exit(1 if differences else 0)
    if depfile:
        sources = [file for one in (*graphs, *torch.backward) for file in (one, *sidecars(one))]
        rule = dependency_rule([directory / file for file in sorted(files)], sources)
        write_files(depfile.parent, {depfile.name: rule})
    write_files(directory, files)


@main.command(
    epilog="""\b
Examples:
  cudnn-bindgen build attn.plan -d mymodel/            # mymodel/attn.*.so beside its sources
  cudnn-bindgen build graphs/*.plan -d mymodel/ -j 8   # all of them, eight at once
  cudnn-bindgen build --family attn attn_b*.plan -d mymodel/       # all of them in one module
"""
)
@click.argument("graphs", type=_GRAPH, nargs=-1, required=True, metavar="GRAPH...")
@click.option("-d", "--directory", type=_GRAPH, required=True, help="Folder for the modules.")
@click.option("--name", help="Name of the module, for one GRAPH; default from its file name.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=None,
    help="Compilers at once; default: cores.",
)
@reading_options
@override_options
@torch_options
@family_options
def build(
    graphs: tuple[Path, ...],
    directory: Path,
    name: str | None,
    jobs: int | None,
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
    files: dict[str, dict[str, str]] = {}
    if family.name is not None:
        files[family.name] = render_files(graphs, family, family.name, reading)
    else:
        modules = {graph: _module(graph, name) for graph in graphs}
        check_apart({str(graph): [module] for graph, module in modules.items()})
        for graph, module in modules.items():
            named = _named(graph, module, reading, overriding)
            files[str(graph)] = _render(named, reading, torch)
        check_apart(files)
    for emitted in files.values():
        write_files(directory, emitted)
    from cudnn_bindgen.codegen.compile_all import compile_all

    names = sorted(file for emitted in files.values() for file in emitted if file.endswith(".pyx"))
    if not compile_all([directory / file for file in names], directory, jobs):
        sys.exit(2)


@main.command(
    epilog="""\b
Examples:
  cudnn-bindgen show attn.plan
  cudnn-bindgen show attn.plan --json | jq .arguments
  cudnn-bindgen show attn.plan --launch                # on a GPU: kernels and patched words
"""
)
@click.argument("graph", type=_GRAPH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--launch",
    is_flag=True,
    help="Also what a launch record holds; builds the module, needs a GPU.",
)
@_LIST
@reading_options
def show(graph: Path, as_json: bool, launch: bool, is_list: bool, reading: ReadOptions) -> None:
    """Show what GRAPH binds: operands, scalars, workspace, nodes and plan; or why it cannot be."""
    from cudnn_bindgen.codegen import show as tables

    if is_list:
        tables.show_list(graph, reading, as_json)
        return
    try:
        graphs = _read(graph, reading)
    except GraphFormatError as error:
        if as_json:
            tables.print_json({"refused": tables.explain(error)})
        fail(str(error), *([] if as_json else tables.explain_lines(error)))
    binding = bind_graphs(graphs)
    document = tables.as_document(graphs, binding)
    if launch:
        document["launch"] = _describe_launch(graph, binding)
    if as_json:
        tables.print_json(document)
    else:
        tables.print_tables(document, _source(graph))


main.add_command(bundle)
main.add_command(plan)
main.add_command(record)
main.add_command(report)


def _describe_launch(graph: Path, binding: Binding) -> list[dict[str, object]]:
    import importlib.util
    import tempfile

    from cudnn_bindgen.codegen.compile import CompileError, compile_module
    from cudnn_bindgen.runtime.errors import BindingError

    module = _module(graph, None)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        write_files(directory, render(binding, module, _source(graph)))
        try:
            compiled = compile_module(directory / f"{module}.pyx", directory)
        except CompileError as error:
            fail(f"{graph}: {error}")
        spec = importlib.util.spec_from_file_location(module, compiled)
        if spec is None or spec.loader is None:
            raise EmitError(f"{compiled}: expected an extension module")
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        try:
            nodes: list[dict[str, object]] = loaded.launch_nodes()
        except BindingError as error:
            fail(f"{graph}: {error}")
        return nodes


def _named(graph: Path, module: str, reading: ReadOptions, overriding: OverrideOptions) -> Named:
    binding = bind_graphs(_read(graph, reading), choose_options(graph, overriding))
    return Named(module, binding, _source(graph))


def _render(module: Named, reading: ReadOptions, torch: TorchOptions) -> dict[str, str]:
    allowed = ReadOptions(None, reading.allow_newer, reading.strict)
    backwards = [
        _named(graph, _module(graph, None), allowed, OverrideOptions()) for graph in torch.backward
    ]
    return render_modules(module, backwards, torch.namespace)


def _read(graph: Path, reading: ReadOptions) -> tuple[Graph, ...]:
    file = display_name(graph)
    graphs = read_graphs(read_source(graph), file, reading)
    warn(merge_warnings(graphs), file)
    return graphs


def _source(graph: Path) -> str:
    return "stdin" if is_stdin(graph) else graph.name


def _module(graph: Path, name: str | None) -> str:
    if name is not None:
        return check_module_name(name)
    return module_name("binding" if is_stdin(graph) else graph.stem)


if __name__ == "__main__":
    main()
