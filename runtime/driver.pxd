"""The CUDA driver API: declarations only. Values from cuda.h of CUDA 12 and 13."""
from libc.stdint cimport uint64_t

from cudnn_bindgen.runtime.kept cimport UserObjectCalls

ctypedef int CUresult
ctypedef int CUdevice
ctypedef void* CUcontext
ctypedef void* CUstream
ctypedef uint64_t CUdeviceptr

cdef enum:
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76

    CU_STREAM_CAPTURE_MODE_RELAXED = 2
    CU_STREAM_CAPTURE_STATUS_NONE = 0
    CU_STREAM_NON_BLOCKING = 1

# The two stream handles that are no pointers (cuda.h): legacy and per-thread default stream.
cdef enum:
    CU_STREAM_LEGACY = 1
    CU_STREAM_PER_THREAD = 2

# Every function that the runtime calls, resolved once a process (library.pyx).
cdef struct DriverApi:
    CUresult (*init)(unsigned int) noexcept nogil
    CUresult (*get_error_name)(CUresult, const char**) noexcept nogil
    CUresult (*device_get)(CUdevice*, int) noexcept nogil
    CUresult (*device_get_attribute)(int*, int, CUdevice) noexcept nogil
    CUresult (*primary_context_retain)(CUcontext*, CUdevice) noexcept nogil
    CUresult (*context_get_current)(CUcontext*) noexcept nogil
    CUresult (*context_set_current)(CUcontext) noexcept nogil
    CUresult (*context_get_device)(CUdevice*) noexcept nogil
    CUresult (*stream_get_context)(CUstream, CUcontext*) noexcept nogil
    CUresult (*stream_get_flags)(CUstream, unsigned int*) noexcept nogil
    CUresult (*stream_is_capturing)(CUstream, int*) noexcept nogil
    UserObjectCalls user_objects
    # Since CUDA 12.0; NULL before.
    CUresult (*stream_get_id)(CUstream, uint64_t*) noexcept nogil
    CUresult (*exchange_capture_mode)(int*) noexcept nogil
    CUresult (*memory_allocate)(CUdeviceptr*, size_t) noexcept nogil
    CUresult (*memory_free)(CUdeviceptr) noexcept nogil
    CUresult (*copy_to_device)(CUdeviceptr, const void*, size_t, CUstream) noexcept nogil
    CUresult (*set_bytes)(CUdeviceptr, unsigned char, size_t, CUstream) noexcept nogil
