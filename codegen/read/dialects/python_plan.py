"""A plan of an engine that is Python code of the frontend: its recipe, and kernels as native code.

It cannot be bound as it is: the frontend traces it into a plan of kernels
(`frontend.planning.python_plan`). Only its head is read here: magic, length, JSON.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.limits import Int64
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.text import shorten

NAME = "Python plan"

_MAGIC = b"CUDNN_FE_PYPLAN\0"
_LENGTH = struct.Struct("<Q")
_START = len(_MAGIC) + _LENGTH.size
_FORMAT = 1

_Size = Annotated[int, Meta(ge=0, lt=2**62)]
_Text = Annotated[str, Meta(max_length=1000)]


class Kernel(msgspec.Struct, frozen=True):
    """One kernel object: where it is behind the head, and what it was compiled under."""

    offset: _Size
    size: _Size
    environment: dict[_Text, _Text]


class Recipe(msgspec.Struct, frozen=True):
    """Which plan it is."""

    engine_id: Int64
    engine_name: _Text
    knobs: list[tuple[Any, Int64]]


class Head(msgspec.Struct, frozen=True):
    """What the JSON says; the graph is for the frontend to read."""

    format: int
    frontend_version: _Text
    graph: dict[str, Any]
    plan: Recipe
    kernels: Annotated[list[Kernel], Meta(max_length=1000)]


def recognise(data: bytes) -> bool:
    """Tell the magic number."""
    return data.startswith(_MAGIC)


def read(data: bytes, options: ReadOptions) -> NoReturn:
    """Say what makes a plan of kernels of it."""
    head = read_head(data)
    raise GraphFormatError(
        f"expected a plan that is traced, got a Python plan ({shorten(head.plan.engine_name)})",
        hint="cudnn-bindgen plan traces it, where nvidia-cudnn-frontend 1.32 or newer is installed",
    )


def read_head(data: bytes) -> Head:
    """Read the head, and check that all of the kernels are there.

    Raises
    ------
    GraphFormatError
        The file is cut off, or of another format.
    """
    if len(data) < _START:
        raise _cut_off()
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    if len(data) < _START + length:
        raise _cut_off()
    try:
        head = msgspec.json.decode(data[_START : _START + length], type=Head)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GraphFormatError(f"expected the head of a Python plan, as JSON: {error}") from None
    if head.format != _FORMAT:
        raise GraphFormatError(f"expected format {_FORMAT}, got {head.format}", path="$.format")
    for index, kernel in enumerate(head.kernels):
        code = data[_START + length :][kernel.offset : kernel.offset + kernel.size]
        if len(code) != kernel.size:
            raise _cut_off()
        if not code.startswith(b"\x7fELF"):
            raise GraphFormatError(
                "expected an object file (ELF), got something else", path=f"$.kernels[{index}]"
            )
    return head


def without_code(data: bytes) -> bytes:
    """Return the plan without its kernels, so that whoever builds it compiles them."""
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    head = msgspec.json.decode(data[_START : _START + length])
    text = msgspec.json.encode(head | {"kernels": []})
    return _MAGIC + _LENGTH.pack(len(text)) + text


def _cut_off() -> GraphFormatError:
    return GraphFormatError(
        "expected a whole Python plan, got one that is cut off",
        hint="write graph.serialize() again",
    )
