"""`accelerate(graph)`: a live, built graph of NVIDIA's frontend → an object with its `execute`."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.compile import CompileError, compile_module
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.output import write_files
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.frontend.accelerating.accelerated import Accelerated
from cudnn_bindgen.frontend.accelerating.errors import AccelerateError, AccelerateWarning
from cudnn_bindgen.frontend.accelerating.loaded_modules import find_module, load_module
from cudnn_bindgen.frontend.accelerating.module_cache import ModuleCache
from cudnn_bindgen.frontend.accelerating.module_key import module_name
from cudnn_bindgen.runtime.errors import BindingError

# What emitted modules name as the file they come from.
_SOURCE = "accelerate"


def accelerate(
    graph: Any, *, handle: Any = None, check: bool = False, fallback: bool = False
) -> Any:
    """Return an object that executes a graph as the graph does, in less time.

    The first call for a graph compiles a module, which takes some seconds and is remembered on
    disk. To be called on the device that the graph is for.

    Parameters
    ----------
    graph
        A built ``cudnn.pygraph``. It stays as it is; what is changed later, such as the plan that
        it selects, is not seen.
    handle
        What calls without a handle use; None for the graph's own.
    check
        Check each tensor's device, data type, layout and overlaps on every call. The frontend does
        not: it takes what stands at the address for what was declared.
    fallback
        Warn, and return `graph` itself, where an error would be raised.

    Returns
    -------
    Accelerated
        With the frontend's `execute`; everything else is the graph's.

    Raises
    ------
    AccelerateError
        The graph cannot be accelerated, or its module cannot be compiled.
    """
    if isinstance(graph, Accelerated):
        return graph
    try:
        frontend = _frontend_of(graph)
        plan_index, plan, model = _read(graph, frontend)
        module = _module_of(plan, model)
    except AccelerateError as error:
        if not fallback:
            raise
        warnings.warn(
            f"{error}; the frontend goes on executing this graph", AccelerateWarning, stacklevel=2
        )
        return graph
    # The graph's own handle, from frontend 1.27 on; None there is the frontend's handle, which runs
    # on the legacy stream.
    knows_default = handle is not None or hasattr(graph, "_handle")
    default = handle if handle is not None else getattr(graph, "_handle", None)
    return Accelerated(
        graph,
        module,
        frontend.get_stream,
        default,
        knows_default,
        check,
        plan_index=plan_index,
    )


def _frontend_of(graph: Any) -> Any:
    # Loaded, as there is a graph of it; importing it here would take a second and a GPU.
    frontend = sys.modules.get("cudnn")
    pygraph = getattr(frontend, "pygraph", None)
    if pygraph is None or not isinstance(graph, pygraph):
        raise AccelerateError(
            f"accelerate: expected a cudnn.pygraph, got an object of type {type(graph).__name__}"
        )
    return frontend


def _read(graph: Any, frontend: Any) -> tuple[int | None, bytes, Graph]:
    engine = getattr(graph, "selected_engine", None)
    if engine is not None:
        name = getattr(engine, "name", type(engine).__name__)
        raise AccelerateError(
            f"accelerate: the graph is served by {name}, the frontend's own engine, not by cuDNN"
        )
    unsupported = getattr(frontend, "cudnnGraphNotSupportedError", RuntimeError)
    # Older frontends have no list of plans, nor have graphs that were deserialized.
    plan_index = graph._plan_index if getattr(graph, "_planning_done", False) else None
    try:
        if plan_index is not None and graph._is_built:
            # Frontends before 1.32 serialize the plan that was built last, which is not the one
            # that they execute where all plans were built. The one that they execute is built.
            graph.build_plan_at_index(plan_index)
        plan = bytes(graph.serialize())
    except (unsupported, AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise AccelerateError(
            f"accelerate: the graph cannot be serialized ({error}): build it first, for cuDNN"
        ) from error
    try:
        model = read_graph(plan, "graph.serialize()")
    except GraphFormatError as error:
        raise AccelerateError(f"accelerate: {error}") from error
    if model.plan is None:
        raise AccelerateError("accelerate: the graph has no plan: build it first")
    return plan_index, plan, model


def _module_of(plan: bytes, model: Graph) -> Any:
    try:
        # The frontend has no bounds for overrides.
        options = OverrideOptions(is_unbounded=True) if model.is_override_shape_enabled else None
        texts = _emit(bind(model, options))
        name = module_name(texts["pyx"])
        module = find_module(name, plan)
        if module is not None:
            return module

        def build(directory: Path) -> Path:
            write_files(directory, {f"{name}.{suffix}": text for suffix, text in texts.items()})
            return compile_module(directory / f"{name}.pyx", directory)

        return ModuleCache().use_built(name, build, lambda path: load_module(name, path, plan))
    except (BindingError, CompileError, EmitError, ImportError, OSError) as error:
        raise AccelerateError(f"accelerate: {error}") from error


def _emit(binding: Binding) -> dict[str, str]:
    """Return the module's texts by suffix, without the plan, which is loaded.

    So one module serves all plans of a graph, whatever GPU and cuDNN they are for. Nor with the
    structure, whose names of nodes would make modules of one graph many.
    """
    files = render(replace(binding, plans=(), structure=b""), "graph", _SOURCE)
    return {name.rpartition(".")[2]: text for name, text in files.items()}
