# cython: language_level=3, freethreading_compatible=True
"""Finding libcudnn and libcuda at run time, so that nothing of CUDA is needed to build.

Also what a failed call of theirs says: the exception that names it.

The first call that needs a library resolves it, once a process: the one that is loaded already
(PyTorch loads one, and two cuDNNs in a process do not mix), else the first of LD_LIBRARY_PATH, else
what cuda-pathfinder finds (site-packages, conda, the loader's path, CUDA_HOME).
"""
import os
from _thread import RLock  # threading has the same, and takes 2 ms to import

from libcpp.atomic cimport atomic

from cudnn_bindgen.runtime.errors import CudnnError, DriverError, LibraryNotFoundError

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
_lock = RLock()
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


cdef object _too_old(str library, const char* function):
    return LibraryNotFoundError(f"{library} has no {function.decode()}: it is too old")


cdef void* _symbol(void* library, const char* name) except NULL:
    cdef void* address = dlsym(library, name)
    if address == NULL:
        raise _too_old(CUDNN, name)
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
    (<void**>&api.get_version)[0] = _symbol(library, b"cudnnGetVersion")
    (<void**>&api.get_error_string)[0] = _symbol(library, b"cudnnGetErrorString")
    (<void**>&api.get_last_error_string)[0] = _symbol(library, b"cudnnGetLastErrorString")
    (<void**>&api.create)[0] = _symbol(library, b"cudnnCreate")
    (<void**>&api.destroy)[0] = _symbol(library, b"cudnnDestroy")
    (<void**>&api.set_stream)[0] = _symbol(library, b"cudnnSetStream")
    (<void**>&api.create_descriptor)[0] = _symbol(library, b"cudnnBackendCreateDescriptor")
    (<void**>&api.destroy_descriptor)[0] = _symbol(library, b"cudnnBackendDestroyDescriptor")
    (<void**>&api.set_attribute)[0] = _symbol(library, b"cudnnBackendSetAttribute")
    (<void**>&api.get_attribute)[0] = _symbol(library, b"cudnnBackendGetAttribute")
    (<void**>&api.finalize)[0] = _symbol(library, b"cudnnBackendFinalize")
    (<void**>&api.execute)[0] = _symbol(library, b"cudnnBackendExecute")
    (<void**>&api.get_plan_workspace_size)[0] = _workspace_query(library)
    _cudnn_ready.store(api)
    return 0


cdef int _resolve_driver() except -1:
    cdef const char* missing
    cdef void* library = _open(DRIVER, 0)
    if _driver_ready.load() != NULL:
        return 0
    if library == NULL:
        raise LibraryNotFoundError(
            f"no NVIDIA driver: {dlerror().decode(errors='replace')}. A generated module can be "
            "built and imported without a GPU, not called"
        )
    missing = _driver.resolve(library)
    if missing != NULL:
        raise _too_old(DRIVER, missing)
    # Where this fails, as without a GPU, current_handle() tries again and says so.
    _driver.init(0)
    watch_forks()
    _driver_ready.store(&_driver)
    return 0


cdef int check_driver(const char* call, CUresult status) except -1 nogil:
    """Raise DriverError unless `status` is success."""
    if status == CUDA_SUCCESS:
        return 0
    with gil:
        raise _driver_error(call, status)


cdef int raise_cudnn(const char* call, int status, void* owner) except -1 nogil:
    """Raise CudnnError for a status that is not success."""
    with gil:
        raise _cudnn_error(call, status, <object>owner if owner != NULL else ("", ""))


cdef object _driver_error(const char* call, CUresult status):
    cdef const char* name = NULL
    cdef const DriverApi* api = driver_api()
    if api.get_error_name(status, &name) != CUDA_SUCCESS or name == NULL:
        return DriverError(call.decode(), status, "unknown CUresult")
    return DriverError(call.decode(), status, name.decode())


cdef object _cudnn_error(const char* call, int status, tuple owner):
    cdef char detail[1024]
    cdef const CudnnApi* api = cudnn_api()
    detail[0] = 0
    api.get_last_error_string(detail, sizeof(detail))
    detail[sizeof(detail) - 1] = 0
    said = (<bytes>detail).decode(errors="replace").strip()
    return CudnnError(
        call.decode(), status, api.get_error_string(status).decode(), said, *owner)
