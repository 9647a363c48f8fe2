"""What is wrong with a call's operands → OperandError."""
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.dlpack cimport DLTensor
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport Finding, Given, TensorCall

cdef int refuse_tensor(Graph* graph, const TensorCall* call, Finding finding) except -1
cdef str operand_name(const TensorCall* call, int slot)
cdef int refuse_device(const TensorCall* call, int got, int current) except -1
cdef int refuse_address(Graph* graph, int slot, void* address) except -1 nogil
cdef int refuse_workspace(int64_t size, int64_t given) except -1
