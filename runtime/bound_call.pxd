from libcpp.vector cimport vector

cdef object make_class(str module, tuple names)
cdef object make_call(
    object kind, object binding, void* graph, vector[int] scalar_kinds, tuple values,
    object workspace, object stream, bint check, object overrides
)
