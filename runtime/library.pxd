"""cuDNN and the CUDA driver: a table of functions each, what a failed call says, and captures.

No headers of either are needed. Values are from cudnn_graph.h of cuDNN 9, and from cuda.h of CUDA
12 and 13; the C++ is in driver.hpp, capture.hpp and kept.hpp.
"""
from libc.stdint cimport int64_t, uint64_t

ctypedef int CUresult
ctypedef int CUdevice
ctypedef void* CUcontext
ctypedef void* CUstream
ctypedef uint64_t CUdeviceptr

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

# Every function of cuDNN that the runtime calls, resolved once a process.
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

cdef enum:
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_INITIALIZED = 3

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76

    CU_STREAM_NON_BLOCKING = 1

# The two stream handles that are no pointers (cuda.h): legacy and per-thread default stream.
cdef enum:
    CU_STREAM_LEGACY = 1
    CU_STREAM_PER_THREAD = 2

cdef extern from "driver.hpp" namespace "cudnn_bindgen" nogil:
    # The functions that are called from Cython; launch records call more.
    cppclass DriverApi:
        CUresult (*init)(unsigned int) noexcept
        CUresult (*get_error_name)(CUresult, const char**) noexcept
        CUresult (*device_get)(CUdevice*, int) noexcept
        CUresult (*device_get_attribute)(int*, int, CUdevice) noexcept
        CUresult (*primary_context_retain)(CUcontext*, CUdevice) noexcept
        CUresult (*context_get_current)(CUcontext*) noexcept
        CUresult (*context_set_current)(CUcontext) noexcept
        CUresult (*context_get_device)(CUdevice*) noexcept
        CUresult (*stream_get_context)(CUstream, CUcontext*) noexcept
        CUresult (*stream_get_flags)(CUstream, unsigned int*) noexcept
        CUresult (*stream_get_id)(CUstream, uint64_t*) noexcept  # NULL before CUDA 12.0
        CUresult (*memory_allocate)(CUdeviceptr*, size_t) noexcept
        CUresult (*memory_free)(CUdeviceptr) noexcept
        CUresult (*copy_to_device)(CUdeviceptr, const void*, size_t, CUstream) noexcept
        CUresult (*set_bytes)(CUdeviceptr, unsigned char, size_t, CUstream) noexcept
        const char* resolve(void* library)

cdef extern from "capture.hpp" namespace "cudnn_bindgen" nogil:
    enum: NOT_CAPTURING "cudnn_bindgen::kNotCapturing"
    enum: CAPTURING "cudnn_bindgen::kCapturing"

    int capture_state(const DriverApi* driver, CUstream stream)
    int relax_capture(const DriverApi* driver)
    void restore_capture(const DriverApi* driver, int mode)
    CUcontext enter_context(const DriverApi* driver, CUcontext context)
    void leave_context(const DriverApi* driver, CUcontext context, CUcontext before)

cdef extern from "kept.hpp" namespace "cudnn_bindgen" nogil:
    uint64_t capture_id(const DriverApi& driver, CUstream stream)

    cppclass Kept:
        Kept(void* what, void (*unneeded)(void* what) noexcept nogil)
        int hold(const DriverApi& driver, CUstream stream)
        bint let_go()

    cppclass Unneeded:
        void add(void* what)
        void* take()


# A failed call as a value: for code that must not take the GIL where it fails.
cdef struct Failure:
    const char* call
    int status
    bint of_driver               # a CUresult; else a cudnnStatus_t

cdef const CudnnApi* cudnn_api() except NULL nogil
cdef const DriverApi* driver_api() except NULL nogil
cdef bint is_forked() noexcept nogil
cdef int check_driver(const char* call, CUresult status) except -1 nogil
# `owner`: (module, fingerprint) of the graph the call was made for, a borrowed reference or NULL.
cdef int raise_cudnn(const char* call, int status, void* owner) except -1 nogil
