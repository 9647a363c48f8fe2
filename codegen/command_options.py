"""Command-line options that several commands share, each group as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click

from cudnn_bindgen.codegen.options import ReadOptions
from cudnn_bindgen.codegen.overrides import OverrideOptions


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how to read a graph file, as one `reading` argument."""

    @click.option(
        "--index", type=click.IntRange(min=1), help="Which graph of a log; --list shows them."
    )
    @click.option("--allow-newer", is_flag=True, help="Try to read a newer version of the format.")
    @click.option("--strict", is_flag=True, help="Refuse what otherwise gives a warning.")
    @functools.wraps(command)
    def wrapped(
        *arguments: object, index: int | None, allow_newer: bool, strict: bool, **rest: object
    ) -> None:
        command(*arguments, reading=ReadOptions(index, allow_newer, strict), **rest)

    return wrapped


def override_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say what a module's Overrides offer, as one `overriding` argument."""

    @click.option(
        "--symbol",
        "symbols",
        multiple=True,
        metavar="NAME=OPERAND.AXIS,...",
        help="A number that dims follow: `overrides.set(NAME=...)`. See docs/overrides.md.",
    )
    @click.option("--unbounded", is_flag=True, help="Let overridden dims exceed the declared ones.")
    @functools.wraps(command)
    def wrapped(
        *arguments: object, symbols: tuple[str, ...], unbounded: bool, **rest: object
    ) -> None:
        command(*arguments, overriding=OverrideOptions(symbols, unbounded), **rest)

    return wrapped
