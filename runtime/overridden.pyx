# cython: language_level=3, freethreading_compatible=True
"""What a plan says to a call's overrides: alignment of strides, and the workspace they need."""
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.library cimport cudnn_api
from cudnn_bindgen.runtime.loaded cimport LoadedPlan, has_sum
from cudnn_bindgen.runtime.obstacle cimport Obstacle, Stop
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport Plan, ask_workspace_size
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure, raise_cudnn

from cudnn_bindgen.runtime.errors import CudnnError, OperandError

cdef enum:
    # The frontend asks from here on (graph_interface.h); the function may be in older libraries.
    SIZE_SINCE = 92300


cdef Stop check_strides(
    Graph* graph, const LoadedPlan* loaded, OverrideValues* overrides, Obstacle* obstacle
) noexcept nogil:
    """Find a stride that breaks an alignment the plan counts on, as the frontend does.

    Each axis counts that has more than one element and a stride other than 1 (node_interface.h,
    misaligned_stride_dimension). Asked once for each value.
    """
    cdef size_t index
    cdef int slot, axis
    cdef int64_t bits
    if overrides.checked_for == loaded.id:
        return Stop.NOWHERE
    for index in range(loaded.aligned.size()):
        slot = loaded.aligned[index].slot
        if slot >= graph.operands or not overrides.has(slot):
            continue
        bits = graph.overrides.shapes[slot].bits
        for axis in range(<int>overrides.dim(slot).size()):
            if overrides.dim(slot)[axis] <= 1 or overrides.stride(slot)[axis] == 1:
                continue
            if overrides.stride(slot)[axis] * bits % (8 * loaded.aligned[index].alignment):
                obstacle.slot = slot
                obstacle.axis = axis
                obstacle.alignment = loaded.aligned[index].alignment
                return Stop.AT_STRIDE
    overrides.checked_for = loaded.id
    return Stop.NOWHERE


cdef Stop overridden_size(
    LoadedPlan* loaded, Handle* handle, const Plan* plan, OverrideValues* overrides,
    Obstacle* obstacle
) noexcept nogil:
    """Find the bytes of workspace for a call; asks cuDNN once for each value, 9.23 and newer."""
    cdef int64_t size = 0
    if overrides.sized_for == loaded.id and overrides.sized_on == handle.device:
        obstacle.size = overrides.workspace_size
        return Stop.NOWHERE
    if cudnn_api().get_plan_workspace_size == NULL or cudnn_api().get_version() < SIZE_SINCE:
        size = plan.workspace_size
    elif not loaded.sizes.find(handle.device, overrides[0], &size):
        if ask_workspace_size(
                cudnn_api(), handle, plan, overrides, &size, &obstacle.failure) < 0:
            return Stop.AT_FAILURE
        if not has_sum(loaded, size):
            obstacle.frontend_size = loaded.frontend_workspace
            obstacle.size = size
            return Stop.AT_LARGE_WORKSPACE
        loaded.sizes.keep(handle.device, overrides[0], size)
    obstacle.size = overrides.workspace_size = loaded.frontend_workspace + size
    overrides.sized_for = loaded.id
    overrides.sized_on = handle.device
    return Stop.NOWHERE


cdef int raise_overridden(
    Failure* failure, Graph* graph, const OverrideValues* overrides
) except -1:
    """Raise what cuDNN said, with the values that were asked of it."""
    try:
        return raise_cudnn(failure.call, failure.status, graph.owner)
    except CudnnError as error:
        error.add_overrides(describe_values(graph, overrides))
        raise


cdef str describe_values(Graph* graph, const OverrideValues* overrides):
    """`q=((2, 8), (8, 1)), ...`: dims and strides of what is overridden."""
    return ", ".join(
        f"{(<tuple>graph.override_shapes)[slot][0]}="
        f"({tuple(overrides.dim(slot))}, {tuple(overrides.stride(slot))})"
        for slot in range(graph.operands)
        if overrides.has(slot)
    )


cdef int refuse_stride(
    Graph* graph, const OverrideValues* overrides, const Obstacle* obstacle
) except -1:
    """Raise what check_strides has found."""
    name, axes, _ = (<tuple>graph.override_shapes)[obstacle.slot]
    raise OperandError(
        f"{name}.{axes[obstacle.axis]}",
        f"a stride of a multiple of {obstacle.alignment} bytes",
        f"{overrides.stride(obstacle.slot)[obstacle.axis]} elements",
    )
