"""The command line of diagnosis: ``cudnn-bindgen doctor``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cudnn_bindgen.doctor.finding import Finding

_COLUMNS = 100
_STYLES = {"ok": "green", "warn": "yellow", "problem": "bold red"}


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen doctor                       # what is here, and what is missing
  cudnn-bindgen doctor mymodel.attn          # whether this module can run here
  cudnn-bindgen doctor attn.bundle --json | jq '.findings[] | select(.verdict != "ok")'
"""
)
@click.argument("module", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def doctor(module: str | None, as_json: bool) -> None:
    """Say what is here and what is wrong with it; for bug reports. Exits with 1 for a problem.

    MODULE is a built module, by its name or its file, or a graph file: a plan, a bundle or a
    structure. Its plans are compared with the GPUs and the cuDNN of this machine.
    """
    from cudnn_bindgen.doctor.finding import tidied
    from cudnn_bindgen.doctor.libraries import find_libraries
    from cudnn_bindgen.doctor.subject import examine, subject_of
    from cudnn_bindgen.doctor.tools import find_tools

    subject = None if module is None else subject_of(module)
    is_called = subject is not None and subject.is_module
    findings = [*find_tools(not is_called)]
    libraries, here = find_libraries(is_called)
    findings += libraries
    if subject is not None:
        findings += examine(subject, here)
    findings = [*map(tidied(), findings)]
    if as_json:
        import msgspec

        document = {"findings": [one._asdict() for one in findings]}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        _print(findings)
    sys.exit(any(one.verdict == "problem" for one in findings))


def _print(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _COLUMNS
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in findings:
        verdict = Text(one.verdict, _STYLES[one.verdict])
        table.add_row(verdict, Text(one.what), Text(one.found))
        if one.remedy:
            table.add_row("", "", Text(f"-> {one.remedy}"))
    console.print(table)
