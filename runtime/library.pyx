# cython: language_level=3, freethreading_compatible=True
"""Finding libcudnn and libcuda at run time, so that nothing of CUDA is needed to build.

The first call that needs a library resolves it, once a process: the one that is loaded already
(PyTorch loads one, and two cuDNNs in a process do not mix), else the first of LD_LIBRARY_PATH, else
what cuda-pathfinder finds (site-packages, conda, the loader's path, CUDA_HOME).
"""
import os
import threading

from libcpp.atomic cimport atomic

from cudnn_bindgen.runtime.cudnn cimport CudnnApi
from cudnn_bindgen.runtime.driver cimport DriverApi

from cudnn_bindgen.runtime.errors import LibraryNotFoundError

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char*, int)
    void* dlsym(void*, const char*)
    char* dlerror()
    enum:
        RTLD_NOW
        RTLD_NOLOAD

cdef extern from * nogil:
    """
    #include <pthread.h>

    #include <atomic>

    static std::atomic<bool> forked{false};

    static void watch_forks() {
        pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
    }
    """
    const atomic[bint] forked
    void watch_forks()

CUDNN = "libcudnn.so.9"
DRIVER = "libcuda.so.1"

# What runs while a thread looks, a signal handler or a finalizer, may need a library, too.
_lock = threading.RLock()
cdef CudnnApi _cudnn
cdef DriverApi _driver
# Set once, after every function pointer of the table is.
cdef atomic[const CudnnApi*] _cudnn_ready
cdef atomic[const DriverApi*] _driver_ready


cdef const CudnnApi* cudnn_api() except NULL nogil:
    """cuDNN's functions. Raises LibraryNotFoundError."""
    cdef const CudnnApi* api = _cudnn_ready.load()
    if api != NULL:
        return api
    with gil:
        with _lock:
            _resolve_cudnn()
    return _cudnn_ready.load()


cdef const DriverApi* driver_api() except NULL nogil:
    """The driver's functions. Raises LibraryNotFoundError."""
    cdef const DriverApi* api = _driver_ready.load()
    if api != NULL:
        return api
    with gil:
        with _lock:
            _resolve_driver()
    return _driver_ready.load()


cdef bint is_forked() noexcept nogil:
    """Whether the parent of this process had initialised CUDA, which is unusable here then.

    What the parent made stays as it is: no call can free it, and the parent uses it.
    """
    return forked.load()


def cudnn_version():
    """Version of the cuDNN in use, such as 91900 for 9.19.0; loads it."""
    return cudnn_api().get_version()


cdef void* _open(str path, int flags) except? NULL:
    return dlopen(os.fsencode(path), RTLD_NOW | flags)


cdef void* _find_cudnn() except NULL:
    cdef void* library = _open(CUDNN, RTLD_NOLOAD)
    looked = [f"the process: no {CUDNN} loaded"]
    if library != NULL:
        return library
    for directory in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        path = os.path.join(directory, CUDNN)
        if directory and os.path.exists(path):
            library = _open(path, 0)
            if library != NULL:
                return library
            looked.append(f"LD_LIBRARY_PATH: {dlerror().decode(errors='replace')}")
        elif directory:
            looked.append(f"LD_LIBRARY_PATH: no {path}")
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    try:
        library = _open(load_nvidia_dynamic_lib("cudnn").abs_path, 0)
        if library != NULL:
            return library
        looked.append(dlerror().decode(errors="replace"))
    except (DynamicLibNotFoundError, RuntimeError) as error:
        looked.append(f"cuda-pathfinder: {' '.join(str(error).split())}")
    raise LibraryNotFoundError(
        "no cuDNN 9 found; install nvidia-cudnn-cu12 or nvidia-cudnn-cu13. Looked in: "
        + "; ".join(looked)
    )


cdef void* _symbol(void* library, bytes name, str what) except NULL:
    cdef void* address = dlsym(library, name)
    if address == NULL:
        raise LibraryNotFoundError(f"{what} has no {name.decode()}: it is too old")
    return address


cdef void* _workspace_query(void* library) noexcept:
    """The function that cuDNN has since 9.23, else NULL."""
    cdef void* graph
    cdef void* found = dlsym(library, b"cudnnGetExecutionPlanWorkspaceSize")
    if found == NULL:
        # Where PyTorch loads its own libcudnn.so.9 in front of a newer cuDNN, that one is a shim
        # over the library below, which has the function.
        graph = dlopen(b"libcudnn_graph.so.9", RTLD_NOW | RTLD_NOLOAD)
        if graph != NULL:
            found = dlsym(graph, b"cudnnGetExecutionPlanWorkspaceSize")
    return found


