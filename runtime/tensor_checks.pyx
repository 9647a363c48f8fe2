# cython: language_level=3, freethreading_compatible=True
"""What each check of `run` compares (docs/tensors.md); tensor_errors.py says what is wrong."""
from libc.stdint cimport int64_t, uint32_t, uintptr_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.dlpack cimport DL_CUDA, DL_CUDA_MANAGED, DLTensor
from cudnn_bindgen.runtime.driver cimport CUDA_SUCCESS, CUdevice, CUstream, DriverApi
from cudnn_bindgen.runtime.exchange cimport GIVEN_ADDRESS, GIVEN_READ_ONLY, Given
from cudnn_bindgen.runtime.handle cimport current_handle
from cudnn_bindgen.runtime.library cimport driver_api
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_layout cimport (
    LayoutMatch, LayoutRule, Overlap, Region, Span, Strided, are_apart, find_overlap, find_span,
    match_layout,
)
from cudnn_bindgen.runtime.tensor_rules cimport MOST_OPERANDS, TensorRule, TensorRules

from cudnn_bindgen.runtime import tensor_errors

cdef enum:
    WORKSPACE_ALIGNMENT = 128    # bytes, as in graph.pyx


cdef int check_tensor(
    Graph* graph, TensorRules* rules, int slot, const DLTensor* tensor, Given given, int device,
    OverrideValues* overrides
) except -1:
    """Device, type, layout, and that an output can be written. `device` -1: whichever."""
    cdef const TensorRule* rule = &rules.operands[slot]
    cdef uint32_t data_type
    cdef int pack
    cdef LayoutMatch match
    if tensor.device.device_type != DL_CUDA or (
        device >= 0 and tensor.device.device_id != device and tensor.device.device_id >= 0
    ):
        _check_device(_name(rules, slot), tensor, device)
    data_type = tensor.dtype.code | tensor.dtype.bits << 8 | <uint32_t>tensor.dtype.lanes << 16
    pack = _pack(rule, data_type)
    if pack == 0:
        raise tensor_errors.data_type_error(
            _name(rules, slot), _operand(graph, slot),
            (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes))
    match = match_layout(
        rule.layout, _expected(rules, slot, overrides),
        Strided(tensor.shape, tensor.strides, tensor.ndim), pack)
    if match != LayoutMatch.kSame:
        raise _layout_error(graph, rules, slot, tensor, pack, match, overrides)
    if given == GIVEN_READ_ONLY and rule.is_output:
        raise tensor_errors.read_only_error(_name(rules, slot))
    return 0


cdef int check_address(
    Graph* graph, TensorRules* rules, int slot, void* address, OverrideValues* overrides
) except -1:
    """Null and alignment, whose exceptions are those of graph.pyx."""
    cdef bint may_be_null
    if address == NULL:
        may_be_null = graph.may_be_null[slot] if overrides == NULL else (
            overrides.is_empty_at(slot))
        if not may_be_null:
            raise tensor_errors.null_error(_name(rules, slot), _operand(graph, slot))
    elif <uintptr_t>address & graph.mask[slot]:
        raise tensor_errors.alignment_error(
            _name(rules, slot), _operand(graph, slot), <uintptr_t>address)
    return 0


cdef int check_overlaps(
    Graph* graph, TensorRules* rules, const DLTensor* tensors, const int* given, void** addresses
) except -1:
    """No output shares a byte with another operand, but for what the graph allows."""
    cdef Region regions[MOST_OPERANDS]
    cdef Span spans[MOST_OPERANDS]
    cdef int slot, output, other
    cdef size_t index
    for slot in range(graph.operands):
        if given[slot] == GIVEN_ADDRESS:
            continue
        regions[slot] = Region(
            <uintptr_t>addresses[slot],
            Strided(tensors[slot].shape, tensors[slot].strides, tensors[slot].ndim),
            tensors[slot].dtype.bits * tensors[slot].dtype.lanes)
        spans[slot] = find_span(regions[slot])
    for index in range(rules.outputs.size()):
        output = rules.outputs[index]
        if given[output] == GIVEN_ADDRESS:
            continue
        for other in range(graph.operands):
            if other == output or given[other] == GIVEN_ADDRESS:
                continue
            # Two outputs are looked at once.
            if other < output and rules.operands[other].is_output:
                continue
            if not are_apart(spans[output], spans[other]):
                _check_overlap(graph, rules, output, other, &regions[output], &regions[other])
    return 0


cdef int _check_overlap(
    Graph* graph, TensorRules* rules, int output, int other, const Region* one, const Region* two
) except -1:
    cdef Overlap overlap = find_overlap(one[0], two[0])
    cdef size_t index
    if overlap == Overlap.kApart:
        return 0
    if overlap == Overlap.kSame:
        for index in range(rules.operands[output].shares.size()):
            if rules.operands[output].shares[index] == other:
                return 0
    raise tensor_errors.overlap_error(
        _name(rules, output), _name(rules, other), not rules.operands[output].shares.empty())


