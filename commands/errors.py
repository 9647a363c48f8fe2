"""What commands say on standard error: why they failed, with exit 2, and warnings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.text import printable

# One cause may give a warning for each of thousands of nodes.
_MOST_WARNINGS = 20


def warn(warnings: Sequence[GraphFormatError], file: str) -> None:
    """Print what is odd about a graph."""
    for warning in warnings:
        warning.file = file
    for warning in warnings[:_MOST_WARNINGS]:
        click.echo(printable(f"warning: {warning}"), err=True)
    more = len(warnings) - _MOST_WARNINGS
    if more > 0:
        click.echo(printable(f"warning: {file}: and {more} more"), err=True)


def complain(problem: object) -> None:
    """Print an error in a line."""
    click.echo(printable(f"error: {problem}"), err=True)


def fail(problem: object, *lines: str) -> NoReturn:
    """Say why, in a line and perhaps more about it, and exit."""
    complain(problem)
    for line in lines:
        click.echo(printable(line), err=True)
    sys.exit(2)
