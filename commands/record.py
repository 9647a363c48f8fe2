"""The command line of recording: ``cudnn-bindgen record`` and ``report``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.commands.errors import complain

_PATH = click.Path(path_type=Path)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  cudnn-bindgen record -o graphs/ -- python serve.py --port 8000
  cudnn-bindgen record -o graphs/ -- torchrun --nproc-per-node 8 train.py
""",
)
@click.option(
    "-o", "--output", "folder", type=_PATH, required=True, help="Folder for graphs and usage."
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM...")
def record(folder: Path, program: tuple[str, ...]) -> None:
    """Run PROGRAM and write every graph that it builds through nvidia-cudnn-frontend in Python.

    Exits with PROGRAM's exit code. Records all Pythons that PROGRAM starts, too; several programs
    may write into one folder. Then call `cudnn-bindgen report`.
    """
    from cudnn_bindgen.frontend.recording.program import run_program

    outcome = run_program(program, folder)
    if not outcome.has_python:
        complain(
            f"{program[0]}: expected a program that runs Python, got one without, or whose Python "
            "ignores PYTHONPATH (-I, -E, -S): use `with cudnn_bindgen.record(folder):` in the "
            "program instead"
        )
        sys.exit(outcome.status or 2)
    if not outcome.processes:
        click.echo(
            printable(
                f"warning: {folder}: nothing recorded: no Python with cudnn-bindgen built or "
                "executed a graph through nvidia-cudnn-frontend"
            ),
            err=True,
        )
    else:
        click.echo(
            printable(f"recorded, processes: {outcome.processes}; cudnn-bindgen report {folder}"),
            err=True,
        )
    sys.exit(outcome.status)


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen report graphs/
  cudnn-bindgen report graphs/ --json | jq '.graphs[0].file'
"""
)
@click.argument("folder", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def report(folder: Path, as_json: bool) -> None:
    """Show which graphs of a recording are hot, and what a module of each would save."""
    from cudnn_bindgen.frontend.recording.report import as_document, print_report

    document = as_document(folder)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        print_report(document, folder)
