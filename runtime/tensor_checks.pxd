"""The checks of `run`, one function a check; all raise OperandError that names the operand."""
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.dlpack cimport DLTensor
from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.exchange cimport Given
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_rules cimport TensorRules

cdef int check_tensor(
    Graph* graph, TensorRules* rules, int slot, const DLTensor* tensor, Given given, int device,
    OverrideValues* overrides
) except -1
cdef int check_address(
    Graph* graph, TensorRules* rules, int slot, void* address, OverrideValues* overrides
) except -1
cdef int check_overlaps(
    Graph* graph, TensorRules* rules, const DLTensor* tensors, const int* given, void** addresses
) except -1
cdef void* check_workspace(void* address) except? NULL
cdef int64_t workspace_size_of(const DLTensor* tensor, Given given, int device) except -1
cdef int current_device(CUstream stream, void* owner) except -1
cdef tuple expected_dim(TensorRules* rules, int slot, OverrideValues* overrides)
cdef tuple expected_stride(TensorRules* rules, int slot, OverrideValues* overrides)
