"""A graph file as the command line names it, within bounds; or as a program passes it."""

from __future__ import annotations

import os
import stat
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

    Bytes are called `what`.

    Raises
    ------
    GraphFormatError
        It is larger than any graph file, or no regular file.
    OSError
        It cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        _check_size(data, what, MAX_BYTES)
        return data, what
    path = Path(source)
    return read_file(path, MAX_BYTES), str(path)


def read_file(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes; nothing else ends for sure.

    Raises as `read_given`.
    """
    # Without waiting for somebody who writes into a pipe.
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            error = GraphFormatError(
                "expected a regular file, got a device, pipe or socket",
                hint="copy what comes out of it into a file",
            )
            error.file = str(path)
            raise error
        data = file.read(most + 1)
    _check_size(data, str(path), most)
    return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_source(path: Path) -> bytes:
    """Return the content of a file that a user named, of a pipe, or of standard input for ``-``.

    Raises as `read_given`, but for what no regular file is.
    """
    if is_stdin(path):
        # None in a process that was started without one.
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b""
    else:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    _check_size(data, display_name(path), MAX_BYTES)
    return data


def _check_size(data: bytes, name: str, most: int) -> None:
    if len(data) > most:
        error = GraphFormatError(
            f"expected at most {most} bytes, got more",
            hint='of a log, keep the lines with {"context" in them only',
        )
        error.file = name
        raise error
