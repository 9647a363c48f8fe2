"""`load(plan)`: a plan file → what serves its graph, without compiling anything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cudnn_bindgen.codegen.bind.binding import Binding as Bound
from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.data import data_of
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.read.source import read_given
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.module_data import RUNTIME_ABI
from cudnn_bindgen.runtime.binding import Binding

if TYPE_CHECKING:
    from collections.abc import Sequence


def load(
    graph: bytes | str | os.PathLike[str],
    *,
    name: str | None = None,
    symbols: Sequence[str] = (),
    unbounded: bool = False,
) -> Binding:
    """Return an object with a module's face for a graph, without a compiler.

    It has `execute`, `run`, `Overrides`, `load_plan`, `OPERANDS` and all else that an emitted
    module has, by the same names. A call costs a little more than the module's: its arguments are
    read by names that stand in data, not in code.

    Parameters
    ----------
    graph
        A plan file or a bundle of plans: its path or its content. A structure, too, whose plan
        comes by `load_plan`.
    name
        What messages call it; the file's stem if left out.
    symbols, unbounded
        What `emit --symbol` and `--unbounded` say of a graph with override shapes.

    Raises
    ------
    GraphFormatError
        It is no graph file, or a bundle that is not as it was written.
    EmitError
        The options ask for what the graph does not have.
    OSError
        It cannot be read.
    """
    data, file = read_given(graph, "graph")
    options = None
    if symbols or unbounded:
        options = OverrideOptions(tuple(symbols), unbounded)
    path = Path(file)
    bound = bind_graphs(read_graphs(data, file), options)
    return serve(bound, name or shorten(path.stem), path.name)


def serve(bound: Bound, name: str, source: str) -> Binding:
    """Return what serves a graph that is bound; messages call it `name`, its file `source`."""
    return Binding(name, RUNTIME_ABI, data_of(bound, source))
