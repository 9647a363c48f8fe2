"""The group of all commands: imports one when it is asked for, says expected failures in a line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from cudnn_bindgen.commands.errors import failures_in_a_line


class Group(click.Group):
    """Commands in modules that are not imported until then: a program waits for `record` to start.

    Attributes
    ----------
    places
        Name of each command → ``module:object``. Help imports all of them: each says what it does.
    """

    def __init__(self, *arguments: Any, places: Mapping[str, str], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        place = self.places.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        with failures_in_a_line():
            return super().invoke(ctx)
