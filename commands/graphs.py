"""What commands do with a GRAPH argument: read, bind, name and render it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from cudnn_bindgen.codegen.bind.bundle import merge_warnings, read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.bind.naming import check_module_name, module_name
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.bind.sidecar import choose_options
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.dialects.python_plan import recognise as is_python_plan
from cudnn_bindgen.codegen.read.options import ReadOptions, Targets, TorchOptions
from cudnn_bindgen.codegen.read.source import display_name, is_stdin, read_source
from cudnn_bindgen.codegen.render.files import Named, render_modules
from cudnn_bindgen.commands.errors import warn
from cudnn_bindgen.commands.outcome import Made

# Plan files and bundles, by the GRAPH that they were made of.
Planned: TypeAlias = Mapping[Path, bytes]
NOT_PLANNED: Planned = MappingProxyType({})


def named(
    graph: Path,
    module: str,
    reading: ReadOptions,
    overriding: OverrideOptions,
    planned: Planned = NOT_PLANNED,
) -> Named:
    """Read GRAPH and bind it, for a module of this name."""
    binding = bind_graphs(read(graph, reading, planned), choose_options(graph, overriding))
    return Named(module, binding, source_name(graph))


def render_all(
    graph: Path, module: Named, reading: ReadOptions, torch: TorchOptions, targets: Targets
) -> tuple[dict[str, str], list[Made]]:
    """Render GRAPH's module, and its operators of PyTorch with the graphs of their gradients."""
    allowed = ReadOptions(None, reading.allow_newer, reading.strict)
    planned = plan_files(torch.backward, targets, allowed)
    backwards = [
        named(graph, module_of(graph, None), allowed, OverrideOptions(), planned)
        for graph in torch.backward
    ]
    files = render_modules(module, backwards, torch.namespace)
    pairs = zip((graph, *torch.backward), (module, *backwards), strict=True)
    return files, [Made(one.module, {path: one.binding.plans}) for path, one in pairs]


def plan_files(
    graphs: Sequence[Path], targets: Targets, reading: ReadOptions, jobs: int | None = None
) -> Planned:
    """Make the plans that --for asks for."""
    if not graphs or not targets.gpus:
        return NOT_PLANNED
    # Not above: it takes a while, and is rarely needed.
    from cudnn_bindgen.commands.planned import planned_files

    return planned_files(graphs, targets, reading, jobs)


def refuse_to_replace(foreign: Sequence[Path]) -> None:
    """Raise EmitError if there are files that are somebody's work."""
    if foreign:
        raise EmitError(
            f"{foreign[0]}: expected a file that cudnn-bindgen has written, or none, got another: "
            "--force replaces it" + (f" and {len(foreign) - 1} more" if len(foreign) > 1 else "")
        )


def read(graph: Path, reading: ReadOptions, planned: Planned = NOT_PLANNED) -> tuple[Graph, ...]:
    """Read GRAPH, one graph with one plan or several, and print what is odd about it.

    In place of a file that is in `planned`, the plans that were made of it are read.
    """
    file = display_name(graph)
    if graph in planned:
        return read_graphs(planned[graph], file)  # whoever planned it has said what is odd
    graphs = read_graphs(read_traced(graph, reading), file, reading)
    warn(merge_warnings(graphs), file)
    return graphs


def read_traced(graph: Path, reading: ReadOptions) -> bytes:
    """Return what GRAPH holds; of a Python plan the plan of kernels that it is traced into."""
    data = read_source(graph)
    if not is_python_plan(data):
        return data
    # Not above: it takes a while, and is rarely needed.
    from cudnn_bindgen.commands.planned import trace_python_plan

    return trace_python_plan(data, display_name(graph), reading)


def source_name(graph: Path) -> str:
    """Return what a module says it is made from."""
    return "stdin" if is_stdin(graph) else graph.name


def module_of(graph: Path, name: str | None) -> str:
    """Return the name of the module: this one, else one from GRAPH's."""
    if name is not None:
        return check_module_name(name)
    return module_name("binding" if is_stdin(graph) else graph.stem)
