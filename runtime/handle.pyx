# cython: language_level=3, freethreading_compatible=True
"""One cuDNN handle for each (thread, context), and the stream it was last given.

cuDNN forbids sharing a handle between threads. A handle is never destroyed at the end of a thread
or of the process: another thread may be capturing, or CUDA be gone already. A thread that ends
leaves its handles to the next one, so there are as many as threads were inside cuDNN at once.
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libcpp.atomic cimport atomic

from cudnn_bindgen.runtime.capture cimport (
    enter_context, leave_context, relax_capture, restore_capture,
)
from cudnn_bindgen.runtime.cudnn cimport CUDNN_STATUS_SUCCESS, CudnnApi, cudnnHandle_t
from cudnn_bindgen.runtime.driver cimport (
    CU_STREAM_PER_THREAD, CUcontext, CUDA_ERROR_NOT_INITIALIZED, CUdevice, CUstream, DriverApi,
)
from cudnn_bindgen.runtime.library cimport cudnn_api, driver_api, is_forked
from cudnn_bindgen.runtime.status cimport Failure, check_driver, raise_cudnn

from cudnn_bindgen.runtime.errors import BindingError

cdef extern from * nogil:
    """
    #include <mutex>
    #include <vector>

    namespace {

    // Handles that ended threads left. Never destroyed: it must outlive every thread.
    struct IdleHandles {
        std::mutex mutex;
        std::vector<void*> handles;
    };

    IdleHandles& idle_handles() {
        static IdleHandles* const idle = new IdleHandles;
        return *idle;
    }

    struct ThreadHandles {
        std::vector<void*> handles;
        void* last = nullptr;

        ~ThreadHandles() {
            std::lock_guard<std::mutex> lock(idle_handles().mutex);
            auto& idle = idle_handles().handles;
            idle.insert(idle.end(), handles.begin(), handles.end());
        }
    };

    thread_local ThreadHandles this_thread;

    void* last_handle() { return this_thread.last; }
    void set_last_handle(void* handle) { this_thread.last = handle; }
    std::vector<void*>* own_handles() { return &this_thread.handles; }

    template <typename Match> void* take_idle(Match match) {
        std::lock_guard<std::mutex> lock(idle_handles().mutex);
        auto& idle = idle_handles().handles;
        for (auto it = idle.begin(); it != idle.end(); ++it) {
            if (match(*it)) {
                void* handle = *it;
                idle.erase(it);
                return handle;
            }
        }
        return nullptr;
    }

    // A handle begins with {cudnn, context}.
    void* take_idle_handle(void* context) {
        return take_idle([=](void* handle) { return static_cast<void**>(handle)[1] == context; });
    }
    void* take_any_idle_handle() { return take_idle([](void*) { return true; }); }

    }  // namespace
    """
    cppclass HandleList "std::vector<void*>":
        size_t size()
        void* back()
        void* operator[](size_t)
        void push_back(void*) except +
        void pop_back()
    void* last_handle()
    void set_last_handle(void*)
    HandleList* own_handles()
    void* take_idle_handle(void* context)
    void* take_any_idle_handle()

cdef atomic[uint64_t] _tenancies

_FORKED = (
    "this process was forked from one that had initialised CUDA, and CUDA cannot be used here: "
    'start it by "spawn" or "forkserver", or fork before the first call'
)


cdef Handle* current_handle(CUstream stream, void* owner) except NULL nogil:
    """This thread's handle for the current context.

    A thread that has no context yet gets that of `stream`, or the primary one of device 0 where
    the stream says nothing (0, legacy, per-thread), as CUDA's runtime does. Does not set the
    handle's stream. `owner` is as in `raise_cudnn`. Raises LibraryNotFoundError, DriverError,
    CudnnError.
    """
    cdef const DriverApi* driver = driver_api()
    cdef CUcontext context = NULL
    cdef Handle* handle = <Handle*>last_handle()
    cdef int status = driver.context_get_current(&context)
    if status == CUDA_ERROR_NOT_INITIALIZED:
        if is_forked():
            with gil:
                raise BindingError(_FORKED)
        # cuInit knows why, or works by now.
        check_driver("cuInit", driver.init(0))
        status = driver.context_get_current(&context)
    check_driver("cuCtxGetCurrent", status)
    if handle != NULL and handle.context == context:
        return handle
    if context == NULL:
        context = _make_current(driver, stream)
    handle = _find(context, owner)
    set_last_handle(handle)
    return handle


cdef int use_stream(Handle* handle, CUstream stream, Failure* failure) noexcept nogil:
    """Give the handle's cuDNN `stream`, unless it has it already (0.06 to 2.4 us a call).

    Returns -1 and fills `failure` when that fails.
    """
    cdef int status
    if handle.stream == stream:
        return 0
    # If the call fails, what cuDNN has now is unknown.
    handle.stream = no_stream()
    status = cudnn_api().set_stream(handle.cudnn, stream)
    if status != CUDNN_STATUS_SUCCESS:
        failure[0] = Failure("cudnnSetStream", status, False)
        return -1
    handle.stream = stream
    return 0


def release_handles():
    """Destroy the calling thread's handles and those that ended threads left.

    Nothing needs this; it gives memory back in a process that is done with cuDNN. Handles of other
    running threads stay.
    """
    cdef HandleList* own = own_handles()
    cdef void* handle
    if is_forked():
        return
    set_last_handle(NULL)
    while own.size():
        handle = own.back()
        own.pop_back()
        _destroy(<Handle*>handle)
    handle = take_any_idle_handle()
    while handle != NULL:
        _destroy(<Handle*>handle)
        handle = take_any_idle_handle()


cdef CUcontext _make_current(const DriverApi* driver, CUstream stream) except NULL nogil:
    cdef CUcontext context = NULL
    cdef CUdevice device = 0
    if <size_t>stream > CU_STREAM_PER_THREAD:
        check_driver("cuStreamGetCtx", driver.stream_get_context(stream, &context))
    else:
        check_driver("cuInit", driver.init(0))
        check_driver("cuDeviceGet", driver.device_get(&device, 0))
        check_driver(
            "cuDevicePrimaryCtxRetain", driver.primary_context_retain(&context, device))
    check_driver("cuCtxSetCurrent", driver.context_set_current(context))
    return context


cdef Handle* _find(CUcontext context, void* owner) except NULL nogil:
    cdef HandleList* own = own_handles()
    cdef size_t i
    cdef Handle* handle
    for i in range(own.size()):
        handle = <Handle*>own[0][i]
        if handle.context == context:
            return handle
    handle = <Handle*>take_idle_handle(context)
    if handle == NULL:
        handle = _create(context, owner)
    handle.tenancy = _tenancies.fetch_add(1)
    # It may be that of the thread before's per-thread stream.
    handle.workspace_size = 0
    own.push_back(handle)
    return handle


cdef Handle* _create(CUcontext context, void* owner) except NULL nogil:
    cdef const DriverApi* driver = driver_api()
    cdef const CudnnApi* cudnn = cudnn_api()
    cdef CUdevice device = 0
    cdef cudnnHandle_t created = NULL
    cdef Handle* handle
    check_driver("cuCtxGetDevice", driver.context_get_device(&device))
    cdef int mode = relax_capture(driver)
    cdef int status = cudnn.create(&created)
    restore_capture(driver, mode)
    if status != CUDNN_STATUS_SUCCESS:
        raise_cudnn("cudnnCreate", status, owner)
    handle = <Handle*>calloc(1, sizeof(Handle))
    if handle == NULL:
        cudnn.destroy(created)
        with gil:
            raise MemoryError
    handle.cudnn = created
    handle.context = context
    handle.device = device
    handle.stream = no_stream()
    return handle


cdef int _destroy(Handle* handle) except -1:
    cdef const DriverApi* driver = driver_api()
    cdef CUcontext before
    cdef int mode, status
    with nogil:
        mode = relax_capture(driver)
        before = enter_context(driver, handle.context)
        status = cudnn_api().destroy(handle.cudnn)
        leave_context(driver, handle.context, before)
        restore_capture(driver, mode)
        del handle.records
        free(handle)
    if status != CUDNN_STATUS_SUCCESS:
        raise_cudnn("cudnnDestroy", status, NULL)
    return 0
