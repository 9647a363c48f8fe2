"""The group of all commands: imports one when it is asked for, says expected failures in a line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from cudnn_bindgen.codegen.text import did_you_mean, shorten
from cudnn_bindgen.commands.errors import fail, failures_in_a_line

# What click raises from 8.2 on where there is no command: the help.
_HELP: type[Exception] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with."""
        if args[0] not in self.places and not ctx.resilient_parsing:  # which completes a word
            known = {name: name for name in self.places}
            raise click.UsageError(_unknown("a command", args[0], known), ctx)
        return super().resolve_command(ctx, args)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read what stands before the name of a command."""
        with _said_in_a_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        with _said_in_a_line():
            return super().invoke(ctx)


@contextmanager
def _said_in_a_line() -> Iterator[None]:
    try:
        with failures_in_a_line():
            yield
    except _HELP:
        raise
    except click.UsageError as error:
        command = f"{error.ctx.command_path} --help" if error.ctx else "--help"
        fail(f"{_describe(error)} (try {command})")


def _describe(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        params = error.ctx.command.get_params(error.ctx) if error.ctx else []
        known = {name: name for one in params for name in (*one.opts, *one.secondary_opts)}
        return _unknown("an option", error.option_name, known)
    return error.format_message().rstrip(".")


def _unknown(what: str, given: str, known: Mapping[str, str]) -> str:
    return f"expected {what}, got {shorten(given)}{did_you_mean(given, known)}"
