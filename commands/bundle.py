"""The command line of bundles: ``cudnn-bindgen bundle``."""

from __future__ import annotations

from pathlib import Path

import click

from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.read.source import display_name
from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.commands.graphs import read_traced

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen bundle h100/attn.plan b200/attn.plan -o attn.bundle
  cudnn-bindgen bundle attn.bundle new.plan -o attn.bundle    # one more
  cudnn-bindgen bundle */attn.plan -o attn.bundle && cudnn-bindgen show attn.bundle
"""
)
@click.argument("plans", type=_PATH, nargs=-1, required=True, metavar="PLAN...")
@click.option("-o", "--output", type=_PATH, required=True, help="File to write.")
@click.option("--allow-newer", is_flag=True, help="Try to read a newer version of the format.")
@click.option("--strict", is_flag=True, help="Make each warning an error.")
def bundle(plans: tuple[Path, ...], output: Path, allow_newer: bool, strict: bool) -> None:
    """Put plans of one graph into one file, for several GPUs and versions of cuDNN.

    PLAN is a plan file or a bundle; emit, build and show take what is written as GRAPH.
    """
    from cudnn_bindgen.codegen.bind.bundle import describe_plans, write_bundle
    from cudnn_bindgen.codegen.output import write_files

    options = ReadOptions(None, allow_newer, strict)
    data = write_bundle(
        [(display_name(plan), read_traced(plan, options)) for plan in plans], options
    )
    write_files(output.parent, {output.name: data})
    for line in describe_plans(data, options):
        click.echo(printable(f"{output}: {line}"), err=True)
