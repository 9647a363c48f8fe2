# cython: language_level=3, freethreading_compatible=True
"""Arguments of a method that Python has no signature for, because a graph decides them."""
from sys import intern

from cpython.object cimport PyObject

cdef extern from "Python.h":
    ctypedef struct PyTupleObject:
        PyObject** ob_item

# Stands for an argument that has no default.
REQUIRED = object()


cdef class Signature:
    """Names and defaults of a method's arguments: reads a call as Python would."""

    def __init__(self, names, defaults=(), positional=None, graph=None):
        """`defaults`: of the last names; `positional`: how many need no name; `graph`: for errors.
        """
        # Interned, as the names in a call are: they are mostly the same objects.
        self.names = tuple([intern(name) for name in names])
        self.defaults = (REQUIRED,) * (len(names) - len(defaults)) + tuple(defaults)
        self.count = len(names)
        self.positional = len(names) if positional is None else positional
        self.graph = graph

    cdef int fill(
        self, str method, PyObject** given, Py_ssize_t count, PyObject* names, PyObject** values
    ) except -1:
        """Put the arguments of a call in order, borrowed: `count` by position, then those by name.

        TypeError where they are not those of the method.
        """
        cdef Py_ssize_t index, number
        if count > self.positional:
            self.refuse(method, count, names)
        for index in range(count):
            values[index] = given[index]
        for index in range(count, self.count):
            values[index] = NULL
        if names != NULL:
            for index in range(len(<tuple>names)):
                number = self.find((<PyTupleObject*>names).ob_item[index])
                if number < 0 or values[number] != NULL:
                    self.refuse(method, count, names)
                values[number] = given[count + index]
        for index in range(count, self.count):
            if values[index] == NULL:
                values[index] = (<PyTupleObject*>self.defaults).ob_item[index]
                if values[index] == <PyObject*>REQUIRED:
                    self.refuse(method, count, names)
        return 0

    cdef Py_ssize_t find(self, PyObject* name) except -2:
        """The place of a name, or -1."""
        cdef Py_ssize_t index
        for index in range(self.count):
            if (<PyTupleObject*>self.names).ob_item[index] == name:
                return index
        for index in range(self.count):
            if self.names[index] == <object>name:
                return index
        return -1

    cdef int refuse(self, str method, Py_ssize_t count, PyObject* names) except -1:
        from cudnn_bindgen.runtime.call_errors import call_error
        raise call_error(
            method, self.names, [one is not REQUIRED for one in self.defaults], self.positional,
            count, () if names == NULL else <tuple>names, self.graph)

    cdef tuple read(self, str method, tuple given, dict named):
        """The arguments of a call of `method` in order."""
        cdef PyObject* values[MOST_ARGUMENTS]
        cdef tuple every = given + tuple(named.values())
        cdef tuple names = tuple(named)
        self.fill(method, (<PyTupleObject*>every).ob_item, len(given), <PyObject*>names, values)
        return tuple([<object>values[index] for index in range(self.count)])
