"""Expected failures of commands, lines on standard error and exit 2, and warnings."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError, PlanError, RecordError
from cudnn_bindgen.codegen.text import printable

# One cause may give a warning for each of thousands of nodes.
_MOST_WARNINGS = 20


class Group(click.Group):
    """Commands whose expected failures are one line each."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (GraphFormatError, EmitError, PlanError, RecordError) as error:
            fail(str(error))
        except BrokenPipeError:
            raise  # click ends quietly when a reader such as `head` has gone
        except OSError as error:
            name = os.fsdecode(error.filename) if error.filename else "error"
            fail(f"{name}: {error.strerror or error}")


def warn(warnings: Sequence[GraphFormatError], file: str) -> None:
    """Print what is odd about a graph."""
    for warning in warnings:
        warning.file = file
    for warning in warnings[:_MOST_WARNINGS]:
        click.echo(printable(f"warning: {warning}"), err=True)
    more = len(warnings) - _MOST_WARNINGS
    if more > 0:
        click.echo(printable(f"warning: {file}: and {more} more"), err=True)


def fail(*lines: str) -> NoReturn:
    """Say why and exit."""
    for line in lines:
        click.echo(printable(line), err=True)
    sys.exit(2)
