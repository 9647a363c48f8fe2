"""What a call of `run` does that most calls need not: functions of tensors.pyx."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport TensorCall

cdef int read_others(
    TensorCall* call, PyObject** given, void* stream, list owned
) except -1
cdef int make_outputs(
    Graph* graph, TensorCall* call, PyObject** given, void* stream, list owned
) except -1
cdef void* read_workspace(
    const TensorCall* call, object workspace, void* stream, bint check, int* device, int64_t* size,
    list owned
) except? NULL
cdef void* stream_of_framework(const TensorCall* call, PyObject** given) except? NULL
