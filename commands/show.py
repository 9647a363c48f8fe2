"""The command line of looking: ``cudnn-bindgen show``."""

from __future__ import annotations

from pathlib import Path

import click

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.output import write_files
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.commands.errors import fail
from cudnn_bindgen.commands.graphs import read, source_name
from cudnn_bindgen.commands.options import PATH, list_option, reading_options


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen show attn.plan
  cudnn-bindgen show attn.plan --json | jq .arguments
  cudnn-bindgen show attn.plan --launch                # on a GPU: kernels and patched words
"""
)
@click.argument("graph", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--launch",
    is_flag=True,
    help="Also what a launch record holds; builds the module, needs a GPU.",
)
@list_option
@reading_options
def show(graph: Path, as_json: bool, launch: bool, is_list: bool, reading: ReadOptions) -> None:
    """Show what GRAPH binds: operands, scalars, workspace, nodes and plan; or why it cannot be."""
    from cudnn_bindgen.codegen.render import show as tables

    if is_list:
        tables.show_list(graph, reading, as_json)
        return
    try:
        graphs = read(graph, reading)
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
        tables.print_tables(document, source_name(graph))


def _describe_launch(graph: Path, binding: Binding) -> list[dict[str, object]]:
    import importlib.util
    import tempfile

    from cudnn_bindgen.codegen.compile import CompileError, compile_module
    from cudnn_bindgen.codegen.render.module import render

    module = "binding"  # nobody imports it by its name
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        write_files(directory, render(binding, module, source_name(graph)))
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
        except RuntimeError as error:  # the runtime's errors, which codegen does not import
            fail(f"{graph}: {error}")
        return nodes
