"""Files that appear whole or not at all, in a folder that several processes write to."""

from __future__ import annotations

import itertools
import os

TYPE_CHECKING = False  # see process.py
if TYPE_CHECKING:
    from pathlib import Path

USAGE = "usage"
"""Where the records of processes lie, apart from graphs, so that ``*.json`` names graphs alone."""

_numbers = itertools.count()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under another name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
