"""The command line: options → calls → exit codes. Exit 1: not up to date; 2: bad input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NoReturn

import click

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.binding import Binding, bind
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.naming import check_module_name, module_name
from cudnn_bindgen.codegen.output import depfile as dependency_rule
from cudnn_bindgen.codegen.output import find_differences, write_files
from cudnn_bindgen.codegen.read import read_graph
from cudnn_bindgen.codegen.render import render
from cudnn_bindgen.codegen.text import printable

_GRAPH = click.Path(path_type=Path)


class _Group(click.Group):
    """Turns every expected failure into one line on stderr and exit 2."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (GraphFormatError, EmitError) as error:
            _fail(str(error))
        except BrokenPipeError:
            raise  # click ends quietly when a reader such as `head` has gone
        except OSError as error:
            name = os.fsdecode(error.filename) if error.filename else "error"
            _fail(f"{name}: {error.strerror or error}")


def _fail(message: str) -> NoReturn:
    click.echo(printable(message), err=True)
    sys.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cudnn-bindgen")
def main() -> None:
    """Emit and build Cython bindings specialised for serialized cuDNN graphs."""


@main.command(
    epilog="""\b
Examples:
  cudnn-bindgen emit attn.plan                         # attn.pyx, attn.pyi, attn.pxd here
  cudnn-bindgen emit attn.plan -o mymodel/_attn.pyx    # module _attn in mymodel/
  cudnn-bindgen emit attn.plan -o -                    # the .pyx on standard output
  cudnn-bindgen emit attn.plan -o mymodel/_attn.pyx --check        # exit 1 if not up to date
"""
)
@click.argument("graph", type=_GRAPH)
@click.option("-o", "--output", metavar="OUT.pyx|-", help="File to write; default NAME.pyx here.")
@click.option("--name", help="Name of the module; default from OUT.pyx, else from GRAPH.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 with a diff if not up to date.")
@click.option("--depfile", type=_GRAPH, help="Write a Makefile rule for build systems.")
def emit(
    graph: Path, output: str | None, name: str | None, check: bool, depfile: Path | None
) -> None:
    """Write the binding of GRAPH: a .pyx module, its .pyi stub and its .pxd declarations."""
    binding = _read(graph)
    target = Path(output) if output not in (None, "-") else None
    if target is not None and target.suffix != ".pyx":
        raise EmitError(f'--output: expected a file name that ends in .pyx, got "{output}"')
    if target is not None and name is not None and name != target.stem:
        raise EmitError(f"--name: expected {target.stem}, the stem of --output, got {name}")
    if output == "-" and (check or depfile):
        raise EmitError("--output: expected a file for --check and --depfile, got -")
    module = _module(graph, target.stem if target is not None and name is None else name)
    files = render(binding, module, graph.name)
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
        rule = dependency_rule([directory / file for file in sorted(files)], [graph])
        write_files(depfile.parent, {depfile.name: rule})
    write_files(directory, files)


@main.command(
    epilog="""\b
Examples:
  cudnn-bindgen build attn.plan -d mymodel/            # mymodel/attn.*.so beside its sources
  cudnn-bindgen build graphs/*.plan -d mymodel/ -j 8   # all of them, eight at once
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
def build(graphs: tuple[Path, ...], directory: Path, name: str | None, jobs: int | None) -> None:
    """Emit each GRAPH and compile it. What is up to date is left alone."""
    if name is not None and len(graphs) > 1:
        raise EmitError("--name: expected one GRAPH to name, got several")
    files: dict[str, dict[str, str]] = {}
    origin: dict[str, Path] = {}
    for graph in graphs:
        module = _module(graph, name)
        if module in origin:
            raise EmitError(
                f"module name: expected one graph for {module}, got {origin[module]} and {graph}"
            )
        origin[module] = graph
        files[module] = render(_read(graph), module, graph.name)
    for emitted in files.values():
        write_files(directory, emitted)
    _compile_all([directory / f"{module}.pyx" for module in files], directory, jobs)


def _compile_all(sources: Iterable[Path], directory: Path, jobs: int | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from cudnn_bindgen.codegen.compile import CompileError, compile_module, is_fresh

    stale = [source for source in sources if not is_fresh(source, directory)]
    console = Console(stderr=True)
    failed = False
    with (
        Progress(
            TextColumn("compiling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        ) as progress,
        # Threads that wait for one compiler process each.
        ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool,
    ):
        task = progress.add_task("", total=len(stale))
        running = {pool.submit(compile_module, source, directory): source for source in stale}
        for future in as_completed(running):
            progress.update(task, advance=1, description=running[future].stem)
            try:
                future.result()
            except CompileError as error:
                failed = True
                console.print(f"{running[future]}:", markup=False, highlight=False)
                console.print(str(error), markup=False, highlight=False)
    if failed:
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
def show(graph: Path, as_json: bool, launch: bool) -> None:
    """Show what GRAPH binds: operands, slots, scalars, workspace, nodes and plan."""
    from cudnn_bindgen.codegen.show import as_document, print_tables

    model = read_graph(graph.read_bytes(), str(graph))
    binding = bind(model)
    document = as_document(model, binding)
    if launch:
        document["launch"] = _describe_launch(graph, binding)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        print_tables(document, graph.name)


def _describe_launch(graph: Path, binding: Binding) -> list[dict[str, object]]:
    import importlib.util
    import tempfile

    from cudnn_bindgen.codegen.compile import CompileError, compile_module
    from cudnn_bindgen.runtime.errors import BindingError

    module = module_name(graph.stem)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        write_files(directory, render(binding, module, graph.name))
        try:
            compiled = compile_module(directory / f"{module}.pyx", directory)
        except CompileError as error:
            _fail(f"{graph}: {error}")
        spec = importlib.util.spec_from_file_location(module, compiled)
        if spec is None or spec.loader is None:
            raise EmitError(f"{compiled}: expected an extension module")
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        try:
            nodes: list[dict[str, object]] = loaded.launch_nodes()
        except BindingError as error:
            _fail(f"{graph}: {error}")
        return nodes


def _read(graph: Path) -> Binding:
    return bind(read_graph(graph.read_bytes(), str(graph)))


def _module(graph: Path, name: str | None) -> str:
    return check_module_name(name) if name is not None else module_name(graph.stem)


if __name__ == "__main__":
    main()
