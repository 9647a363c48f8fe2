"""What commands say on standard error: why they failed, with exit 2, and warnings."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

import click

from cudnn_bindgen.codegen.errors import (
    CompileError,
    EmitError,
    GraphFormatError,
    PlanError,
    RecordError,
)
from cudnn_bindgen.codegen.text import printable
from cudnn_bindgen.extras import missing

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


@contextlib.contextmanager
def failures_in_a_line() -> Iterator[None]:
    """Say in a line what may be wrong with what a user gave, and exit."""
    try:
        yield
    except (CompileError, EmitError, GraphFormatError, PlanError, RecordError) as error:
        fail(error)
    except BrokenPipeError:
        raise  # click ends quietly when a reader such as `head` has gone
    except ImportError as error:
        found = missing(error, "cudnn-bindgen")
        if found is error:
            raise
        fail(found)
    except OSError as error:
        name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        fail(f"{name}{error.strerror or error}")
