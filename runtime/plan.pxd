"""PlanSet ⊃ LoadedPlan ⊃ Plan: of a graph, of a plan file, of a device."""
from libc.stdint cimport int64_t, uint64_t
from libcpp.atomic cimport atomic
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.kernel_plan cimport KernelPlan
from cudnn_bindgen.runtime.library cimport (
    CUcontext, CudnnApi, cudnnBackendDescriptor_t, CUstream, DriverApi, Failure, Kept,
)
from cudnn_bindgen.runtime.override_values cimport OverrideSizes, OverrideValues
from cudnn_bindgen.runtime.record cimport PlanRecords

cdef enum:
    MAX_DEVICES = 64


# A finalized execution plan on one device. Threads share it: all but `stream_use` is read-only once
# it is created.
cdef cppclass Plan:
    cudnnBackendDescriptor_t descriptor  # NULL for a plan of kernels
    vector[void*] functions      # of such a plan
    CUcontext context
    int64_t workspace_size       # bytes that cuDNN itself needs
    atomic[int] stream_use       # of records.hpp: what the first call saw


cdef struct WorkspacePart:
    int operation                # 0 copy to device, 1 set to zero, 2 address only
    int64_t offset               # bytes from the start of the workspace
    int64_t size                 # bytes
    const float* values          # for a copy; never freed


cdef struct Aligned:
    int slot
    int64_t alignment            # bytes


cdef struct Replacement:
    int source                   # slot
    int64_t offset               # bytes


# A plan file's plan, and the execution plans made from it so far, by device ordinal. Immutable but
# for `by_device`, `sizes` and `records`; owned by the graph that it is loaded into, and by the CUDA
# graphs that its calls were captured into.
cdef cppclass LoadedPlan:
    uint64_t id                  # no other plan of the process ever has it
    void* text                   # a reference to the bytes object
    KernelPlan* kernels          # in its place; NULL for a plan of cuDNN's
    int cudnn_version
    int sm
    int sm_count                 # 0: not known
    int64_t frontend_workspace
    # The variant pack: kept slots, constants, workspace parts, replacement targets, in this order.
    vector[int64_t] uids
    bint keeps_all               # cuDNN takes every slot, and `kept` is empty
    vector[int] kept             # else the slots that it takes
    vector[uint64_t] constants   # bits, 8 bytes each
    vector[WorkspacePart] parts
    vector[Replacement] replacements
    vector[Aligned] aligned      # operands of which overridden strides must keep an alignment
    OverrideSizes sizes          # of the workspace, under overrides
    atomic[Plan*] by_device[MAX_DEVICES]
    PlanRecords records          # launch records of it, on all handles
    Kept* held                   # by captured CUDA graphs, too


# What a plan is chosen by.
cdef struct DeviceKind:
    int sm
    int sm_count
    int cudnn_version


# The plans of one graph for several kinds of device, and which one each device has. Owned by the
# graph that it is loaded into.
cdef cppclass PlanSet:
    vector[LoadedPlan*] plans    # grows where there is a maker, under `Graph.building`
    void* maker                  # a reference to a PlanMaker; NULL: a missing plan is an error
    # By device ordinal; NULL: not used there yet. A plan stands here once it exists on the device.
    atomic[LoadedPlan*] chosen[MAX_DEVICES]


cdef uint64_t next_id() noexcept nogil
cdef PlanSet* load_set(
    tuple owner, tuple operands, tuple plans, object make_missing
) except NULL
cdef LoadedPlan* find_plan(const PlanSet* plans, DeviceKind kind) noexcept nogil
cdef DeviceKind kind_of(const LoadedPlan* plan) noexcept nogil
cdef vector[DeviceKind] kinds_of(const PlanSet* plans) noexcept nogil
cdef int unload_set(PlanSet* plans, Failure* failure) noexcept nogil


cdef inline int64_t most_workspace() noexcept nogil:
    """More bytes than any device has; sums of a few of these fit int64."""
    return <int64_t>1 << 60


cdef inline bint has_sum(const LoadedPlan* loaded, int64_t size) noexcept nogil:
    """Whether the frontend's workspace and `size` bytes of cuDNN's can be added up."""
    return 0 <= size <= most_workspace() - loaded.frontend_workspace


cdef int check_size(object module, object size) except -1
cdef LoadedPlan* load_parts(str module, str fingerprint, tuple operands, object parts) except NULL
cdef int fill_pack(
    LoadedPlan* loaded, int count, void** slots, char* workspace, void** pack
) noexcept nogil
cdef int prepare_workspace(
    const LoadedPlan* loaded, const DriverApi* driver, char* workspace, CUstream stream,
    Failure* failure
) noexcept nogil
cdef int unload(LoadedPlan* loaded, Failure* failure) noexcept nogil
cdef int keep_for_capture(LoadedPlan* loaded, CUstream stream, Failure* failure) noexcept nogil
cdef void destroy_unneeded_plans() noexcept nogil

cdef Plan* create_plan(
    const CudnnApi* cudnn, Handle* handle, const char* text, int64_t length, Failure* failure
) noexcept nogil
cdef Plan* create_kernels(
    const LoadedPlan* loaded, Handle* handle, Failure* failure
) noexcept nogil
cdef int destroy_plan(Plan* plan, Failure* failure) noexcept nogil
cdef int launch_own(
    const LoadedPlan* loaded, const Plan* plan, void** slots, char* workspace, CUstream stream,
    Failure* failure
) noexcept nogil
cdef int launch_plan(
    const CudnnApi* cudnn, Handle* handle, const Plan* plan,
    int64_t count, const int64_t* uids, void* const* pointers, const OverrideValues* overrides,
    void* workspace, Failure* failure
) noexcept nogil
cdef int ask_workspace_size(
    const CudnnApi* cudnn, Handle* handle, const Plan* plan, const OverrideValues* overrides,
    int64_t* size, Failure* failure
) noexcept nogil
