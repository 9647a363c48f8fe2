# cython: language_level=3, freethreading_compatible=True
"""Operands that are not read at once, outputs that are left out, workspace that is a tensor."""
import sys

from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.dlpack cimport DLPackExchangeAPI, DLTensor
from cudnn_bindgen.runtime.exchange cimport (
    current_stream, exchange_api, make_exchanged, read_exchanged, read_other,
)
from cudnn_bindgen.runtime.refusals cimport operand_name
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    CUDA, CUDA_MANAGED, GIVEN_ADDRESS, GIVEN_READ_ONLY, NOT_YET_READ, UNKNOWN_DEVICE, Given,
    TensorCall, find_user_of,
)
from cudnn_bindgen.runtime.tensor_layout cimport (
    LayoutKind, Region, Span, Strided, find_span,
)
from cudnn_bindgen.runtime.workspace cimport WORKSPACE_ALIGNMENT

from cudnn_bindgen.runtime.errors import OperandError


cdef int read_others(
    TensorCall* call, PyObject** given, void* stream, list owned
) except -1:
    """Read what is NOT_YET_READ, but for outputs that are None."""
    cdef int slot
    for slot in range(call.count()):
        item = <object>given[slot]
        if item is None and call.rules.operands[slot].is_output:
            continue
        if call.given[slot] == NOT_YET_READ:
            call.given[slot] = _read(
                item, operand_name(call, slot), stream, &call.tensors[slot], owned)
    return 0


cdef int make_outputs(
    Graph* graph, TensorCall* call, PyObject** given, void* stream, list owned
) except -1:
    """Make the outputs that are None and put them into `given`; read_others comes first."""
    cdef int slot
    like = None
    for slot in range(call.count()):
        item = <object>given[slot]
        if item is not None and not PyLong_CheckExact(item):
            like = item
            break
    for slot in range(call.count()):
        if <object>given[slot] is None:
            made = _make(graph, call, slot, like)
            owned.append(made)
            given[slot] = <PyObject*>made
            call.given[slot] = _read(
                made, operand_name(call, slot), stream, &call.tensors[slot], owned)
    return 0


cdef void* read_workspace(
    const TensorCall* call, object workspace, void* stream, bint check, int* device, int64_t* size,
    list owned
) except? NULL:
    """The workspace's address; `size` becomes its bytes where they are known.

    `device` is that of the call's tensors, and becomes the workspace's where they have none. With
    `check` no tensor may share its memory.
    """
    cdef DLTensor tensor
    cdef Given how
    cdef void* memory
    if PyLong_CheckExact(workspace):
        memory = address(workspace, "workspace")
    else:
        how = _read(workspace, "workspace", stream, &tensor, owned)
        memory = <char*>tensor.data + tensor.byte_offset
        if check and how != GIVEN_ADDRESS:
            size[0] = _check_workspace(call, &tensor, how, device)
    if <uintptr_t>memory & (WORKSPACE_ALIGNMENT - 1):
        from cudnn_bindgen.runtime import tensor_errors
        raise tensor_errors.workspace_alignment_error(WORKSPACE_ALIGNMENT, <uintptr_t>memory)
    return memory


cdef void* stream_of_framework(const TensorCall* call, PyObject** given) except? NULL:
    """The current stream where no tensor was read at once; the legacy one if nobody tells."""
    cdef const DLPackExchangeAPI* api
    cdef DLTensor tensor
    cdef int slot
    for slot in range(call.count()):
        if call.given[slot] == GIVEN_ADDRESS:
            continue
        item = <object>given[slot]
        api = exchange_api(item)
        if api != NULL:
            read_exchanged(api, item, operand_name(call, slot), &tensor, [])
            return current_stream(api, &tensor)
        if type(item).__module__.partition(".")[0] == "cupy":
            return address(sys.modules["cupy"].cuda.get_current_stream().ptr, "stream")
    return NULL


