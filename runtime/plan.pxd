from libc.stdint cimport int64_t
from libcpp.atomic cimport atomic

from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.library cimport CUcontext, CudnnApi, Failure, cudnnBackendDescriptor_t
from cudnn_bindgen.runtime.override_values cimport OverrideValues


# A finalized execution plan on one device. Threads share it: all but `stream_use` is read-only once
# it is created.
cdef cppclass Plan:
    cudnnBackendDescriptor_t descriptor
    CUcontext context
    int64_t workspace_size       # bytes that cuDNN itself needs
    atomic[int] stream_use       # of records.hpp: what the first call saw

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
