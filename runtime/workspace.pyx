# cython: language_level=3, freethreading_compatible=True
"""Workspace for callers that bring none: one block for each (context, stream), for all graphs.

Sharing is safe because a stream runs one graph after the other. A block grows by being replaced;
the old one is kept, because queued work and captured CUDA graphs may still use it.
"""
import threading

from libc.stdint cimport uint64_t, uintptr_t
from libcpp.atomic cimport atomic

from cudnn_bindgen.runtime.capture cimport (
    enter_context, leave_context, relax_capture, restore_capture,
)
from cudnn_bindgen.runtime.driver cimport (
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_PER_THREAD, CUcontext,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_SUCCESS, CUdeviceptr, CUstream, DriverApi,
)
from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.library cimport driver_api
from cudnn_bindgen.runtime.obstacle cimport Obstacle, Stop
from cudnn_bindgen.runtime.status cimport Failure, check_driver

from cudnn_bindgen.runtime.errors import WorkspaceError

# Blocks are multiples of this, so that graphs of similar need do not each take a new one.
cdef size_t GRANULE = 1 << 20

# A finalizer that runs while a thread holds it may need a block, too. So nothing that can run one
# stands between reading and writing a block's entry.
_lock = threading.RLock()
_blocks = {}  # (context, stream id) -> (address, size)
_retired = []  # (context, address)
_latest = {}  # (context, stream key) -> id of the stream that had this key last
# Counts releases: a block that a handle remembers from an earlier epoch is gone.
cdef atomic[uint64_t] _epoch


cdef Stop held_block(
    Handle* handle, CUstream stream, Obstacle* obstacle, void** block
) noexcept nogil:
    """Find at least `obstacle.size` bytes for `stream` in the handle's context.

    While the stream is being captured it gets the block it had before. AT_WORKSPACE: take_block
    comes first.
    """
    cdef const DriverApi* driver = driver_api()
    cdef int capturing = CU_STREAM_CAPTURE_STATUS_NONE
    cdef uint64_t stream_id = 0
    cdef int status = _ask_capturing(driver, stream, &capturing)
    if status != CUDA_SUCCESS:
        obstacle.failure = Failure("cuStreamIsCapturing", status, True)
        return Stop.AT_FAILURE
    if capturing == CU_STREAM_CAPTURE_STATUS_NONE:
        stream_id = _stream_id(driver, handle, stream)
    if (
        handle.workspace_size >= <size_t>obstacle.size
        and handle.workspace_epoch == _epoch.load()
        and handle.workspace_stream == stream
        and (handle.workspace_stream_id == stream_id or capturing != CU_STREAM_CAPTURE_STATUS_NONE)
    ):
        block[0] = handle.workspace
        return Stop.NOWHERE
    return Stop.AT_WORKSPACE


cdef int take_block(CUstream stream, size_t size, void* owner) except -1:
    """Let held_block find at least `size` bytes. Raises WorkspaceError, DriverError.

    `owner` is as in `raise_cudnn`.
    """
    cdef const DriverApi* driver = driver_api()
    cdef Handle* handle = current_handle(stream, owner)
    cdef int capturing = CU_STREAM_CAPTURE_STATUS_NONE
    check_driver("cuStreamIsCapturing", _ask_capturing(driver, stream, &capturing))
    if capturing != CU_STREAM_CAPTURE_STATUS_NONE:
        return _find_captured(handle, stream, size, owner)
    return _find_or_take(driver, handle, stream, size, owner)


def release_workspaces():
    """Free every block of the runtime's own.

    No queued work and no captured CUDA graph may use one any more; calls after this one take new
    blocks.
    """
    with _lock:
        while _blocks:
            (context, _), (address, _) = _blocks.popitem()
            _retired.append((context, address))
        _latest.clear()
        _epoch.fetch_add(1)
        # One by one: if a block cannot be freed, the next call frees the rest.
        while _retired:
            context, address = _retired.pop()
            _free(context, address)


def held_bytes():
    """Bytes in the blocks that calls may get; outgrown blocks not counted."""
    with _lock:
        return sum([size for _, size in list(_blocks.values())])


cdef int _ask_capturing(const DriverApi* driver, CUstream stream, int* capturing) noexcept nogil:
    cdef int status = driver.stream_is_capturing(stream, capturing)
    if status == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        # The legacy stream would join another stream's capture.
        capturing[0] = CU_STREAM_CAPTURE_STATUS_NONE + 1
        return CUDA_SUCCESS
    return status


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
    cdef uint64_t epoch, stream_id = _stream_id(driver, handle, stream)
    context = <uintptr_t>handle.context
    place = (context, stream_id)
    name = (context, _stream_key(handle, stream))
    with _lock:
        epoch = _epoch.load()
        address, held = block = _blocks.get(place, (0, 0))
        if held < size:
            grown = (size + GRANULE - 1) // GRANULE * GRANULE
            block = (_take(driver, grown), grown)
            epoch = _epoch.load()
            outgrown = _blocks.get(place)
            _blocks[place] = block
            if outgrown is not None:
                _retired.append((context, outgrown[0]))
        _latest[name] = stream_id
        address, held = block
        _remember(current_handle(stream, owner), stream, stream_id, address, held, epoch)
    return 0


cdef int _find_captured(Handle* handle, CUstream stream, size_t size, void* owner) except -1:
    cdef uint64_t epoch
    context = <uintptr_t>handle.context
    name = (context, _stream_key(handle, stream))
    with _lock:
        stream_id = _latest.get(name)
        place = (context, stream_id)
        epoch = _epoch.load()
        address, held = _blocks.get(place, (0, 0))
        if held < size:
            raise WorkspaceError(
                f"{size} bytes of workspace are needed while the stream is being captured, and the "
                f"runtime holds {held} for it; call once on this stream before the capture, or "
                "pass workspace_ptr"
            )
        _remember(current_handle(stream, owner), stream, stream_id, address, held, epoch)
    return 0


cdef void _remember(
    Handle* handle, CUstream stream, uint64_t stream_id, uintptr_t address, size_t size,
    uint64_t epoch
) noexcept:
    handle.workspace = <void*>address
    handle.workspace_size = size
    handle.workspace_stream = stream
    handle.workspace_stream_id = stream_id
    handle.workspace_epoch = epoch


cdef object _take(const DriverApi* driver, size_t size):
    cdef CUdeviceptr address = 0
    cdef int mode, status
    with nogil:
        mode = relax_capture(driver)
        status = driver.memory_allocate(&address, size)
        restore_capture(driver, mode)
    check_driver("cuMemAlloc", status)
    return address


cdef int _free(uintptr_t context, uintptr_t address) except -1:
    cdef const DriverApi* driver = driver_api()
    cdef CUcontext before
    cdef int mode, status
    with nogil:
        mode = relax_capture(driver)
        before = enter_context(driver, <CUcontext>context)
        status = driver.memory_free(address)
        leave_context(driver, <CUcontext>context, before)
        restore_capture(driver, mode)
    return check_driver("cuMemFree", status)