cdef int _resolve_cudnn() except -1:
    if _cudnn_ready.load() != NULL:
        return 0
    cdef void* library = _find_cudnn()
    if _cudnn_ready.load() != NULL:
        return 0
    cdef CudnnApi* api = &_cudnn
    (<void**>&api.get_version)[0] = _symbol(library, b"cudnnGetVersion", CUDNN)
    (<void**>&api.get_error_string)[0] = _symbol(library, b"cudnnGetErrorString", CUDNN)
    (<void**>&api.get_last_error_string)[0] = _symbol(library, b"cudnnGetLastErrorString", CUDNN)
    (<void**>&api.create)[0] = _symbol(library, b"cudnnCreate", CUDNN)
    (<void**>&api.destroy)[0] = _symbol(library, b"cudnnDestroy", CUDNN)
    (<void**>&api.set_stream)[0] = _symbol(library, b"cudnnSetStream", CUDNN)
    (<void**>&api.create_descriptor)[0] = _symbol(library, b"cudnnBackendCreateDescriptor", CUDNN)
    (<void**>&api.destroy_descriptor)[0] = _symbol(
        library, b"cudnnBackendDestroyDescriptor", CUDNN)
    (<void**>&api.set_attribute)[0] = _symbol(library, b"cudnnBackendSetAttribute", CUDNN)
    (<void**>&api.get_attribute)[0] = _symbol(library, b"cudnnBackendGetAttribute", CUDNN)
    (<void**>&api.finalize)[0] = _symbol(library, b"cudnnBackendFinalize", CUDNN)
    (<void**>&api.execute)[0] = _symbol(library, b"cudnnBackendExecute", CUDNN)
    (<void**>&api.get_plan_workspace_size)[0] = _workspace_query(library)
    _cudnn_ready.store(api)
    return 0


cdef int _resolve_driver() except -1:
    cdef void* library = _open(DRIVER, 0)
    if _driver_ready.load() != NULL:
        return 0
    if library == NULL:
        raise LibraryNotFoundError(
            f"no NVIDIA driver: {dlerror().decode(errors='replace')}. A generated module can be "
            "built and imported without a GPU, not called"
        )
    cdef DriverApi* api = &_driver
    (<void**>&api.init)[0] = _symbol(library, b"cuInit", DRIVER)
    (<void**>&api.get_error_name)[0] = _symbol(library, b"cuGetErrorName", DRIVER)
    (<void**>&api.device_get)[0] = _symbol(library, b"cuDeviceGet", DRIVER)
    (<void**>&api.device_get_attribute)[0] = _symbol(library, b"cuDeviceGetAttribute", DRIVER)
    (<void**>&api.primary_context_retain)[0] = _symbol(
        library, b"cuDevicePrimaryCtxRetain", DRIVER)
    (<void**>&api.context_get_current)[0] = _symbol(library, b"cuCtxGetCurrent", DRIVER)
    (<void**>&api.context_set_current)[0] = _symbol(library, b"cuCtxSetCurrent", DRIVER)
    (<void**>&api.context_get_device)[0] = _symbol(library, b"cuCtxGetDevice", DRIVER)
    (<void**>&api.stream_get_context)[0] = _symbol(library, b"cuStreamGetCtx", DRIVER)
    (<void**>&api.stream_get_flags)[0] = _symbol(library, b"cuStreamGetFlags", DRIVER)
    (<void**>&api.user_objects.get_capture_info)[0] = _symbol(
        library, b"cuStreamGetCaptureInfo_v2", DRIVER)
    (<void**>&api.user_objects.create)[0] = _symbol(library, b"cuUserObjectCreate", DRIVER)
    (<void**>&api.user_objects.release)[0] = _symbol(library, b"cuUserObjectRelease", DRIVER)
    (<void**>&api.user_objects.retain)[0] = _symbol(library, b"cuGraphRetainUserObject", DRIVER)
    (<void**>&api.stream_is_capturing)[0] = _symbol(library, b"cuStreamIsCapturing", DRIVER)
    (<void**>&api.stream_get_id)[0] = dlsym(library, b"cuStreamGetId")
    (<void**>&api.exchange_capture_mode)[0] = _symbol(
        library, b"cuThreadExchangeStreamCaptureMode", DRIVER)
    (<void**>&api.memory_allocate)[0] = _symbol(library, b"cuMemAlloc_v2", DRIVER)
    (<void**>&api.memory_free)[0] = _symbol(library, b"cuMemFree_v2", DRIVER)
    (<void**>&api.copy_to_device)[0] = _symbol(library, b"cuMemcpyHtoDAsync_v2", DRIVER)
    (<void**>&api.set_bytes)[0] = _symbol(library, b"cuMemsetD8Async", DRIVER)
    # Where this fails, as without a GPU, current_handle() tries again and says so.
    api.init(0)
    watch_forks()
    _driver_ready.store(api)
    return 0
