from libc.stdint cimport uint64_t

from cudnn_bindgen.runtime.cudnn cimport cudnnHandle_t
from cudnn_bindgen.runtime.driver cimport CUcontext, CUdevice, CUstream
from cudnn_bindgen.runtime.record cimport RecordStore
from cudnn_bindgen.runtime.status cimport Failure


# One cuDNN handle of one context. Owned by one thread at a time, which alone reads and writes it.
cdef struct Handle:
    cudnnHandle_t cudnn
    CUcontext context
    CUdevice device
    CUstream stream              # what cudnnSetStream was last given; see no_stream()
    uint64_t tenancy             # another number for each thread that it belongs to
    # The runtime's workspace block that this thread used last (workspace.pyx).
    void* workspace
    size_t workspace_size
    CUstream workspace_stream
    uint64_t workspace_stream_id
    uint64_t workspace_capture   # whose graph owns the block, too; 0: none
    uint64_t workspace_epoch
    RecordStore* records         # launch records made through this handle; NULL at first

# No stream has this address: makes the next use_stream() call cudnnSetStream.
cdef inline CUstream no_stream() noexcept nogil:
    return <CUstream><size_t>-1


cdef Handle* current_handle(CUstream stream, void* owner) except NULL nogil
cdef int use_stream(Handle* handle, CUstream stream, Failure* failure) noexcept nogil
