# cython: language_level=3, freethreading_compatible=True, auto_pickle=False
"""What is wrong with a call's tensors → OperandError; tensor_errors.py has the words.

For Python: whether a layout of memory is the declared one, by the rule that `run` checks by.
"""
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.dlpack cimport DLTensor
from cudnn_bindgen.runtime.registered cimport Graph

KINDS = ("plain", "swapped", "ragged", "paged", "dense")
"""Names of LayoutKind, in its order."""


cdef int refuse_tensor(Graph* graph, const TensorCall* call, Finding finding) except -1:
    """Raise the error that describes a finding."""
    cdef const DLTensor* tensor = &call.tensors[finding.slot]
    from cudnn_bindgen.runtime import tensor_errors  # only now: a module is imported sooner without
    name = operand_name(call, finding.slot)
    operand = (<tuple>graph.operand_data)[finding.slot]
    if finding.what == DEVICE_TYPE:
        raise tensor_errors.device_type_error(name, tensor.device.device_type)
    if finding.what == DEVICE:
        first = _first_on_a_device(call)
        raise tensor_errors.other_device_error(
            name, tensor.device.device_id, operand_name(call, first),
            call.tensors[first].device.device_id)
    if finding.what == DATA_TYPE:
        raise tensor_errors.data_type_error(
            name, operand, (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes))
    if finding.what == LAYOUT or finding.what == OTHER_ORDER:
        raise _layout_error(call, finding, name)
    if finding.what == READ_ONLY:
        raise tensor_errors.read_only_error(name)
    if finding.what == NULL_ADDRESS:
        raise tensor_errors.null_error(name, operand)
    if finding.what == ALIGNMENT:
        raise tensor_errors.alignment_error(
            name, operand, <size_t>tensor.data + tensor.byte_offset)
    raise tensor_errors.overlap_error(
        name, operand_name(call, finding.other),
        not call.rules.operands[finding.slot].shares.empty())


cdef int refuse_device(const TensorCall* call, int got, int current) except -1:
    """Raise that the tensors are not on the device that the call would run on."""
    from cudnn_bindgen.runtime import tensor_errors
    raise tensor_errors.device_error(operand_name(call, _first_on_a_device(call)), got, current)


cdef int _first_on_a_device(const TensorCall* call):
    cdef int slot
    for slot in range(call.count()):
        if call.given[slot] != GIVEN_ADDRESS and call.tensors[slot].device.device_type == CUDA:
            return slot
    return 0


cdef class _Matcher:
    """Whether another view of a refused tensor would do; used while the call is refused only."""

    cdef LayoutRule rule
    cdef Strided expected
    cdef int pack

    def __call__(self, dim, stride):
        if max((*dim, *stride), default=0) >= 2**63:
            return False
        cdef vector[int64_t] sizes = dim
        cdef vector[int64_t] strides = stride
        cdef Strided view = Strided(sizes.data(), strides.data(), <int>sizes.size())
        return match_layout(self.rule, self.expected, view, self.pack) == LayoutMatch.kSame


cdef object _layout_error(const TensorCall* call, Finding finding, str name):
    cdef const DLTensor* tensor = &call.tensors[finding.slot]
    cdef LayoutRule rule = call.rules.operands[finding.slot].layout
    cdef Strided expected = call.expected_of(finding.slot)
    cdef _Matcher matches = _Matcher()
    matches.rule = rule
    matches.expected = expected
    matches.pack = finding.pack
    from cudnn_bindgen.runtime import tensor_errors
    return tensor_errors.layout_error(
        name,
        <int>rule.kind,
        rule.free_axis,
        (_sizes(expected.dim, expected.rank), _sizes(expected.stride, expected.rank)),
        (_sizes(tensor.shape, tensor.ndim), _sizes(tensor.strides, tensor.ndim)),
        finding.pack,
        finding.what == OTHER_ORDER,
        matches,
    )


cdef tuple _sizes(const int64_t* sizes, int rank):
    cdef int axis
    return tuple([sizes[axis] for axis in range(rank)])


cdef str operand_name(const TensorCall* call, int slot):
    """What an operand is called as a parameter of `run`."""
    return (<tuple>call.rules.names)[slot]


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
