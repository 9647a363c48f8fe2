"""The command line of the table of GPUs: ``cudnn-bindgen gpus``."""

from __future__ import annotations

import click


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen gpus                    # names, SMs, memory, clocks, sources
  cudnn-bindgen gpus --json | jq '.gpus[].name'
  cudnn-bindgen gpus --here > this.json # on the machine with the GPU
"""
)
@click.option("--here", is_flag=True, help="Print the properties of the GPU of this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def gpus(here: bool, as_json: bool) -> None:
    """List the GPUs that are known by name, and where their numbers come from."""
    if here:
        from cudnn_bindgen.frontend.planning.driver import read_here

        click.echo(read_here().text)
        return
    from cudnn_bindgen.frontend.planning.gpu_table import as_document, print_gpus

    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(as_document()), indent=2).decode())
    else:
        print_gpus()
