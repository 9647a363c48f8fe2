"""`emit` and `build` with --family: graph files → the files of one module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudnn_bindgen.codegen.bind.alike import BoundGraph
from cudnn_bindgen.codegen.bind.family import make_family
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.bind.naming import check_module_name
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.bind.sidecar import choose_options
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.options import FamilyOptions, ReadOptions, TorchOptions
from cudnn_bindgen.codegen.read.source import display_name
from cudnn_bindgen.codegen.render.module import render_family
from cudnn_bindgen.commands.graphs import NOT_PLANNED, Planned, read, source_name
from cudnn_bindgen.commands.outcome import Made


def check_family_options(
    family: FamilyOptions,
    name: str | None,
    reading: ReadOptions,
    overriding: OverrideOptions,
    torch: TorchOptions,
) -> None:
    """Refuse options that are for one graph.

    Raises
    ------
    EmitError
        One of them is given with --family.
    """
    if family.name is None:
        return
    others = {
        "--name": name,
        "--index": reading.index,
        "--symbol": overriding.symbols or None,
        "--unbounded": overriding.is_unbounded or None,
        "--torch": torch.namespace,
    }
    for option, value in others.items():
        if value is not None:
            raise EmitError(f"--family: expected no {option}, got both")


def render_files(
    graphs: Sequence[Path],
    family: FamilyOptions,
    module: str,
    reading: ReadOptions,
    planned: Planned = NOT_PLANNED,
) -> tuple[dict[str, str], list[Made]]:
    """Read `graphs` and render the one module that is for all of them."""
    check_module_name(module)
    bound = []
    for path in graphs:
        found = read(path, reading, planned)
        binding = bind_graphs(found, choose_options(path, OverrideOptions()))
        bound.append(BoundGraph(display_name(path), source_name(path), found[0], binding))
    plans = {path: one.binding.plans for path, one in zip(graphs, bound, strict=True)}
    return render_family(make_family(bound, family.keys), module), [Made(module, plans)]
