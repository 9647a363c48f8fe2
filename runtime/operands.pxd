from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.dlpack cimport DLTensor
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport Given, Strided, TensorCall, TensorRules

cdef void* read_stream(object stream) except? NULL
cdef void* stream_of_framework(const TensorCall* call, PyObject** given) except? NULL
cdef Given read_operand(
    object item, str name, void* stream, DLTensor* tensor, list owned
) except *
cdef object make_output(Graph* graph, const TensorCall* call, int slot, object like)
cdef void* workspace_address(const DLTensor* tensor) except? NULL
cdef int64_t check_workspace(
    const TensorCall* call, const DLTensor* tensor, Given how, int* device
) except -1


cdef inline int take_shapes(TensorRules* rules, OverrideValues* values, Strided* expected) noexcept:
    """Fill in the shapes that a call's overrides ask for, of all operands."""
    cdef int slot
    for slot in range(<int>rules.operands.size()):
        expected[slot] = Strided(
            values.dim(slot).data(), values.stride(slot).data(), <int>values.dim(slot).size())
    return 0


cdef inline object outputs_of(const TensorRules* rules, PyObject** given):
    """What stands for the outputs among all operands: one object, a tuple, or None."""
    cdef int index, count = <int>rules.outputs.size()
    cdef tuple outputs
    if count == 1:
        return <object>given[rules.outputs[0]]
    if count == 0:
        return None
    outputs = PyTuple_New(count)
    for index in range(count):
        item = <object>given[rules.outputs[index]]
        Py_INCREF(item)
        PyTuple_SET_ITEM(outputs, index, item)
    return outputs
