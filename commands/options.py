"""Command-line options that several commands share, each group as one argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    @click.option(
        "--only-cudnn",
        is_flag=True,
        help="Leave the frontend's own engines out, which take seconds to compile.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: object,
        gpus: tuple[str, ...],
        cudnns: tuple[Path, ...],
        only_cudnn: bool,
        **rest: object,
    ) -> None:
        for option, is_given in (("--cudnn", bool(cudnns)), ("--only-cudnn", only_cudnn)):
            if is_given and not gpus:
                raise EmitError(f"{option}: expected --for, got none")
        command(*arguments, targets=Targets(gpus, cudnns, only_cudnn), **rest)

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


chain_option = click.option(
    "--chain", "is_chain", is_flag=True, help="GRAPH is a chain of graphs. See docs/chains.md."
)


header_option = click.option(
    "--header", "has_header", is_flag=True, help="Also write NAME.h, for callers in C and C++."
)


@dataclass(frozen=True, slots=True)
class ModuleOptions:
    """All that decides, besides its graphs, what a module is."""

    targets: Targets
    reading: ReadOptions
    overriding: OverrideOptions
    torch: TorchOptions
    family: FamilyOptions
    is_chain: bool = False
    has_header: bool = False

    @property
    def planning(self) -> tuple[Targets, ReadOptions]:
        """What decides the plans of a graph: graphs with the same are planned at once."""
        return self.targets, self.reading

    def said(self) -> list[tuple[str, str]]:
        """Return what the head of a module says of them: what decides its text, and no folder."""
        torch = self.torch
        namespace = torch.namespace if torch.namespace != _NAMESPACE else None
        options: dict[str, Sequence[str]] = {
            "--for": self.targets.gpus,
            "--only-cudnn": [""] * self.targets.only_cudnn,
            "--index": [str(self.reading.index)] if self.reading.index else [],
            "--allow-newer": [""] * self.reading.allow_newer,
            "--symbol": self.overriding.symbols,
            "--unbounded": [""] * self.overriding.is_unbounded,
            "--torch": [""] * (torch.namespace is not None),
            "--torch-namespace": [namespace] if namespace else [],
            "--backward": [graph.name for graph in torch.backward],
            "--key": self.family.keys,
            "--chain": [""] * self.is_chain,
            "--header": [""] * self.has_header,
        }
        return [(option, value) for option, values in options.items() for value in values]

    def for_gradients(self) -> ModuleOptions:
        """Return what of it holds for the graphs of gradients."""
        return ModuleOptions(
            self.targets,
            replace(self.reading, index=None),
            OverrideOptions(),
            TorchOptions(),
            FamilyOptions(),
        )


def module_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add all options that say what a module is, as one `options` argument."""

    @target_options
    @reading_options
    @override_options
    @torch_options
    @family_options
    @chain_option
    @header_option
    @functools.wraps(command)
    def wrapped(
        *arguments: object,
        targets: Targets,
        reading: ReadOptions,
        overriding: OverrideOptions,
        torch: TorchOptions,
        family: FamilyOptions,
        is_chain: bool,
        has_header: bool,
        **rest: object,
    ) -> None:
        options = ModuleOptions(targets, reading, overriding, torch, family, is_chain, has_header)
        command(*arguments, options=options, **rest)

    return wrapped


def parse_options(words: Sequence[str]) -> ModuleOptions:
    """Return what words of a command line say, where they stand elsewhere.

    Raises
    ------
    EmitError
        A command would refuse them.
    """
    found: list[ModuleOptions] = []

    @click.command()
    @module_options
    def read(options: ModuleOptions) -> None:
        found.append(options)

    try:
        read.main([*words], standalone_mode=False)
    except click.ClickException as error:
        raise EmitError(error.format_message()) from None
    return found[0]
