"""Command-line options that several commands share, each group as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import click

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.options import ReadOptions, TorchOptions
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


_NAMESPACE = "cudnn_bindgen"


def torch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that ask for operators of PyTorch, as one `torch` argument."""

    @click.option("--torch", "is_wanted", is_flag=True, help="Also write NAME_torch.py, operators.")
    @click.option(
        "--torch-namespace",
        "namespace",
        metavar="NS",
        help=f"Register torch.ops.NS.NAME; default {_NAMESPACE}.",
    )
    @click.option(
        "--backward",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="GRAPH",
        help="Graph of gradients, for autograd; may be repeated. See docs/torch.md.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: object,
        is_wanted: bool,
        namespace: str | None,
        backward: tuple[Path, ...],
        **rest: object,
    ) -> None:
        if not is_wanted and (backward or namespace is not None):
            option = "--backward" if backward else "--torch-namespace"
            raise EmitError(f"{option}: expected --torch, got none")
        wanted = (_NAMESPACE if namespace is None else namespace) if is_wanted else None
        command(*arguments, torch=TorchOptions(wanted, backward), **rest)

    return wrapped
