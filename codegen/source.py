"""A graph file as the command line names it, within bounds; or as a program passes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cudnn_bindgen.codegen.errors import GraphFormatError

STDIN = Path("-")

# Of a log, which may hold much besides graphs; what a graph may have is in dialects/decode.py.
# A reader holds it twice for a moment.
MAX_BYTES = 64 * 2**20


def is_stdin(path: Path) -> bool:
    """Whether `path` means standard input."""
    return path == STDIN


def display_name(path: Path) -> str:
    """Return what messages and emitted headers call the file."""
    return "stdin" if is_stdin(path) else str(path)


def read_given(source: bytes | str | os.PathLike[str], what: str) -> tuple[bytes, str]:
    """Return the content of what a program passed, bytes or a path, and its name for messages.

    Bytes are called `what`. Raises OSError if a file cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), what
    return Path(source).read_bytes(), os.fspath(source)


def read_source(path: Path) -> bytes:
    """Return the content of a file, or of standard input for ``-``.

    Raises
    ------
    GraphFormatError
        It is larger than any log that anyone would want searched for graphs.
    OSError
        It cannot be read.
    """
    if is_stdin(path):
        # None in a process that was started without one.
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""
    else:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        error = GraphFormatError(
            f"expected at most {MAX_BYTES} bytes, got more",
            hint='of a log, keep the lines with {"context" in them only',
        )
        error.file = display_name(path)
        raise error
    return data