cdef void* check_workspace(void* address) except? NULL:
    """The alignment of a workspace."""
    if <uintptr_t>address & (WORKSPACE_ALIGNMENT - 1):
        raise tensor_errors.workspace_alignment_error(WORKSPACE_ALIGNMENT, <uintptr_t>address)
    return address


cdef int64_t workspace_size_of(const DLTensor* tensor, Given given, int device) except -1:
    """Bytes of a tensor that can be workspace: writable, dense, on the right device."""
    cdef Region region = Region(
        0, Strided(tensor.shape, tensor.strides, tensor.ndim),
        tensor.dtype.bits * tensor.dtype.lanes)
    cdef Span span = find_span(region)
    cdef int64_t elements = 1
    cdef int axis
    _check_device("workspace", tensor, device)
    if given == GIVEN_READ_ONLY:
        raise tensor_errors.read_only_error("workspace")
    for axis in range(tensor.ndim):
        elements *= tensor.shape[axis]
    if elements == 0:
        return 0
    if span.last - span.first + 1 != <uintptr_t>((elements * region.element_bits + 7) // 8):
        raise tensor_errors.workspace_gaps_error()
    return <int64_t>(span.last - span.first + 1)


cdef int current_device(CUstream stream, void* owner) except -1:
    """Ordinal of the device that a call on `stream` runs on."""
    cdef CUdevice device = 0
    cdef const DriverApi* driver = driver_api()
    if driver.context_get_device(&device) == CUDA_SUCCESS:
        return device
    # A thread without a context gets one.
    return current_handle(stream, owner).device


cdef int _check_device(str name, const DLTensor* tensor, int device) except -1:
    if tensor.device.device_type not in (DL_CUDA, DL_CUDA_MANAGED):
        raise tensor_errors.device_type_error(name, tensor.device.device_type)
    # Managed memory belongs to all devices.
    if tensor.device.device_type == DL_CUDA and device >= 0 and (
        tensor.device.device_id not in (device, -1)
    ):
        raise tensor_errors.device_error(name, tensor.device.device_id, device)
    return 0


cdef inline int _pack(const TensorRule* rule, uint32_t data_type) noexcept nogil:
    """Declared elements in an element of that type; 0 if it is not accepted."""
    cdef size_t index
    for index in range(rule.types.size()):
        if rule.types[index].data_type == data_type:
            return rule.types[index].pack
    return 0


cdef inline Strided _expected(
    TensorRules* rules, int slot, OverrideValues* overrides
) noexcept nogil:
    cdef const vector[int64_t]* dim = &rules.operands[slot].dim
    cdef const vector[int64_t]* stride = &rules.operands[slot].stride
    if overrides != NULL:
        dim = &overrides.dim(slot)
        stride = &overrides.stride(slot)
    return Strided(dim.data(), stride.data(), <int>dim.size())


cdef tuple expected_dim(TensorRules* rules, int slot, OverrideValues* overrides):
    """What an operand's dims are in this call."""
    cdef Strided expected = _expected(rules, slot, overrides)
    return _sizes(expected.dim, expected.rank)


cdef tuple expected_stride(TensorRules* rules, int slot, OverrideValues* overrides):
    """What an operand's strides are in this call, in elements."""
    cdef Strided expected = _expected(rules, slot, overrides)
    return _sizes(expected.stride, expected.rank)


cdef class _Matcher:
    """Whether another view of a refused tensor would do; used within the call only."""

    cdef LayoutRule rule
    cdef Strided expected
    cdef int pack

    def __call__(self, dim, stride):
        cdef vector[int64_t] sizes = dim
        cdef vector[int64_t] strides = stride
        cdef Strided view = Strided(sizes.data(), strides.data(), <int>sizes.size())
        return match_layout(self.rule, self.expected, view, self.pack) == LayoutMatch.kSame


cdef object _layout_error(
    Graph* graph, TensorRules* rules, int slot, const DLTensor* tensor, int pack,
    LayoutMatch match, OverrideValues* overrides
):
    cdef Strided expected = _expected(rules, slot, overrides)
    cdef _Matcher matches = _Matcher()
    matches.rule = rules.operands[slot].layout
    matches.expected = expected
    matches.pack = pack
    return tensor_errors.layout_error(
        _name(rules, slot),
        <int>rules.operands[slot].layout.kind,
        rules.operands[slot].layout.free_axis,
        (_sizes(expected.dim, expected.rank), _sizes(expected.stride, expected.rank)),
        (_sizes(tensor.shape, tensor.ndim), _sizes(tensor.strides, tensor.ndim)),
        pack,
        match == LayoutMatch.kOtherOrder,
        matches,
    )


cdef tuple _sizes(const int64_t* sizes, int rank):
    cdef int axis
    return tuple([sizes[axis] for axis in range(rank)])


cdef object _operand(Graph* graph, int slot):
    return (<tuple>graph.operand_data)[slot]


cdef str _name(TensorRules* rules, int slot):
    return (<tuple>rules.names)[slot]
