from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.handle cimport Handle

cdef enum:
    # Bytes. cuDNN 9.19 rounds the address up to this (seen in its memset nodes): from a less
    # aligned one it might run over the end.
    WORKSPACE_ALIGNMENT = 128

cdef void* workspace_block(
    Handle* handle, CUstream stream, int state, size_t size
) except NULL nogil
