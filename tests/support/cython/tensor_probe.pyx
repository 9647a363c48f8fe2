# cython: language_level=3
# distutils: language=c++
"""Layouts and overlaps of tensors that a test makes up, without any memory behind them."""
from cudnn_bindgen.runtime.tensor_checks cimport (
    LayoutKind, LayoutRule, Region, Span, Strided, are_apart, find_overlap, find_span, match_layout,
)
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

KINDS = ("plain", "swapped", "ragged", "paged", "dense")
MATCHES = ("same", "other order", "other")
OVERLAPS = ("apart", "same", "shared")


cdef class Layout:
    cdef vector[int64_t] dim
    cdef vector[int64_t] stride

    def __cinit__(self, dim, stride):
        assert len(dim) == len(stride)
        self.dim = dim
        self.stride = stride

    cdef Strided strided(self):
        cdef Strided view
        view.dim = self.dim.data()
        view.stride = self.stride.data()
        view.rank = <int>self.dim.size()
        return view


def match(str kind, declared, tensor, *, int free_axis=-1, int pack=1):
    cdef LayoutRule rule
    cdef Layout wanted = Layout(*declared)
    cdef Layout given = Layout(*tensor)
    rule.kind = <LayoutKind><int>KINDS.index(kind)
    rule.free_axis = free_axis
    return MATCHES[<int>match_layout(rule, wanted.strided(), given.strided(), pack)]


cdef Region region_of(address, Layout layout, int64_t bits):
    cdef Region region
    region.address = address
    region.layout = layout.strided()
    region.element_bits = bits
    return region


def overlap(a, b):
    cdef Layout left = Layout(*a[1])
    cdef Layout right = Layout(*b[1])
    cdef Region one = region_of(a[0], left, a[2])
    cdef Region other = region_of(b[0], right, b[2])
    found = OVERLAPS[<int>find_overlap(one, other)]
    if are_apart(find_span(one), find_span(other)):
        assert found == "apart"
    return found


def span(a):
    cdef Layout layout = Layout(*a[1])
    cdef Span found = find_span(region_of(a[0], layout, a[2]))
    return found.first, found.last
