"""Layouts and overlaps of tensors: declarations only, the C++ is in tensor_layout.hpp and
tensor_overlap.hpp.
"""
from libc.stdint cimport int64_t, uintptr_t
from libcpp cimport bool as bool_t

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
