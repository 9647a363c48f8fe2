from libc.stdint cimport int64_t, uint64_t
from libcpp.atomic cimport atomic
from libcpp.string cimport string
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.handle cimport Handle, Obstacle, Stop
from cudnn_bindgen.runtime.library cimport CUstream, Failure
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport LoadedPlan, Plan
from cudnn_bindgen.runtime.record cimport NodeDescription, PlanRecords
from cudnn_bindgen.runtime.registered cimport Graph, Joined

cdef struct Call

# Enqueues a call with these addresses on a stream that cuDNN has already: what a record captures.
ctypedef int (*Enqueue)(
    Call* call, void** slots, char* workspace, CUstream stream, Failure* failure
) noexcept nogil
# Enqueues a call without a record, if it may be on the stream.
ctypedef Stop (*LaunchDirect)(
    Call* call, CUstream stream, bint in_capture, Obstacle* obstacle
) noexcept nogil


# What a call launches on its device: a graph's plan, or those of a chain's links.
cdef struct Launched:
    uint64_t id                  # what nothing else of the process ever has
    PlanRecords* records
    atomic[int]* stream_use
    int64_t workspace_size
    bint uses_cudnn
    size_t pack_size             # uids of the largest variant pack
    Enqueue enqueue
    LaunchDirect direct
    LoadedPlan* loaded           # of a graph
    Plan* plan
    Joined* joined               # of a chain; else NULL


# One call and the memory that it assembles in; lives on its stack.
cdef struct Call:
    const Launched* what
    Graph* graph
    Handle* handle
    void** slots
    OverrideValues* overrides    # NULL: as declared
    char* workspace
    bint has_workspace           # whether the launch uses any
    void** pack                  # room for the variant pack
    void** addresses             # room for the operands and the workspace
    char* scalars                # room for 8 bytes a scalar


cdef void as_launched(LoadedPlan* loaded, Plan* plan, Launched* what) noexcept nogil
cdef Stop launch(
    const Launched* what, Graph* graph, Handle* handle, void** slots, OverrideValues* overrides,
    char* workspace, CUstream stream, bint may_record, bint checks_only, Obstacle* obstacle
) noexcept nogil
cdef int enqueue_plan(
    LoadedPlan* loaded, Plan* plan, Handle* handle, int count, void** slots,
    OverrideValues* overrides, char* workspace, void** pack, CUstream stream, Failure* failure
) noexcept nogil
cdef void describe_launched(
    const Launched* what, Graph* graph, Handle* handle, vector[NodeDescription]& nodes,
    string& reason
) noexcept nogil
cdef Stop check_strides(
    Graph* graph, const LoadedPlan* loaded, OverrideValues* overrides, Obstacle* obstacle
) noexcept nogil
cdef Stop overridden_size(
    LoadedPlan* loaded, Handle* handle, const Plan* plan, OverrideValues* overrides,
    Obstacle* obstacle
) noexcept nogil

cdef inline Stop needed_size(
    const Launched* what, Handle* handle, OverrideValues* overrides, Obstacle* obstacle
) noexcept nogil:
    """Find the bytes of workspace for a call, whose `overrides` may be NULL: `obstacle.size`."""
    if overrides != NULL:
        return overridden_size(what.loaded, handle, what.plan, overrides, obstacle)
    obstacle.size = what.workspace_size
    return Stop.NOWHERE


cdef str describe_values(Graph* graph, const OverrideValues* overrides)
cdef int overcome(
    Graph* self, Stop stop, Obstacle* obstacle, OverrideValues* overrides,
    int64_t workspace_bytes, CUstream stream
) except -1
