from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.obstacle cimport Obstacle, Stop

cdef enum:
    # Bytes. cuDNN 9.19 rounds the address up to this (seen in its memset nodes): from a less
    # aligned one it might run over the end.
    WORKSPACE_ALIGNMENT = 128

cdef Stop held_block(
    Handle* handle, CUstream stream, int state, Obstacle* obstacle, void** block
) noexcept nogil
cdef int take_block(CUstream stream, size_t size, void* owner) except -1
