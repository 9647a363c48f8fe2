"""DLPack's structures: declarations only, the layouts are in dlpack.hpp."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

# DLDeviceType of memory that a kernel can use, and of memory that the host can read.
cdef enum:
    DL_CPU = 1
    DL_CUDA = 2
    DL_CUDA_HOST = 3
    DL_CUDA_MANAGED = 13

# DLDataTypeCode.
cdef enum:
    DL_INT = 0
    DL_UINT = 1
    DL_FLOAT = 2
    DL_BFLOAT = 4
    DL_COMPLEX = 5
    DL_BOOL = 6

cdef enum:
    DL_MAJOR_VERSION = 1
    DL_FLAG_READ_ONLY = 1        # of DLManagedTensorVersioned

cdef extern from "dlpack.hpp" nogil:
    struct DLPackVersion:
        uint32_t major
        uint32_t minor

    struct DLDevice:
        int32_t device_type
        int32_t device_id

    struct DLDataType:
        uint8_t code
        uint8_t bits
        uint16_t lanes

    struct DLTensor:
        void* data
        DLDevice device
        int32_t ndim
        DLDataType dtype
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset

    struct DLManagedTensor:
        DLTensor dl_tensor

    struct DLManagedTensorVersioned:
        DLPackVersion version
        void (*deleter)(DLManagedTensorVersioned*) noexcept
        uint64_t flags
        DLTensor dl_tensor

    struct DLPackExchangeAPIHeader:
        DLPackVersion version
        DLPackExchangeAPIHeader* prev_api

    # Functions return 0, or set a Python exception (the allocator: calls set_error).
    struct DLPackExchangeAPI:
        DLPackExchangeAPIHeader header
        int (*managed_tensor_allocator)(
            DLTensor*, DLManagedTensorVersioned**, void*,
            void (*)(void*, const char*, const char*) noexcept
        ) noexcept
        int (*managed_tensor_from_py_object_no_sync)(
            void*, DLManagedTensorVersioned**
        ) noexcept
        int (*managed_tensor_to_py_object_no_sync)(
            DLManagedTensorVersioned*, void**
        ) noexcept
        int (*dltensor_from_py_object_no_sync)(void*, DLTensor*) noexcept
        int (*current_work_stream)(int32_t, int32_t, void**) noexcept
