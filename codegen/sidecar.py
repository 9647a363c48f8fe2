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

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.overrides import OverrideOptions
from cudnn_bindgen.codegen.source import is_stdin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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
        sidecar = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _Sidecar)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise EmitError(f"{path}: expected options for {graph.name} in TOML: {error}") from None
    symbols = tuple(f"{name}={uses}" for name, uses in sidecar.symbols.items())
    return OverrideOptions(symbols, sidecar.unbounded)
