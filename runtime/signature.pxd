from cpython.object cimport PyObject

from cudnn_bindgen.runtime.tensor_checks cimport MOST_OPERANDS

cdef enum:
    MOST_ARGUMENTS = MOST_OPERANDS + 8


cdef class Signature:
    cdef tuple names, defaults
    cdef Py_ssize_t count, positional
    cdef object graph

    cdef int fill(
        self, str method, PyObject** given, Py_ssize_t count, PyObject* names, PyObject** values
    ) except -1
    cdef Py_ssize_t find(self, PyObject* name) except -2
    cdef int refuse(self, str method, Py_ssize_t count, PyObject* names) except -1
    cdef tuple read(self, str method, tuple given, dict named)
