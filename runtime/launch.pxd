from libc.stdint cimport int64_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.handle cimport Handle, Obstacle, Stop
from cudnn_bindgen.runtime.library cimport CUstream, Failure
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport LoadedPlan, Plan
from cudnn_bindgen.runtime.record cimport NodeDescription
from cudnn_bindgen.runtime.registered cimport Graph

cdef Stop launch_loaded(
    Graph* graph, LoadedPlan* loaded, Handle* handle, Plan* plan, void** slots,
    OverrideValues* overrides, char* workspace, CUstream stream, bint may_record,
    Failure* failure
) noexcept nogil
cdef void describe_loaded(
    Graph* graph, LoadedPlan* loaded, Handle* handle, Plan* plan,
    vector[NodeDescription]& nodes, string& reason
) noexcept nogil
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


cdef str describe_values(Graph* graph, const OverrideValues* overrides)
cdef int overcome(
    Graph* self, Stop stop, Obstacle* obstacle, OverrideValues* overrides,
    int64_t workspace_bytes, CUstream stream
) except -1
