# cython: language_level=3, freethreading_compatible=True
"""Workspace for callers that bring none: one block for each (context, stream), for all graphs.

Sharing is safe because a stream runs one graph after the other. A block grows by being replaced;
the old one is kept, because queued work may still use it. What a captured CUDA graph uses is kept
until that graph is gone.
"""
import threading

from libc.stdint cimport uint64_t, uintptr_t
from libcpp.atomic cimport atomic

from cudnn_bindgen.runtime.capture cimport (
    NOT_CAPTURING, capture_state, enter_context, leave_context, relax_capture, restore_capture,
)
from cudnn_bindgen.runtime.driver cimport (
    CU_STREAM_PER_THREAD, CUcontext, CUDA_SUCCESS, CUdeviceptr, CUstream, DriverApi,
)
from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.kept cimport Kept, Unneeded, capture_id
from cudnn_bindgen.runtime.library cimport driver_api, is_forked
from cudnn_bindgen.runtime.obstacle cimport Obstacle, Stop
from cudnn_bindgen.runtime.status cimport Failure, check_driver

from cudnn_bindgen.runtime.errors import WorkspaceError

# Blocks are multiples of this, so that graphs of similar need do not each take a new one.
cdef size_t GRANULE = 1 << 20

# Device memory of the runtime's own.
cdef cppclass Block:
    CUcontext context
    CUdeviceptr address
    Kept* held                   # by captured CUDA graphs, too

# A finalizer that runs while a thread holds it may need a block, too. So nothing that can run one
# stands between reading and writing a block's entry.
_lock = threading.RLock()
_blocks = {}  # (context, stream id) -> (address, size, address of the Block)
_retired = []  # addresses of outgrown Blocks
_latest = {}  # (context, stream key) -> id of the stream that had this key last
# Counts releases: a block that a handle remembers from an earlier epoch is gone.
cdef atomic[uint64_t] _epoch
# Blocks that were released while captured CUDA graphs used them, which are gone now.
cdef Unneeded _unneeded


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
    return handle.workspace_capture == capture_id(driver.user_objects, stream)


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
            (<Block*><uintptr_t>block).held.hold(driver.user_objects, stream))
        _remember(
            current_handle(stream, owner), stream, stream_id, address, held,
            capture_id(driver.user_objects, stream), epoch)
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
