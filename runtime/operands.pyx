# cython: language_level=3, freethreading_compatible=True, auto_pickle=False
"""Operands, workspace and stream of a call, one by one, in whatever form they come.

What `run` does not need for each tensor: other protocols, outputs that are left out, workspace that
is a tensor, a stream that only the framework knows.
"""
import sys

from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.dlpack cimport DLPackExchangeAPI, DLTensor
from cudnn_bindgen.runtime.exchange cimport (
    current_stream, exchange_api, make_exchanged, read_exchanged, read_other, stream_address,
)
from cudnn_bindgen.runtime.handle cimport WORKSPACE_ALIGNMENT
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    CUDA, CUDA_MANAGED, GIVEN_ADDRESS, GIVEN_READ_ONLY, NOT_YET_READ, UNKNOWN_DEVICE, Given,
    LayoutKind, Region, Span, Strided, TensorCall, find_span, find_user_of, operand_name,
)

from cudnn_bindgen.runtime import tensor_errors
from cudnn_bindgen.runtime.errors import OperandError

# allocate.allocate_output, once an output is made: what that imports takes 1 ms.
_allocate_output = None


cdef void* read_stream(object stream) except? NULL:
    """The stream that a caller names."""
    return address(stream, "stream") if PyLong_CheckExact(stream) else stream_address(stream)


cdef void* workspace_address(const DLTensor* tensor) except? NULL:
    """The address of what was given as workspace, if it is aligned."""
    cdef void* memory = <char*>tensor.data + tensor.byte_offset
    if <uintptr_t>memory & (WORKSPACE_ALIGNMENT - 1):
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


cdef Given read_operand(
    object item, str name, void* stream, DLTensor* tensor, list owned
) except *:
    """Read an operand or a workspace in whatever way it can be read."""
    if PyLong_CheckExact(item):
        tensor.data = address(item, name)
        tensor.byte_offset = 0
        return GIVEN_ADDRESS
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


cdef object make_output(Graph* graph, const TensorCall* call, int slot, object like):
    """A new output, by the framework of `like`, on the device of the tensors read so far."""
    global _allocate_output
    if _allocate_output is None:
        from cudnn_bindgen.runtime.allocate import allocate_output as _allocate_output
    cdef Strided expected = call.expected_of(slot)
    cdef _Maker maker = _Maker()
    cdef int axis, other
    maker.like = like
    maker.name = operand_name(call, slot)
    for other in range(call.count()):
        if call.given[other] not in (GIVEN_ADDRESS, NOT_YET_READ):
            maker.prototype.device = call.tensors[other].device
            break
    return _allocate_output(
        like,
        operand_name(call, slot),
        (<tuple>graph.operand_data)[slot],
        tuple([expected.dim[axis] for axis in range(expected.rank)]),
        tuple([expected.stride[axis] for axis in range(expected.rank)]),
        call.rules.operands[slot].layout.kind == LayoutKind.kRagged,
        maker,
    )


cdef int64_t check_workspace(
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
        raise tensor_errors.device_type_error("workspace", tensor.device.device_type)
    if tensor.device.device_type == CUDA:
        if device[0] == UNKNOWN_DEVICE:
            device[0] = tensor.device.device_id
        if tensor.device.device_id not in (device[0], UNKNOWN_DEVICE):
            raise tensor_errors.other_device_error(
                "workspace", tensor.device.device_id, "the first operand", device[0])
    if how == GIVEN_READ_ONLY:
        raise tensor_errors.read_only_error("workspace")
    for axis in range(tensor.ndim):
        if tensor.shape[axis] == 0:
            return 0
        elements *= <uint64_t>tensor.shape[axis]
    # Of more elements than any memory has, which might have wrapped, the span is all of it.
    if span.last - span.first + 1 != (elements * <uint64_t>region.element_bits + 7) // 8:
        raise tensor_errors.workspace_gaps_error()
    user = find_user_of(region, call[0])
    if user >= 0:
        raise tensor_errors.shared_workspace_error(operand_name(call, user))
    return elements * region.element_bits // 8
