"""The command line of looking: ``cudnn-bindgen show``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.read.source import is_stdin
from cudnn_bindgen.commands.errors import fail
from cudnn_bindgen.commands.graphs import read, source_name
from cudnn_bindgen.commands.options import PATH, list_option, reading_options


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen show attn.plan
  cudnn-bindgen show attn.plan --json | jq .arguments
  cudnn-bindgen show attn.plan --svg -o attn.svg
  cudnn-bindgen show attn.plan --launch                # on a GPU: kernels and patched words
"""
)
@click.argument("graph", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--dot", is_flag=True, help="Draw it, in the language of Graphviz.")
@click.option("--mermaid", is_flag=True, help="Draw it, in the language of Mermaid.")
@click.option("--svg", is_flag=True, help="Draw it, as SVG; needs the extra of that name.")
@click.option("-o", "--output", type=PATH, help="File for the picture; default standard output.")
@click.option(
    "--launch",
    is_flag=True,
    help="Also show what a launch consists of; needs a GPU.",
)
@list_option
@reading_options
def show(
    graph: Path,
    as_json: bool,
    output: Path | None,
    launch: bool,
    is_list: bool,
    reading: ReadOptions,
    **drawn: bool,
) -> None:
    """Show what GRAPH binds and does: operands, nodes, constants, plans; or why it cannot be."""
    from cudnn_bindgen.codegen.render import show as tables
    from cudnn_bindgen.codegen.render.document import as_document

    language = _language(drawn, output, {"--json": as_json, "--list": is_list, "--launch": launch})
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
    if language:
        _draw(document, language, graph, output)
    elif as_json:
        tables.print_json(document)
    else:
        tables.print_tables(document, source_name(graph))


def _language(drawn: dict[str, bool], output: Path | None, others: dict[str, bool]) -> str:
    """Return in which language to draw, or an empty string; refuse what does not go with it."""
    wanted = [f"--{name}" for name, is_wanted in drawn.items() if is_wanted]
    asked = wanted + [name for name, is_asked in others.items() if is_asked]
    if wanted and len(asked) > 1:
        raise EmitError(f"{asked[0]}: expected no other way to show GRAPH, got {asked[1]}")
    if output is not None and not wanted:
        raise EmitError("--output: expected --dot, --mermaid or --svg, got none")
    return wanted[0].removeprefix("--") if wanted else ""


def _draw(document: dict[str, Any], language: str, graph: Path, output: Path | None) -> None:
    from cudnn_bindgen.codegen.output import write_files
    from cudnn_bindgen.codegen.render.dot import to_dot, to_mermaid
    from cudnn_bindgen.codegen.render.picture import draw
    from cudnn_bindgen.codegen.render.svg import to_svg

    text = {"dot": to_dot, "mermaid": to_mermaid, "svg": to_svg}[language](draw(document))
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
        return
    if not is_stdin(graph) and output.exists() and output.samefile(graph):
        raise EmitError(f"--output: expected another file than GRAPH, got {output}")
    write_files(output.parent, {output.name: text})


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
