"""Options for a graph that stand in a file beside it: ``attn.plan.toml`` for ``attn.plan``.

unbounded = true

[symbols]
B = "q.0,k.0,v.0,o.0"
"S_q:declared" = "q.2,o.2"
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.source import is_stdin
from cudnn_bindgen.codegen.read.toml import read_toml
from cudnn_bindgen.codegen.text import shorten


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
        sidecar = msgspec.convert(read_toml(path), _Sidecar)
    except (ValueError, RecursionError) as error:
        what = shorten(str(error), 200)
        raise EmitError(f"{path}: expected options for {graph.name} in TOML: {what}") from None
    symbols = tuple(f"{name}={uses}" for name, uses in sidecar.symbols.items())
    return OverrideOptions(symbols, sidecar.unbounded)
