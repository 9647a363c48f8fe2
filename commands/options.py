"""Command-line options that several commands share, each group as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import click

from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.options import FamilyOptions, ReadOptions, Targets, TorchOptions

PATH = click.Path(path_type=Path)

list_option = click.option("--list", "is_list", is_flag=True, help="Only list the graphs of a log.")
force_option = click.option(
    "--force", is_flag=True, help="Replace files that cudnn-bindgen has not written."
)

quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Print warnings and errors only, not what was made."
)


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how to read a graph file, as one `reading` argument."""

    @click.option(
        "--index", type=click.IntRange(min=1), help="Which graph of a log; --list shows them."
    )
    @click.option("--allow-newer", is_flag=True, help="Try to read a newer version of the format.")
    @click.option("--strict", is_flag=True, help="Make each warning an error.")
    @click.option(
        "--trust-native-code",
        "trusts_code",
        is_flag=True,
        help="Run the code inside a Python plan; else it is compiled again.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: object,
        index: int | None,
        allow_newer: bool,
        strict: bool,
        trusts_code: bool,
        **rest: object,
    ) -> None:
        command(*arguments, reading=ReadOptions(index, allow_newer, strict, trusts_code), **rest)

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


def target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which GPUs plans are made for, as one `targets` argument."""

    @click.option(
        "--for",
        "gpus",
        multiple=True,
        metavar="GPU,...",
        help="Make plans for these GPUs, which need not be here; `cudnn-bindgen gpus` lists them.",
    )
    @click.option(
        "--cudnn",
        "cudnns",
        type=PATH,
        multiple=True,
        metavar="DIR",
        help="Plan with the cuDNN in this folder, an unpacked wheel or an environment; repeatable.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: object, gpus: tuple[str, ...], cudnns: tuple[Path, ...], **rest: object
    ) -> None:
        if cudnns and not gpus:
            raise EmitError("--cudnn: expected --for, got none")
        command(*arguments, targets=Targets(gpus, cudnns), **rest)

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
        type=PATH,
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


def family_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that make one module of all graphs, as one `family` argument."""

    @click.option(
        "--family",
        "name_of_all",
        metavar="NAME",
        help="One module NAME for graphs that differ in shape only. See docs/families.md.",
    )
    @click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="NAME=OPERAND.AXIS,...",
        help="What --family tells graphs apart by; default: all dims that differ.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: object, name_of_all: str | None, keys: tuple[str, ...], **rest: object
    ) -> None:
        if keys and name_of_all is None:
            raise EmitError("--key: expected --family, got none")
        command(*arguments, family=FamilyOptions(name_of_all, keys), **rest)

    return wrapped
