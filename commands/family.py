"""`emit` and `build` with --family: graph files → the files of one module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudnn_bindgen.codegen.bind.alike import BoundGraph
from cudnn_bindgen.codegen.bind.family import make_family
from cudnn_bindgen.codegen.bind.naming import check_module_name
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.source import display_name
from cudnn_bindgen.codegen.render.module import render_family
from cudnn_bindgen.commands.graphs import Planned, read_bound, source_name
from cudnn_bindgen.commands.options import ModuleOptions
from cudnn_bindgen.commands.outcome import Made


def check_family_options(options: ModuleOptions, name: str | None) -> None:
    """Refuse options that are for one graph.

    Raises
    ------
    EmitError
        One of them is given with --family.
    """
    if options.family.name is None:
        return
    others = {
        "--name": name,
        "--index": options.reading.index,
        "--symbol": options.overriding.symbols or None,
        "--unbounded": options.overriding.is_unbounded or None,
        "--torch": options.torch.namespace,
    }
    for option, value in others.items():
        if value is not None:
            raise EmitError(f"--family: expected no {option}, got both")


def render_members(
    graphs: Sequence[Path], module: str, options: ModuleOptions, planned: Planned
) -> tuple[dict[str, str], list[Made]]:
    """Read `graphs` and render the one module that is for all of them."""
    check_module_name(module)
    bound = []
    for path in graphs:
        found, binding = read_bound(path, options, planned)
        bound.append(BoundGraph(display_name(path), source_name(path), found[0], binding))
    plans = {path: one.binding.plans for path, one in zip(graphs, bound, strict=True)}
    family = make_family(bound, options.family.keys)
    return render_family(family, module, options.said()), [Made(module, plans)]
