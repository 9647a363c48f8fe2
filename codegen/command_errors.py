"""Expected failures of commands: lines on standard error and exit 2."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError, PlanError
from cudnn_bindgen.codegen.text import printable


class Group(click.Group):
    """Commands whose expected failures are one line each."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (GraphFormatError, EmitError, PlanError) as error:
            fail(str(error))
        except BrokenPipeError:
            raise  # click ends quietly when a reader such as `head` has gone
        except OSError as error:
            name = os.fsdecode(error.filename) if error.filename else "error"
            fail(f"{name}: {error.strerror or error}")


def fail(*lines: str) -> NoReturn:
    """Say why and exit."""
    for line in lines:
        click.echo(printable(line), err=True)
    sys.exit(2)
