"""The one place where text from a graph file is made safe: to look at, and to put into code.

A name in a graph file may hold quotes, newlines, backslashes and bidirectional controls, and it
ends up in source code. Whatever is emitted goes through ``literal``; whatever a person reads in a
table goes through ``printable`` first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

_IN_BYTES = {
    byte: f"\\x{byte:02x}" for byte in range(256) if chr(byte) in "\\'" or not 32 <= byte < 127
}

Value: TypeAlias = bool | int | float | str | bytes | tuple["Value", ...] | None


class Brackets(NamedTuple):
    """Code in brackets; `start` and `end` are what stands before and behind, brackets included."""

    start: str
    items: Sequence[Piece]
    end: str


Piece: TypeAlias = str | Brackets


def printable(text: str) -> str:
    r"""Return `text` in printable ASCII; everything else as ``\n``, ``\xNN`` or ``\uNNNN``."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("unicode_escape").decode("ascii")


def shorten(text: str, width: int = 40) -> str:
    """Return `text`, printable and cut to `width` columns."""
    text = printable(text)
    return text if len(text) <= width else text[: width - 3] + "..."


def did_you_mean(given: str, known: Mapping[str, str]) -> str:
    """Return the end of a message: which of `known`, spelling → name, may have been meant."""
    import difflib  # rarely needed

    near = difflib.get_close_matches(given, known, n=5, cutoff=0.6)
    names = list(dict.fromkeys(known[spelling] for spelling in near))[:3]
    return f"; did you mean {' or '.join(names)}?" if names else ""


def align(rows: Sequence[Sequence[str]], gap: str = "  ") -> list[str]:
    """Return `rows`, which have equal numbers of cells, as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def join_sizes(sizes: Sequence[int | str]) -> str:
    """Return dims or strides as they stand in tables."""
    return ",".join(map(str, sizes)) or "-"


def member(path: str, key: str) -> str:
    """Return the JSON path of a member of the object at `path`."""
    return f"{path}.{key}" if key.isidentifier() else f'{path}["{shorten(key)}"]'


def quoted(text: str) -> str:
    """Return what stands between double quotes, single or triple, so that it means `text`."""
    return text.encode("unicode_escape").decode("ascii").replace('"', '\\"')


def literal(value: Value) -> str:
    """Return Python source, pure ASCII, that evaluates to `value`."""
    if isinstance(value, str):
        return f'"{quoted(value)}"'
    if isinstance(value, bytes):
        return hex_literal(value)
    if isinstance(value, tuple):
        items = ", ".join(literal(item) for item in value)
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def hex_literal(value: bytes) -> str:
    """Return a bytes literal with each byte in hex, as bit patterns are read."""
    return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'


def wrap_bytes(value: bytes, width: int = 92) -> list[str]:
    """Return bytes literals of at most `width` columns that, side by side, mean `value`."""
    return [f"b'{line}'" for line in _cut(value.decode("latin-1").translate(_IN_BYTES), width - 3)]


def pieces(value: Value) -> Piece:
    """Return ``literal(value)`` for `lay_out`, which may spread a tuple over lines."""
    if isinstance(value, tuple) and len(value) > 1:
        return Brackets("(", tuple(map(pieces, value)), ")")
    return literal(value)


def lay_out(piece: Piece, indent: int = 0, end: str = "", width: int = 100) -> list[str]:
    """Return code as lines of `width` columns, as ruff and black format it; `end` follows it.

    What is too long by itself (a name) stays whole.
    """
    margin = " " * indent
    line = f"{margin}{_flat(piece)}{end}"
    if isinstance(piece, str) or len(line) <= width:
        return [line]
    within = f"{margin}    {', '.join(map(_flat, piece.items))}"
    # Arguments and parameters may share a line; the items of a tuple, list or dict may not.
    if piece.start.endswith("(") and piece.start != "(" and len(within) <= width:
        lines = [within]
    else:
        lines = [line for item in piece.items for line in lay_out(item, indent + 4, ",", width)]
    return [margin + piece.start, *lines, margin + piece.end + end]


def _flat(piece: Piece) -> str:
    if isinstance(piece, str):
        return piece
    return f"{piece.start}{', '.join(map(_flat, piece.items))}{piece.end}"


def enclose(start: str, items: Iterable[str], end: str, width: int = 100) -> list[str]:
    """Return items between brackets: on one line of `width` columns, or on lines of their own."""
    items = list(items)
    indent = len(start) - len(start.lstrip())
    line = f"{start}{', '.join(items)}{end}"
    if len(line) <= width:
        return [line]
    lines = fill((f"{item}, " for item in items), width - indent - 3)
    return [start, *(f"{' ' * indent}    {line.rstrip()}" for line in lines), " " * indent + end]


def _cut(text: str, room: int) -> list[str]:
    r"""Cut `text` into as few lines of at most `room` columns as its ``\xNN`` allow.

    The same as `fill`, for texts of megabytes.
    """
    lines: list[str] = []
    start = 0
    while start < len(text) or not lines:
        end = start + room
        escape = text.rfind("\\", end - 3, end)
        if escape != -1 and end < len(text):
            end = escape
        lines.append(text[start:end])
        start = end
    return lines


def fill(pieces: Iterable[str], room: int) -> list[str]:
    """Join `pieces` into as few lines of at most `room` columns as their order allows."""
    lines: list[list[str]] = [[]]
    left = room
    for piece in pieces:
        if left < len(piece) and lines[-1]:
            lines.append([])
            left = room
        lines[-1].append(piece)
        left -= len(piece)
    return ["".join(line) for line in lines]
