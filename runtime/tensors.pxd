"""What generated modules call for `run`: functions only, as in graph.pxd."""
from cpython.object cimport PyObject

# Of a family and a call, a TensorCall: the graph that it is for.
ctypedef void* (*ChooseGraph)(void* family, const void* call) except NULL

cdef int register_tensors(void* graph, tuple layouts, tuple shared) except -1
cdef int set_tensor_checks(void* graph, bint enabled) except -1
cdef int check_tensors_of(void* graph, object described) except -1
cdef object run_tensors(
    void* graph,
    PyObject** given,
    void** slots,
    object workspace,
    object stream,
    bint check,
    void* overrides,
)
cdef object run_chosen(
    void* graph, ChooseGraph choose, void* among, PyObject** given, void** slots, object workspace,
    object stream, bint check
)
cdef void* choose_graph(
    void* graph, ChooseGraph choose, void* among, PyObject** given, object stream
) except NULL
