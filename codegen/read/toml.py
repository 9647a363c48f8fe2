"""A file of TOML beside graph files, within bounds."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_MAX_BYTES = 64 * 2**10
# As many as dims of as many operands as a graph may have. A reader of TOML takes a time that grows
# with the square of them where they stand in one key: a.a.a.a…
_MAX_DOTS = 3000


def read_toml(path: Path) -> object:
    """Return what a file says.

    Raises
    ------
    ValueError
        It is too large, or no TOML.
    RecursionError
        It is nested too deep.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"expected at most {_MAX_BYTES} bytes, got more")
    if data.count(b".") > _MAX_DOTS:
        raise ValueError(f"expected at most {_MAX_DOTS} dots, got more")
    return tomllib.loads(data.decode())
