"""The command line of looking: ``cudnn-bindgen show``."""

from __future__ import annotations

from pathlib import Path

import click

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import GraphFormatError
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
    help="Also show what a launch consists of; needs a GPU.",
)
@list_option
@reading_options
def show(graph: Path, as_json: bool, launch: bool, is_list: bool, reading: ReadOptions) -> None:
    """Show what GRAPH binds and does: operands, nodes, constants, plans; or why it cannot be."""
    from cudnn_bindgen.codegen.render import show as tables
    from cudnn_bindgen.codegen.render.document import as_document

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
    document = as_document(graphs, binding)
    if launch:
        document["launch"] = _describe_launch(graph, binding)
    if as_json:
        tables.print_json(document)
    else:
        tables.print_tables(document, source_name(graph))


def _describe_launch(graph: Path, binding: Binding) -> list[dict[str, object]]:
    # Not above: it loads the runtime, which nothing else here needs.
    from cudnn_bindgen.loading import serve

    try:
        nodes: list[dict[str, object]] = serve(
            binding, "binding", source_name(graph)
        ).launch_nodes()
    except RuntimeError as error:  # the runtime's errors, which commands do not import
        fail(f"{graph}: {error}")
    return nodes
