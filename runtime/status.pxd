from cudnn_bindgen.runtime.driver cimport CUresult


# A failed call as a value: for code that must not take the GIL where it fails.
cdef struct Failure:
    const char* call
    int status
    bint of_driver               # a CUresult; else a cudnnStatus_t

cdef int check_driver(const char* call, CUresult status) except -1 nogil
# `owner`: (module, fingerprint) of the graph the call was made for, a borrowed reference or NULL.
cdef int raise_cudnn(const char* call, int status, void* owner) except -1 nogil
