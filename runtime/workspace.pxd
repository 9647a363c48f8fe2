from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.handle cimport Handle

cdef void* workspace_block(Handle* handle, CUstream stream, size_t size) except NULL nogil
