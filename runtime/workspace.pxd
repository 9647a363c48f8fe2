from cudnn_bindgen.runtime.handle cimport Handle

cdef void* workspace_block(Handle* handle, size_t size) except NULL nogil
