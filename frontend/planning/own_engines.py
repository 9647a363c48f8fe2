"""Engines of the frontend's own: their plans as plan files of kernels."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from cudnn_bindgen.codegen.bind.binding import Argument, bind
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelPlan, write_kernel_plan
from cudnn_bindgen.codegen.read.dialects.decode import encode_ubjson
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.frontend import Graph, Module, dump, refusals
from cudnn_bindgen.frontend.planning.trace import Trace

# Ids from here on are not cuDNN's: the frontend has kernels of its own.
_FIRST = 10_000

# The frontend's names of the types that packed operands have.
_TYPES = {"BFLOAT16": "bfloat16", "HALF": "float16", "FLOAT": "float32"}


def own_engine(graph: Graph, index: int) -> int | None:
    """Return the engine of a plan if it is one of the frontend's own; None for cuDNN's."""
    plans = getattr(graph, "plans", None)  # from frontend 1.27 on
    if plans is None or 0 <= plans[index].engine_id < _FIRST:
        return None
    return int(plans[index].engine_id)


def trace_plan(
    graph: Graph, index: int, frontend: Module, trace: Trace, *, takes_packed: bool
) -> bytes:
    """Return the plan file of a plan that is built and the graph's candidate.

    `takes_packed`: packed operands, those with ragged offsets, may be asked to be as large as the
    graph declares, because the engine launches with the size of their memory.

    Raises
    ------
    PlanError
        What the engine launches cannot be written down, or depends on scalars of the call.
    """
    text = dump(frontend, graph)
    structure = read_graph(text)
    arguments = bind(structure).arguments
    scalars = [argument.name for argument in arguments if argument.role == "scalar"]
    if scalars:
        raise PlanError(
            f"expected a graph without scalars of the call, got {', '.join(scalars)}: an engine of "
            "the frontend's own is written down for one value"
        )
    uids = [argument.uid for argument in arguments]
    offset = {tensor.uid for tensor in structure.tensors if tensor.ragged_offset_uid is not None}
    packed = {argument.uid: argument for argument in arguments if argument.uid in offset}
    if packed and not takes_packed:
        raise PlanError(
            "expected operands without ragged offsets, because the engine launches with the size "
            "of their memory",
            hint=f"--engine {graph.selected_engine.engine_id} takes it as large as declared",
        )

    size = int(graph.get_workspace_size())
    views = importlib.import_module(f"{frontend.__name__}.frost.buffers")

    def execute(addresses: Mapping[int, int], workspace: int, stream: int) -> None:
        buffers = {
            uid: _packed(views, packed[uid], address) if uid in packed else address
            for uid, address in addresses.items()
        }
        memory = views.DeviceView(workspace, [max(1, size)], "uint8", 0)
        with refusals(frontend, f"plan {index} does not execute without a GPU"):
            graph.execute(buffers, memory, handle=frontend.Handle(None, 0, stream))

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
        workspace_size=size,
    )
    document = msgspec.json.decode(text) | {
        "variant_pack_uids": uids,
        "fe_workspace_size": 0,
        KEY: write_kernel_plan(plan),
    }
    return encode_ubjson(document)


def _packed(views: Any, argument: Argument, address: int) -> Any:
    """Return the frontend's view of a packed operand as large as declared: tokens come first."""
    batch, *dim = argument.dim
    rows = sorted(zip(argument.stride[1:], dim, strict=True), reverse=True)
    shape = [extent for _, extent in rows if extent > 1] or [1]
    shape[0] *= batch
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if (
        argument.data_type not in _TYPES
        or strides != [stride for stride, extent in rows if extent > 1]
        or argument.stride[0] * batch != math.prod(shape)
    ):
        raise PlanError(
            f"expected packed tokens without gaps of {', '.join(_TYPES)}, got {argument.name}: "
            f"{argument.data_type} {list(argument.dim)} with strides {list(argument.stride)}"
        )
    return views.DeviceView(address, shape, _TYPES[argument.data_type], 0)
