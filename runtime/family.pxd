"""What generated modules for several graphs call: functions only, as in graph.pxd."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef void* register_family(tuple names, list keys, void** graphs, tuple places) except NULL
cdef int execute_member(
    void* family, const int64_t* key, void** slots, void* workspace, void* stream
) except -1 nogil
cdef object run_member(
    void* family, PyObject** key, PyObject** given, void** slots, object workspace, object stream,
    bint check,
)
cdef void* member_of_key(void* family, tuple key) except NULL
cdef void* member_of_operands(
    void* family, PyObject** key, PyObject** given, object stream
) except NULL
