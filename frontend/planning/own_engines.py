"""Engines of the frontend's own: their plans as plan files of kernels."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelPlan, write_kernel_plan
from cudnn_bindgen.codegen.read.dialects.decode import encode_ubjson
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.frontend import Graph, Module, dump, refusals
from cudnn_bindgen.frontend.planning.trace import Trace

# Ids from here on are not cuDNN's: the frontend has kernels of its own.
_FIRST = 10_000


def own_engine(graph: Graph, index: int) -> int | None:
    """Return the engine of a plan if it is one of the frontend's own; None for cuDNN's."""
    plans = getattr(graph, "plans", None)  # from frontend 1.27 on
    if plans is None or 0 <= plans[index].engine_id < _FIRST:
        return None
    return int(plans[index].engine_id)


def trace_plan(graph: Graph, index: int, frontend: Module, trace: Trace) -> bytes:
    """Return the plan file of a plan that is built and the graph's candidate.

    Raises
    ------
    PlanError
        What the engine launches cannot be written down, or depends on scalars of the call.
    """
    text = dump(frontend, graph)
    arguments = bind(read_graph(text)).arguments
    scalars = [argument.name for argument in arguments if argument.role == "scalar"]
    if scalars:
        raise PlanError(
            f"expected a graph without scalars of the call, got {', '.join(scalars)}: an engine of "
            "the frontend's own is written down for one value"
        )
    uids = [argument.uid for argument in arguments]

    def execute(addresses: Mapping[int, int], workspace: int, stream: int) -> None:
        with refusals(frontend, f"plan {index} does not execute without a GPU"):
            graph.execute(dict(addresses), workspace, handle=frontend.Handle(None, 0, stream))

    binaries, launches, maps = trace.record(uids, execute)
    number, knobs = graph.get_engine_and_knobs_at_index(index)
    plan = KernelPlan(
        engine=number,
        name=str(graph.selected_engine.name),
        knobs={kind.name: int(value) for kind, value in knobs.items()},
        sm=trace.device.sm,
        sm_count=trace.device.multi_processor_count,
        binaries=binaries,
        tensor_maps=maps,
        launches=launches,
        workspace_size=int(graph.get_workspace_size()),
    )
    document = msgspec.json.decode(text) | {
        "variant_pack_uids": uids,
        "fe_workspace_size": 0,
        KEY: write_kernel_plan(plan),
    }
    return encode_ubjson(document)
