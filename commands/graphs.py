"""What commands do with a GRAPH argument: read, bind, name and render it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.bundle import merge_warnings, read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.bind.kept_plans import keep_plans
from cudnn_bindgen.codegen.bind.naming import check_module_name, module_name
from cudnn_bindgen.codegen.bind.sidecar import choose_options
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.chain import link_files, read_chain
from cudnn_bindgen.codegen.read.dialects.python_plan import recognise as is_python_plan
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.read.source import display_name, is_stdin, read_source
from cudnn_bindgen.codegen.render.files import Named, render_modules
from cudnn_bindgen.commands.errors import warn
from cudnn_bindgen.commands.options import ModuleOptions
from cudnn_bindgen.commands.outcome import Made
from cudnn_bindgen.module_data import GraphData

# Plan files and bundles, by the GRAPH that they were made of; or what a module has of it.
Planned: TypeAlias = Mapping[Path, bytes | GraphData]
NOT_PLANNED: Planned = MappingProxyType({})


def named(
    graph: Path, module: str, options: ModuleOptions, planned: Planned = NOT_PLANNED
) -> Named:
    """Read GRAPH and bind it, for a module of this name."""
    _, binding = read_bound(graph, options, planned)
    return Named(module, binding, source_name(graph), options.said())


def read_bound(
    graph: Path, options: ModuleOptions, planned: Planned
) -> tuple[tuple[Graph, ...], Binding]:
    """Read GRAPH and bind it."""
    graphs = read(graph, options.reading, planned)
    overriding = choose_options(graph, options.overriding)
    binding = bind_graphs(graphs, overriding)
    has = planned.get(graph)
    return graphs, keep_plans(binding, has, overriding) if isinstance(has, GraphData) else binding


def render_all(
    graph: Path, module: Named, options: ModuleOptions, planned: Planned = NOT_PLANNED
) -> tuple[dict[str, str], list[Made]]:
    """Render GRAPH's module, and its operators of PyTorch with the graphs of their gradients."""
    graphs, of_each = options.torch.backward, options.for_gradients()
    missing = [graph for graph in graphs if graph not in planned]
    planned = {**planned, **plan_files(missing, of_each)}
    backwards = [named(each, module_of(each, None), of_each, planned) for each in graphs]
    files = render_modules(module, backwards, options.torch.namespace)
    pairs = zip((graph, *graphs), (module, *backwards), strict=True)
    return files, [Made(one.module, {path: one.binding.plans}) for path, one in pairs]


def graph_files(graphs: Sequence[Path], options: ModuleOptions) -> tuple[Path, ...]:
    """Return the graph files that a module is made of: of a chain those of its links."""
    if not options.is_chain:
        return tuple(graphs)
    return tuple(dict.fromkeys(f for one in graphs for f in link_files(one, read_chain(one))))


def plan_files(graphs: Sequence[Path], options: ModuleOptions, jobs: int | None = None) -> Planned:
    """Make the plans that --for asks for."""
    if not graphs or not options.targets.gpus:
        return NOT_PLANNED
    # Not above: it takes a while, and is rarely needed.
    from cudnn_bindgen.commands.planned import planned_files

    return planned_files(graphs, options.targets, options.reading, jobs)


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
    made = planned.get(graph)
    if isinstance(made, bytes):
        return read_graphs(made, file)  # whoever planned it has said what is odd
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
