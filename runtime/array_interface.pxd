from cudnn_bindgen.runtime.dlpack cimport DLTensor

cdef bint read_array_interface(
    object interface, str argument, void* stream, DLTensor* out, list owned
) except? -1
