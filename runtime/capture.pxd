"""Creating and destroying things while a stream is being captured on this or another thread.

CUDA forbids such calls to a thread whose capture mode is stricter than relaxed while a capture
goes on (CUDA Runtime API, cudaStreamBeginCapture), and the capture is lost with the call. What
this project creates and destroys never depends on captured work: it uses relaxed mode.
"""
from cudnn_bindgen.runtime.driver cimport (
    CU_STREAM_CAPTURE_MODE_RELAXED, CUcontext, CUDA_SUCCESS, DriverApi,
)

cdef enum:
    UNKNOWN_MODE = -1


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