cdef Given _read(object item, str name, void* stream, DLTensor* tensor, list owned) except *:
    cdef const DLPackExchangeAPI* api = exchange_api(item)
    if api != NULL:
        return read_exchanged(api, item, name, tensor, owned)
    return read_other(item, name, stream, tensor, owned)


cdef class _Maker:
    """Makes a row-major tensor by the exchange API of `like`, on the prototype's device."""

    cdef object like
    cdef str name
    cdef DLTensor prototype

    def __call__(self, dim, data_type):
        cdef const DLPackExchangeAPI* api = exchange_api(self.like)
        cdef vector[int64_t] sizes = dim
        if api == NULL:
            kind = type(self.like).__name__
            raise OperandError(self.name, f"a tensor; {kind} has no way to make one", "None")
        self.prototype.ndim = <int>sizes.size()
        self.prototype.shape = sizes.data()
        self.prototype.dtype.code, self.prototype.dtype.bits, self.prototype.dtype.lanes = (
            data_type)
        return make_exchanged(api, &self.prototype, self.name)


cdef object _make(Graph* graph, const TensorCall* call, int slot, object like):
    cdef Strided expected = call.expected_of(slot)
    cdef _Maker maker = _Maker()
    cdef int axis, other
    maker.like = like
    maker.name = operand_name(call, slot)
    for other in range(call.count()):
        if call.given[other] not in (GIVEN_ADDRESS, NOT_YET_READ):
            maker.prototype.device = call.tensors[other].device
            break
    from cudnn_bindgen.runtime.allocate import allocate_output
    return allocate_output(
        like,
        operand_name(call, slot),
        (<tuple>graph.operand_data)[slot],
        tuple([expected.dim[axis] for axis in range(expected.rank)]),
        tuple([expected.stride[axis] for axis in range(expected.rank)]),
        call.rules.operands[slot].layout.kind == LayoutKind.kRagged,
        maker,
    )


cdef int64_t _check_workspace(
    const TensorCall* call, const DLTensor* tensor, Given how, int* device
) except -1:
    """Bytes of a tensor that can be workspace: writable, dense, on the device, no operand's."""
    cdef Region region = Region(
        <uintptr_t>tensor.data + tensor.byte_offset,
        Strided(tensor.shape, tensor.strides, tensor.ndim),
        tensor.dtype.bits * tensor.dtype.lanes)
    cdef Span span = find_span(region)
    cdef uint64_t elements = 1
    cdef int axis, user
    if tensor.device.device_type not in (CUDA, CUDA_MANAGED):
        from cudnn_bindgen.runtime import tensor_errors
        raise tensor_errors.device_type_error("workspace", tensor.device.device_type)
    if tensor.device.device_type == CUDA:
        if device[0] == UNKNOWN_DEVICE:
            device[0] = tensor.device.device_id
        if tensor.device.device_id not in (device[0], UNKNOWN_DEVICE):
            from cudnn_bindgen.runtime import tensor_errors
            raise tensor_errors.other_device_error(
                "workspace", tensor.device.device_id, "the first operand", device[0])
    if how == GIVEN_READ_ONLY:
        from cudnn_bindgen.runtime import tensor_errors
        raise tensor_errors.read_only_error("workspace")
    for axis in range(tensor.ndim):
        if tensor.shape[axis] == 0:
            return 0
        elements *= <uint64_t>tensor.shape[axis]
    # Of more elements than any memory has, which might have wrapped, the span is all of it.
    if span.last - span.first + 1 != (elements * <uint64_t>region.element_bits + 7) // 8:
        from cudnn_bindgen.runtime import tensor_errors
        raise tensor_errors.workspace_gaps_error()
    user = find_user_of(region, call[0])
    if user >= 0:
        from cudnn_bindgen.runtime import tensor_errors
        raise tensor_errors.shared_workspace_error(operand_name(call, user))
    return elements * region.element_bits // 8
