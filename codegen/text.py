"""The one place where text from a graph file is made safe: to look at, and to put into code.

A name in a graph file may hold quotes, newlines, backslashes and bidirectional controls, and it
ends up in source code. Whatever is emitted goes through ``literal``; whatever a person reads in a
table goes through ``printable`` first.
"""

from __future__ import annotations

import math
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | bytes | tuple["Value", ...] | None


def printable(text: str) -> str:
    r"""Return `text` in printable ASCII; everything else as ``\n``, ``\xNN`` or ``\uNNNN``."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("unicode_escape").decode("ascii")


def shorten(text: str, width: int = 40) -> str:
    """Return `text`, printable and cut to `width` columns."""
    text = printable(text)
    return text if len(text) <= width else text[: width - 3] + "..."


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
    """Return bytes literals of at most `width` columns that, side by side, mean `value`.

    Single quotes: serialized plans are JSON, full of double ones.
    """
    lines: list[str] = []
    line: list[str] = []
    room = width - 3
    for byte in value:
        char = f"\\x{byte:02x}" if byte in b"\\'" or not 32 <= byte < 127 else chr(byte)
        if room < len(char):
            lines.append("b'" + "".join(line) + "'")
            line, room = [], width - 3
        line.append(char)
        room -= len(char)
    lines.append("b'" + "".join(line) + "'")
    return lines
