"""The file of a chain → which graphs are its links, and how their tensors are wired.

[[link]]
name = "norm"
graph = "norm.plan"

[wires]
"product.A" = "norm.Y"
"attention.K" = { of = "product.C", offset = 1024 }

[operands]
x = ["norm.X", "add.IN_1", { of = "other.A", offset = 0 }]
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.model.limits import Bytes
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.codegen.read.toml import read_toml
from cudnn_bindgen.codegen.text import shorten

_Text = Annotated[str, Meta(min_length=1)]

MAX_LINKS = 256
_NAME = re.compile(r"[A-Za-z]\w{0,39}", re.ASCII)


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph of the chain: what it is called there, and its file, from the chain's own."""

    name: str
    graph: _Text


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is the same memory from an element on, in a shape of its own.

    `of`: in a wire the output that is read; in an operand the tensor that is part of it.
    """

    of: str
    offset: Bytes = 0


class ChainFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says.

    Attributes
    ----------
    link
        The graphs.
    wires
        Input → the output that it reads: `LINK.TENSOR`.
    operands
        Argument → the tensors that are it.
    """

    link: Annotated[tuple[Link, ...], Meta(min_length=1, max_length=MAX_LINKS)]
    wires: dict[str, str | View] = {}
    operands: dict[str, Annotated[tuple[str | View, ...], Meta(min_length=1)]] = {}


def read_chain(path: Path) -> ChainFile:
    """Return what the file says.

    Raises
    ------
    EmitError
        It is no chain: the message has the place in it.
    OSError
        It cannot be read.
    """
    try:
        document = read_toml(path)
        said = check(document, ChainFile)
    except GraphFormatError as error:
        problem = error.problem
        if error.path.startswith("$.wires"):
            problem += ': names are quoted there, as in "product.A" = "norm.Y"'
        raise EmitError(f"{path}: {error.path}: {problem}") from None
    except (ValueError, RecursionError) as error:
        what = shorten(str(error), 200)
        raise EmitError(f"{path}: expected a chain in TOML: {what}") from None
    names = [link.name for link in said.link]
    for name in names:
        if not _NAME.fullmatch(name):
            raise EmitError(
                f"{path}: [[link]]: expected a name of at most 40 letters, digits and _, "
                f'got "{shorten(name)}"'
            )
        if names.count(name) > 1:
            raise EmitError(f"{path}: [[link]]: expected each name once, got {name} twice")
    return said


def link_files(path: Path, said: ChainFile) -> tuple[Path, ...]:
    """Return the graph file of each link."""
    return tuple(path.parent / link.graph for link in said.link)
