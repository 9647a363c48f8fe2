"""Creating and destroying things while a stream is being captured on this or another thread.

CUDA forbids such calls to a thread whose capture mode is stricter than relaxed while a capture
goes on (CUDA Runtime API, cudaStreamBeginCapture), and the capture is lost with the call. What
this project creates and destroys never depends on captured work: it uses relaxed mode.
"""
from cudnn_bindgen.runtime.driver cimport (
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUcontext,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_SUCCESS, CUstream, DriverApi,
)

cdef enum:
    UNKNOWN_MODE = -1

    # What a stream does when a call comes.
    NOT_CAPTURING = 0
    CAPTURING = 1                # also the legacy stream, if it would join another one's capture


cdef inline int capture_state(const DriverApi* driver, CUstream stream) noexcept nogil:
    """Ask what `stream` does: one of the above, or -CUresult for what is no stream.

    Costs 0.1 to 0.2 us (H200).
    """
    cdef int capturing = CU_STREAM_CAPTURE_STATUS_NONE
    cdef int status = driver.stream_is_capturing(stream, &capturing)
    if status == CUDA_SUCCESS:
        return NOT_CAPTURING if capturing == CU_STREAM_CAPTURE_STATUS_NONE else CAPTURING
    return CAPTURING if status == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT else -status


cdef inline int relax_capture(const DriverApi* driver) noexcept nogil:
    """Set this thread's capture mode to relaxed; return the one it had, for `restore_capture`."""
    cdef int mode = CU_STREAM_CAPTURE_MODE_RELAXED
    if driver.exchange_capture_mode(&mode) != CUDA_SUCCESS:
        return UNKNOWN_MODE
    return mode


cdef inline void restore_capture(const DriverApi* driver, int mode) noexcept nogil:
    if mode != UNKNOWN_MODE:
        driver.exchange_capture_mode(&mode)


cdef inline CUcontext enter_context(const DriverApi* driver, CUcontext context) noexcept nogil:
    """Make `context` current to destroy what is in it; return what was, for `leave_context`."""
    # Where that cannot be asked the thread keeps what it has: destroying works without.
    cdef CUcontext before = context
    driver.context_get_current(&before)
    if before != context:
        driver.context_set_current(context)
    return before


cdef inline void leave_context(
    const DriverApi* driver, CUcontext context, CUcontext before
) noexcept nogil:
    if before != context:
        driver.context_set_current(before)
