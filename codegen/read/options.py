"""What a user allows of a graph file, which graph of several is meant, and what else is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a graph file.

    Attributes
    ----------
    index
        Which graph of a log, counted from 1; None if the file must hold one only.
    allow_newer
        Read a structure of a version that is newer than this tool as the newest one it knows.
    strict
        Refuse what otherwise only gives a warning.
    trusts_code
        Run the native code in a Python plan, in a process of its own, in place of compiling it
        again.
    """

    index: int | None = None
    allow_newer: bool = False
    strict: bool = False
    trusts_code: bool = False


DEFAULT = ReadOptions()


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """Whether operators of PyTorch are emitted, and how.

    Attributes
    ----------
    namespace
        Where they are registered; None for no operators.
    backward
        Graph files that compute gradients.
    """

    namespace: str | None = None
    backward: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class FamilyOptions:
    """Whether all graphs become one module, and how.

    Attributes
    ----------
    name
        Of the module; None for a module each.
    keys
        What tells the graphs apart, as ``NAME=OPERAND.AXIS,...``; empty: all dims that differ.
    """

    name: str | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Targets:
    """What plans are made for while a graph is emitted.

    Attributes
    ----------
    gpus
        Lists of GPUs as `--for` takes them; empty: none is made.
    cudnns
        Folders with a cuDNN each; empty: the one that is installed.
    only_cudnn
        Ask for no engine of the frontend's own.
    """

    gpus: tuple[str, ...] = ()
    cudnns: tuple[Path, ...] = ()
    only_cudnn: bool = False
