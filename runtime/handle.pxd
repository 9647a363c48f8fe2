from libc.stdint cimport int64_t, uint64_t

from cudnn_bindgen.runtime.library cimport (
    CUcontext, CUdevice, CUstream, DriverApi, Failure, cudnnHandle_t,
)
from cudnn_bindgen.runtime.record cimport RecordStore


cdef enum:
    # Bytes. cuDNN 9.19 rounds the address up to this (seen in its memset nodes): from a less
    # aligned one it might run over the end.
    WORKSPACE_ALIGNMENT = 128


# One cuDNN handle of one context. Owned by one thread at a time, which alone reads and writes it.
cdef struct Handle:
    cudnnHandle_t cudnn
    CUcontext context
    CUdevice device
    const DriverApi* driver
    CUstream stream              # what cudnnSetStream was last given; see no_stream()
    uint64_t tenancy             # another number for each thread that it belongs to
    # The runtime's workspace block that this thread used last.
    void* workspace
    size_t workspace_size
    CUstream workspace_stream
    uint64_t workspace_stream_id
    uint64_t workspace_capture   # whose graph owns the block, too; 0: none
    uint64_t workspace_epoch
    RecordStore* records         # launch records made through this handle; NULL at first


# Where a call stopped before it was launched; `Obstacle` has the rest.
cdef enum Stop:
    NOWHERE = 0
    AT_PLAN                      # none is chosen for the device
    AT_WORKSPACE                 # the stream has no block of `size` bytes
    AT_SMALL_WORKSPACE           # the caller's has less than `size` bytes
    AT_LARGE_WORKSPACE           # `frontend_size` and cuDNN's `size` are more than can be
    AT_STREAM                    # a part of the launch would not wait for it
    AT_CAPTURE                   # a part of the launch would not be in it
    AT_STRIDE                    # an overridden one: slot, axis, and the alignment that it breaks
    AT_FAILURE


cdef struct Obstacle:
    int64_t size
    int64_t frontend_size
    int slot
    int axis
    int64_t alignment
    Failure failure
    void* owner                  # whose link stopped, as in `raise_cudnn`; NULL: the call's graph


# No stream has this address: makes the next use_stream() call cudnnSetStream.
cdef inline CUstream no_stream() noexcept nogil:
    return <CUstream><size_t>-1


cdef Handle* current_handle(CUstream stream, void* owner) except NULL nogil
cdef int use_stream(Handle* handle, CUstream stream, Failure* failure) noexcept nogil
cdef Stop held_block(
    Handle* handle, CUstream stream, int state, Obstacle* obstacle, void** block
) noexcept nogil
cdef int take_block(CUstream stream, size_t size, void* owner) except -1
