from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.obstacle cimport Obstacle, Stop
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport Plan
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure

cdef Stop check_strides(
    Graph* graph, const LoadedPlan* loaded, OverrideValues* overrides, Obstacle* obstacle
) noexcept nogil
cdef Stop overridden_size(
    LoadedPlan* loaded, Handle* handle, const Plan* plan, OverrideValues* overrides,
    Obstacle* obstacle
) noexcept nogil

cdef inline Stop needed_size(
    LoadedPlan* loaded, Handle* handle, const Plan* plan, OverrideValues* overrides,
    Obstacle* obstacle
) noexcept nogil:
    """Find the bytes of workspace for a call, whose `overrides` may be NULL: `obstacle.size`."""
    if overrides != NULL:
        return overridden_size(loaded, handle, plan, overrides, obstacle)
    obstacle.size = loaded.frontend_workspace + plan.workspace_size
    return Stop.NOWHERE


cdef int refuse_stride(
    Graph* graph, const OverrideValues* overrides, const Obstacle* obstacle
) except -1
cdef int raise_overridden(
    Failure* failure, Graph* graph, const OverrideValues* overrides
) except -1
cdef str describe_values(Graph* graph, const OverrideValues* overrides)
