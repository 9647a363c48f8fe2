# cython: language_level=3, freethreading_compatible=True
"""What a thread and a stream have of the runtime: a cuDNN handle, and a block of workspace.

One handle for each (thread, context): cuDNN forbids sharing one between threads. It is never
destroyed at the end of a thread or of the process: another thread may be capturing, or CUDA be gone
already. A thread that ends leaves its handles to the next one, so there are as many as threads were
inside cuDNN at once.

One block of workspace for each (context, stream), for all graphs and callers that bring none.
Sharing is safe because a stream runs one graph after the other. A block grows by being replaced;
the old one is kept, because queued work may still use it. What a captured CUDA graph uses is kept
until that graph is gone.
"""
from _thread import RLock  # threading has the same, and takes 2 ms to import

from libc.stdint cimport uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libcpp.atomic cimport atomic

from cudnn_bindgen.runtime.library cimport (
    CU_STREAM_PER_THREAD, CUDA_ERROR_NOT_INITIALIZED, CUDA_SUCCESS, CUDNN_STATUS_SUCCESS,
    NOT_CAPTURING, CUcontext, CUdevice, CUdeviceptr, CudnnApi, CUstream, DriverApi, Failure, Kept,
    Unneeded, capture_id, capture_state, check_driver, cudnn_api, cudnnHandle_t, driver_api,
    enter_context, is_forked, leave_context, raise_cudnn, relax_capture, restore_capture,
)

from cudnn_bindgen.runtime.errors import BindingError, WorkspaceError

cdef extern from "record_store.hpp":
    pass                         # for `del handle.records`

cdef extern from "handles.hpp" nogil:
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

# Blocks are multiples of this, so that graphs of similar need do not each take a new one.
cdef size_t GRANULE = 1 << 20

# Device memory of the runtime's own.
cdef cppclass Block:
    CUcontext context
    CUdeviceptr address
    Kept* held                   # by captured CUDA graphs, too

# A finalizer that runs while a thread holds it may need a block, too. So nothing that can run one
# stands between reading and writing a block's entry.
_lock = RLock()
_blocks = {}  # (context, stream id) -> (address, size, address of the Block)
_retired = []  # addresses of outgrown Blocks
_latest = {}  # (context, stream key) -> id of the stream that had this key last
# Counts releases: a block that a handle remembers from an earlier epoch is gone.
cdef atomic[uint64_t] _epoch
# Blocks that were released while captured CUDA graphs used them, which are gone now.
cdef Unneeded _unneeded


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
    handle.driver = driver
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


cdef Stop held_block(
    Handle* handle, CUstream stream, int state, Obstacle* obstacle, void** block
) noexcept nogil:
    """Find at least `obstacle.size` bytes for `stream` in the handle's context.

    `state`: of capture_state(). While the stream is being captured it gets the block it had before,
    which the captured graph then owns as well. AT_WORKSPACE: take_block comes first.
    """
    cdef const DriverApi* driver = driver_api()
    if state < 0:
        obstacle.failure = Failure("cuStreamIsCapturing", -state, True)
        return Stop.AT_FAILURE
    if (
        handle.workspace_size >= <size_t>obstacle.size
        and handle.workspace_epoch == _epoch.load()
        and handle.workspace_stream == stream
        and _is_of_stream(driver, handle, stream, state)
    ):
        block[0] = handle.workspace
        return Stop.NOWHERE
    return Stop.AT_WORKSPACE


cdef inline bint _is_of_stream(
    const DriverApi* driver, Handle* handle, CUstream stream, int state
) noexcept nogil:
    if state == NOT_CAPTURING:
        return handle.workspace_stream_id == _stream_id(driver, handle, stream)
    return handle.workspace_capture == capture_id(driver[0], stream)


cdef int take_block(CUstream stream, size_t size, void* owner) except -1:
    """Let held_block find at least `size` bytes. Raises WorkspaceError, DriverError.

    `owner` is as in `raise_cudnn`.
    """
    cdef const DriverApi* driver = driver_api()
    cdef Handle* handle = current_handle(stream, owner)
    cdef int state = capture_state(driver, stream)
    if state < 0:
        check_driver("cuStreamIsCapturing", -state)
    if state == NOT_CAPTURING:
        return _find_or_take(driver, handle, stream, size, owner)
    return _find_captured(driver, handle, stream, size, owner)


def release_workspaces():
    """Free every block of the runtime's own.

    No queued work may use one any more; calls after this one take new blocks. What a captured CUDA
    graph uses stays until the graph is gone, and is freed at the next call of this function or the
    next time that a block is taken.
    """
    if is_forked():
        return
    with _lock:
        while _blocks:
            _retired.append(_blocks.popitem()[1][2])
        _latest.clear()
        _epoch.fetch_add(1)
        # One by one: if a block cannot be freed, the next call frees the rest.
        _free_unneeded()
        while _retired:
            _let_go(<Block*><uintptr_t>_retired.pop())


