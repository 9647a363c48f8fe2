"""Creating and destroying things while a stream is being captured on this or another thread.

CUDA forbids such calls to a thread whose capture mode is stricter than relaxed while a capture
goes on (CUDA Runtime API, cudaStreamBeginCapture), and the capture is lost with the call. What
this project creates and destroys never depends on captured work: it uses relaxed mode.
"""
from cudnn_bindgen.runtime.driver cimport CU_STREAM_CAPTURE_MODE_RELAXED, DriverApi


cdef inline int relax_capture(const DriverApi* driver) noexcept nogil:
    """Set this thread's capture mode to relaxed; return the one it had, for `restore_capture`."""
    cdef int mode = CU_STREAM_CAPTURE_MODE_RELAXED
    driver.exchange_capture_mode(&mode)
    return mode


cdef inline void restore_capture(const DriverApi* driver, int mode) noexcept nogil:
    driver.exchange_capture_mode(&mode)
