from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.cudnn cimport CudnnApi, cudnnBackendDescriptor_t
from cudnn_bindgen.runtime.driver cimport CUcontext
from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.status cimport Failure


# A finalized execution plan on one device. Read-only once created, so threads may share it.
cdef struct Plan:
    cudnnBackendDescriptor_t descriptor
    CUcontext context
    int64_t workspace_size       # bytes that cuDNN itself needs

cdef Plan* create_plan(
    const CudnnApi* cudnn, Handle* handle, const char* text, int64_t length, Failure* failure
) noexcept nogil
cdef int destroy_plan(Plan* plan, Failure* failure) noexcept nogil
cdef int launch_plan(
    const CudnnApi* cudnn, Handle* handle, const Plan* plan,
    int64_t count, const int64_t* uids, void* const* pointers, const OverrideValues* overrides,
    void* workspace, Failure* failure
) noexcept nogil
cdef int ask_workspace_size(
    const CudnnApi* cudnn, Handle* handle, const Plan* plan, const OverrideValues* overrides,
    int64_t* size, Failure* failure
) noexcept nogil
