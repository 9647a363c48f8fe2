"""cuDNN's backend API: declarations only. Values from cudnn_graph.h of cuDNN 9."""
from libc.stdint cimport int64_t

ctypedef int cudnnStatus_t
ctypedef void* cudnnHandle_t
ctypedef void* cudnnBackendDescriptor_t
ctypedef int cudnnBackendDescriptorType_t
ctypedef int cudnnBackendAttributeName_t
ctypedef int cudnnBackendAttributeType_t

cdef enum:
    CUDNN_STATUS_SUCCESS = 0
    CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH = 3007

    CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16

    CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402
    CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION = 405
    CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000
    CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001
    CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003
    CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS = 1010
    CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES = 1011
    CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES = 1012

    CUDNN_TYPE_HANDLE = 0
    CUDNN_TYPE_INT64 = 3
    CUDNN_TYPE_VOID_PTR = 6
    CUDNN_TYPE_CHAR = 24

# Every function that the runtime calls, resolved once a process (library.pyx).
cdef struct CudnnApi:
    size_t (*get_version)() noexcept nogil
    const char* (*get_error_string)(cudnnStatus_t) noexcept nogil
    void (*get_last_error_string)(char*, size_t) noexcept nogil
    cudnnStatus_t (*create)(cudnnHandle_t*) noexcept nogil
    cudnnStatus_t (*destroy)(cudnnHandle_t) noexcept nogil
    cudnnStatus_t (*set_stream)(cudnnHandle_t, void*) noexcept nogil
    cudnnStatus_t (*create_descriptor)(
        cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t*) noexcept nogil
    cudnnStatus_t (*destroy_descriptor)(cudnnBackendDescriptor_t) noexcept nogil
    cudnnStatus_t (*set_attribute)(
        cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
        int64_t, const void*) noexcept nogil
    cudnnStatus_t (*get_attribute)(
        cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
        int64_t, int64_t*, void*) noexcept nogil
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t) noexcept nogil
    cudnnStatus_t (*execute)(
        cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) noexcept nogil
    # NULL before cuDNN 9.23.
    cudnnStatus_t (*get_plan_workspace_size)(
        cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t, size_t*) noexcept nogil
