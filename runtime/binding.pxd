from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.signature cimport Signature


# For the runtime alone: generated modules reach it as a Python object, and its graph by graph_of.
cdef class Binding:
    # Those that have plans, in the order of keys or links; never freed, as C code may call them.
    cdef vector[void*] graphs
    cdef vector[void*] called    # those that callers see: the same, or the chain of them
    cdef void* family            # NULL for one graph
    cdef readonly tuple data     # of each graph: module_data.GraphData
    cdef object chain            # module_data.ChainData or None
    cdef Signature keys, executes, runs
    cdef tuple arguments         # names of execute's, by slot
    cdef vector[int] scalar_kinds
    cdef object overrides_class, bound_class, _execute, _run
    cdef object __weakref__
    cdef readonly str __name__
    cdef readonly str FINGERPRINT
    cdef readonly object handle  # a capsule, for graph_of

    cdef int enqueue_items(
        self, PyObject** items, object workspace, object stream, object overrides
    ) except -1
    cdef object run_items(
        self, PyObject** items, object workspace, object stream, bint check, object overrides
    )
    cdef int _read_signatures(self, object graph, tuple key, tuple takes) except -1
    cdef void* _graph_of(self, str method, tuple key, dict named) except NULL
    cdef list _indexes_of(self, tuple plans)
    cdef int _replace(self, int index, tuple plans, object source) except -1
    cdef object _only(self)
    cdef int _read_scalars(
        self, Graph* graph, PyObject** items, void** slots, uint64_t* scalars
    ) except -1
