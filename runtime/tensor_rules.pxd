"""What `run` knows of a graph's operands: laid out once, read by each call."""
from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport atomic
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.tensor_layout cimport LayoutRule


cdef enum:
    MOST_OPERANDS = 300          # codegen/check_graph.py: cuDNN takes no more


# A type that is accepted: code | bits << 8 | lanes << 16 of a DLDataType.
cdef cppclass AcceptedType:
    uint32_t data_type
    int pack                     # declared elements in one of the tensor's


cdef cppclass TensorRule:
    LayoutRule layout
    bint is_output
    vector[int64_t] dim
    vector[int64_t] stride
    vector[AcceptedType] types
    vector[int] shares           # slots whose memory an output may be


cdef cppclass TensorRules:
    vector[TensorRule] operands
    vector[int] outputs          # their slots, in order
    bint computes_nothing        # no output has an element, as declared
    atomic[bint] is_checked      # the module's switch
    void* names                  # tuple: each operand's parameter of `run`; kept by tensors.pyx