def held_bytes():
    """Bytes in the blocks that calls may get; outgrown blocks not counted."""
    with _lock:
        return sum([size for _, size, _ in list(_blocks.values())])


cdef uint64_t _stream_id(const DriverApi* driver, Handle* handle, CUstream stream) noexcept nogil:
    """An id that no other stream ever has: addresses of destroyed streams are used again.

    Not for a stream that is being captured: asking would invalidate the capture (H200, driver 580).
    """
    cdef uint64_t stream_id = 0
    if driver.stream_get_id != NULL:
        if driver.stream_get_id(stream, &stream_id) == CUDA_SUCCESS:
            return stream_id
    return _stream_key(handle, stream)  # CUDA before 12.0 has no ids


cdef uint64_t _stream_key(Handle* handle, CUstream stream) noexcept nogil:
    """What a capturing stream is known by. The per-thread stream is another one in each thread."""
    if <size_t>stream == CU_STREAM_PER_THREAD:
        return ~handle.tenancy  # far above all addresses
    return <uint64_t><uintptr_t>stream


cdef int _find_or_take(
    const DriverApi* driver, Handle* handle, CUstream stream, size_t size, void* owner
) except -1:
    # All of the handle that is needed: a finalizer may release it from here on.
    cdef uint64_t epoch, stream_id = _stream_id(driver, handle, stream)
    cdef uint64_t key = _stream_key(handle, stream)
    cdef CUcontext context = handle.context
    place = (<uintptr_t>context, stream_id)
    name = (<uintptr_t>context, key)
    with _lock:
        epoch = _epoch.load()
        address, held, _ = block = _blocks.get(place, (0, 0, 0))
        if held < size:
            _free_unneeded()
            block = _take(driver, context, (size + GRANULE - 1) // GRANULE * GRANULE)
            epoch = _epoch.load()
            outgrown = _blocks.get(place)
            _blocks[place] = block
            if outgrown is not None:
                _retired.append(outgrown[2])
        _latest[name] = stream_id
        # Not of the Block: a finalizer may have released it by now, and the epoch tells.
        address, held, _ = block
        _remember(current_handle(stream, owner), stream, stream_id, address, held, 0, epoch)
    return 0


cdef int _find_captured(
    const DriverApi* driver, Handle* handle, CUstream stream, size_t size, void* owner
) except -1:
    cdef uint64_t epoch, key = _stream_key(handle, stream)
    context = <uintptr_t>handle.context
    name = (context, key)
    with _lock:
        stream_id = _latest.get(name, 0)
        place = (context, stream_id)
        epoch = _epoch.load()
        address, held, block = _blocks.get(place, (0, 0, 0))
        if held < size:
            raise WorkspaceError(
                f"{size} bytes of workspace are needed while the stream is being captured, and the "
                f"runtime holds {held} for it; call once on this stream before the capture, or "
                "pass workspace_ptr"
            )
        check_driver(
            "cuGraphRetainUserObject",
            (<Block*><uintptr_t>block).held.hold(driver[0], stream))
        _remember(
            current_handle(stream, owner), stream, stream_id, address, held,
            capture_id(driver[0], stream), epoch)
    return 0


cdef void _remember(
    Handle* handle, CUstream stream, uint64_t stream_id, uintptr_t address, size_t size,
    uint64_t capture, uint64_t epoch
) noexcept:
    handle.workspace = <void*>address
    handle.workspace_size = size
    handle.workspace_stream = stream
    handle.workspace_stream_id = stream_id
    handle.workspace_capture = capture
    handle.workspace_epoch = epoch


cdef tuple _take(const DriverApi* driver, CUcontext context, size_t size):
    cdef CUdeviceptr address = 0
    cdef int mode, status
    cdef Block* block
    with nogil:
        mode = relax_capture(driver)
        status = driver.memory_allocate(&address, size)
        restore_capture(driver, mode)
    check_driver("cuMemAlloc", status)
    block = new Block()
    block.context = context
    block.address = address
    block.held = new Kept(block, _note_unneeded)
    return address, size, <uintptr_t>block


cdef int _let_go(Block* block) except -1:
    """Free a block now, or once no captured CUDA graph uses it."""
    return _free(block) if block.held.let_go() else 0


cdef void _note_unneeded(void* block) noexcept nogil:
    _unneeded.add(block)


cdef int _free_unneeded() except -1:
    cdef void* block = _unneeded.take()
    while block != NULL:
        _free(<Block*>block)
        block = _unneeded.take()
    return 0


cdef int _free(Block* block) except -1:
    cdef const DriverApi* driver = driver_api()
    cdef CUcontext before
    cdef int mode, status
    with nogil:
        mode = relax_capture(driver)
        before = enter_context(driver, block.context)
        status = driver.memory_free(block.address)
        leave_context(driver, block.context, before)
        restore_capture(driver, mode)
        del block.held
        del block
    return check_driver("cuMemFree", status)
