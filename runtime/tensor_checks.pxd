"""The checks of `run`: layouts, overlaps, one pass over all tensors, and what refuses a call.

The C++ is in tensor_layout.hpp, tensor_overlap.hpp and tensor_checks.hpp.
"""
from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libcpp cimport bool as bool_t
from libcpp.atomic cimport atomic
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.dlpack cimport DLTensor
from cudnn_bindgen.runtime.registered cimport Graph

cdef extern from "tensor_layout.hpp" namespace "cudnn_bindgen" nogil:
    enum class LayoutKind(int):
        kPlain
        kSwapped
        kRagged
        kPaged
        kDense

    struct LayoutRule:
        LayoutKind kind
        int free_axis

    struct Strided:
        const int64_t* dim
        const int64_t* stride
        int rank

    enum class LayoutMatch(int):
        kSame
        kOtherOrder
        kOther

    LayoutMatch match_layout(
        const LayoutRule& rule, const Strided& declared, const Strided& tensor, int pack
    )

cdef extern from "tensor_overlap.hpp" namespace "cudnn_bindgen" nogil:
    struct Region:
        uintptr_t address
        Strided layout
        int64_t element_bits

    struct Span:
        uintptr_t first
        uintptr_t last

    enum class Overlap(int):
        kApart
        kSame
        kShared

    Span find_span(const Region& region)
    bool_t are_apart(const Span& a, const Span& b)
    Overlap find_overlap(const Region& a, const Region& b)

cdef extern from "tensor_checks.hpp" namespace "cudnn_bindgen" nogil:
    enum: MOST_OPERANDS "cudnn_bindgen::kMostOperands"
    enum: CUDA "cudnn_bindgen::kCuda"
    enum: CUDA_MANAGED "cudnn_bindgen::kCudaManaged"
    enum: UNKNOWN_DEVICE "cudnn_bindgen::kUnknownDevice"

    enum Given:
        GIVEN_ADDRESS "cudnn_bindgen::kGivenAddress"
        GIVEN_TENSOR "cudnn_bindgen::kGivenTensor"
        GIVEN_READ_ONLY "cudnn_bindgen::kGivenReadOnly"
        NOT_YET_READ "cudnn_bindgen::kNotYetRead"

    struct AcceptedType:
        uint32_t data_type
        int pack

    cppclass TensorRule:
        LayoutRule layout
        bool_t is_output
        bool_t may_be_null
        uintptr_t mask
        vector[int64_t] dim
        vector[int64_t] stride
        vector[AcceptedType] types
        vector[int] shares

    cppclass TensorRules:
        vector[TensorRule] operands
        vector[int] outputs
        atomic[bool_t] is_checked
        void* names
        void finish()

    enum What "cudnn_bindgen::Finding::What":
        NOTHING "cudnn_bindgen::Finding::kNothing"
        DEVICE_TYPE "cudnn_bindgen::Finding::kDeviceType"
        DEVICE "cudnn_bindgen::Finding::kDevice"
        DATA_TYPE "cudnn_bindgen::Finding::kDataType"
        LAYOUT "cudnn_bindgen::Finding::kLayout"
        OTHER_ORDER "cudnn_bindgen::Finding::kOtherOrder"
        READ_ONLY "cudnn_bindgen::Finding::kReadOnly"
        NULL_ADDRESS "cudnn_bindgen::Finding::kNull"
        ALIGNMENT "cudnn_bindgen::Finding::kAlignment"
        SHARED "cudnn_bindgen::Finding::kShared"

    cppclass Finding:
        What what
        int slot
        int other
        int pack

    cppclass TensorCall:
        const TensorRules* rules
        const Strided* expected
        DLTensor* tensors
        Given* given
        Strided expected_of(int slot)
        int count()
        char* address_of(int slot)
        Region region_of(int slot)

    int find_user_of(const Region& memory, const TensorCall& call)
    Finding check_described(const TensorCall& call)
    Finding take_addresses(const TensorCall& call, void** addresses)
    Finding check_tensors(const TensorCall& call, void** addresses, int* device)
    Finding check_operand(const TensorCall& call, int slot, bint is_checked, Span* span)
    Finding check_together(const TensorCall& call, const Span* spans, int* device)

cdef int refuse_tensor(Graph* graph, const TensorCall* call, Finding finding) except -1
cdef str operand_name(const TensorCall* call, int slot)
cdef int refuse_device(const TensorCall* call, int got, int current) except -1
