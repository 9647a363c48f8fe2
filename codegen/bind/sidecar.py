"""Options for a graph that stand in a file beside it: ``attn.plan.toml`` for ``attn.plan``.

unbounded = true

[symbols]
B = "q.0,k.0,v.0,o.0"
"S_q:declared" = "q.2,o.2"
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.source import is_stdin
from cudnn_bindgen.codegen.text import shorten

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_MAX_BYTES = 64 * 2**10
# As many as dims of as many operands as a graph may have. A reader of TOML takes a time that grows
# with the square of them where they stand in one key: a.a.a.a…
_MAX_DOTS = 3000


class _Sidecar(msgspec.Struct, forbid_unknown_fields=True):
    symbols: dict[str, str] = {}
    unbounded: bool = False


def sidecars(graph: Path) -> tuple[Path, ...]:
    """Return the file beside `graph` that says options for it, if there is one."""
    path = graph.with_name(f"{graph.name}.toml")
    return (path,) if not is_stdin(graph) and path.is_file() else ()


def choose_options(graph: Path, given: OverrideOptions) -> OverrideOptions:
    """Return what the command line gives, else what the file beside `graph` does, if there is one.

    Raises
    ------
    EmitError
        That file is no TOML, or says something else.
    """
    if given != OverrideOptions() or not sidecars(graph):
        return given
    [path] = sidecars(graph)
    try:
        sidecar = msgspec.convert(_read(path), _Sidecar)
    except (ValueError, RecursionError) as error:
        what = shorten(str(error), 200)
        raise EmitError(f"{path}: expected options for {graph.name} in TOML: {what}") from None
    symbols = tuple(f"{name}={uses}" for name, uses in sidecar.symbols.items())
    return OverrideOptions(symbols, sidecar.unbounded)


def _read(path: Path) -> object:
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"expected at most {_MAX_BYTES} bytes, got more")
    if data.count(b".") > _MAX_DOTS:
        raise ValueError(f"expected at most {_MAX_DOTS} dots, got more")
    return tomllib.loads(data.decode())
