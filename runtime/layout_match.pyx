# cython: language_level=3, freethreading_compatible=True
"""Whether a layout of memory is the declared one, for Python: the rule that `run` checks by."""
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.tensor_layout cimport (
    LayoutKind, LayoutMatch, LayoutRule, Strided, match_layout,
)

KINDS = ("plain", "swapped", "ragged", "paged", "dense")
"""Names of LayoutKind, in its order."""


def compare_layouts(
    str kind, int free_axis, vector[int64_t] dim, vector[int64_t] stride,
    vector[int64_t] given_dim, vector[int64_t] given_stride, int pack=1
):
    """Return "same", "other order" (the same extents, which lie otherwise) or "other".

    `kind` and `free_axis` are of codegen's Layout; `pack` declared elements are in each one given.
    Raises ValueError for an unknown kind or a dim without a stride, OverflowError beyond int64.
    """
    cdef LayoutRule rule
    cdef Strided declared, given
    if dim.size() != stride.size() or given_dim.size() != given_stride.size():
        raise ValueError("expected a stride for each dim")
    rule.kind = <LayoutKind><int>KINDS.index(kind)
    rule.free_axis = free_axis
    declared.dim, declared.stride = dim.data(), stride.data()
    given.dim, given.stride = given_dim.data(), given_stride.data()
    declared.rank, given.rank = <int>dim.size(), <int>given_dim.size()
    cdef LayoutMatch match = match_layout(rule, declared, given, pack)
    return ("same", "other order", "other")[<int>match]
