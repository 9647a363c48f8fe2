"""`accelerate(graph)`: a live, built graph of NVIDIA's frontend → an object with its `execute`."""

from __future__ import annotations

import hashlib
import sys
import threading
import warnings
import weakref
from typing import Any

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.data import data_of
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.dialects.python_plan import recognise as is_python_plan
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.frontend.accelerating.accelerated import Accelerated
from cudnn_bindgen.frontend.accelerating.errors import AccelerateError, AccelerateWarning
from cudnn_bindgen.module_data import RUNTIME_ABI
from cudnn_bindgen.runtime.binding import Binding
from cudnn_bindgen.runtime.errors import BindingError

_FILE = "graph.serialize()"

_lock = threading.RLock()  # a finalizer may come in here, too
# By the digest of a plan file: what launches it.
_bindings: weakref.WeakValueDictionary[bytes, Binding] = weakref.WeakValueDictionary()


def accelerate(
    graph: Any, *, handle: Any = None, check: bool = False, fallback: bool = False
) -> Any:
    """Return an object that executes a graph as the graph does, in less time.

    To be called on the device that the graph is for: its plan is created there.

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
        The graph cannot be accelerated.
    """
    if isinstance(graph, Accelerated):
        return graph
    try:
        frontend = _frontend_of(graph)
        plan_index, plan, model = _read(graph, frontend)
        module = _binding_of(plan, model)
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
    if is_python_plan(plan):
        plan = _trace(plan, getattr(graph, "selected_engine", None))
    try:
        model = read_graph(plan, _FILE)
    except GraphFormatError as error:
        raise AccelerateError(f"accelerate: {error}") from error
    if model.has_kernels and model.is_ragged:
        raise AccelerateError(
            "accelerate: expected operands without ragged offsets, because the frontend's own "
            "engine launches with the size of their memory: plan the graph with --engine"
        )
    if model.plan is None:
        raise AccelerateError("accelerate: the graph has no plan: build it first")
    return plan_index, plan, model


def _trace(plan: bytes, engine: Any) -> bytes:
    """Return the plan of kernels of an engine of the frontend's own, or what the cache has of it.

    It is traced in a process of its own, which takes seconds. What this process has compiled may be
    run there.
    """
    # Not above: it is rarely needed.
    from cudnn_bindgen.frontend.planning.deviceless import Task, own_cudnn, use_cache
    from cudnn_bindgen.frontend.planning.driver import read_here

    try:
        trusting = ReadOptions(trusts_code=True)
        task = Task(graph=plan, file=_FILE, reading=trusting, properties=read_here().text)
        answer = use_cache({0: task}, own_cudnn())[0]
        if isinstance(answer, PlanError):
            raise answer
    except PlanError as error:
        name = getattr(engine, "name", "one")
        raise AccelerateError(
            f"accelerate: the graph is served by {name}, the frontend's own engine, which is not "
            f"traced: {error}"
        ) from error
    return answer.plan


def _binding_of(plan: bytes, model: Graph) -> Binding:
    """Return what launches this plan: the same for all graphs of the process that have it."""
    digest = hashlib.sha256(plan).digest()
    with _lock:
        found = _bindings.get(digest)
        if found is not None and found.is_open:
            return found
        # The frontend has no bounds for overrides.
        options = OverrideOptions(is_unbounded=True) if model.is_override_shape_enabled else None
        try:
            data = data_of(bind(model, options), "accelerate")
            made = Binding("accelerate", RUNTIME_ABI, data)
            made.load_plan()
        except (BindingError, EmitError) as error:
            raise AccelerateError(f"accelerate: {error}") from error
        _bindings[digest] = made
        return made
