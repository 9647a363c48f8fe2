# cython: language_level=3, freethreading_compatible=True
"""The frontend's way to call a graph, over a Binding: uids → slots, tensors → addresses.

What a call cannot say to the binding it says to the frontend's own graph: docs/accelerate.md.
"""
import ctypes
import struct

from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_New
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.binding cimport Binding
from cudnn_bindgen.runtime.dlpack cimport (
    DL_CPU, DL_CUDA_HOST, DL_FLOAT, DL_INT, DLPackExchangeAPI, DLTensor,
)
from cudnn_bindgen.runtime.exchange cimport exchange_api, read_other

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe
from cudnn_bindgen.runtime.tensor_types import SCALAR_BYTES

cdef extern from "Python.h":
    ctypedef struct PyTupleObject:
        PyObject** ob_item
    object PyBytes_FromStringAndSize(const char*, Py_ssize_t)
    object PyLong_FromVoidPtr(void*)
    void _clear_error "PyErr_Clear"() noexcept

_SCALAR_FORMATS = {"DOUBLE": "=d", "FLOAT": "=f", "HALF": "=e", "INT32": "=i", "INT64": "=q"}

# Distinct overrides that a graph remembers. A serving program has a few hundred.
MOST_OVERRIDES = 1024


cdef class FrontendCall:
    """Has the frontend's `execute`, on one binding and one graph of the frontend.

    `get_stream` is the frontend's; `default_handle` is what `graph` executes with when it is given
    none; `knows_default` says that this is known, also when it is None: the legacy stream.
    """

    cdef readonly object graph
    cdef readonly Binding module
    cdef object _get_stream, _default_handle
    cdef dict _slots             # uid → slot, of what callers pass
    cdef dict _names             # name → slot, None where it is not one operand's
    cdef dict _overrides         # key → the binding's Overrides
    cdef tuple _operands, _arguments, _defaults
    cdef int _tensors, _count
    cdef bint _check, _knows_default, _takes_overrides

    def __init__(self, graph, Binding module, get_stream, default_handle, knows_default, check):
        # Of a scalar with a value the frontend takes that value, whatever its caller passes.
        operands = tuple([o for o in module.OPERANDS if o.default is None])
        scalars = [o for o in operands if o.role == "scalar"]
        self.graph = graph
        self.module = module
        self._get_stream = get_stream
        self._default_handle = default_handle
        self._knows_default = knows_default
        self._check = check
        self._takes_overrides = module.GRAPH["is_override_shape_enabled"]
        self._operands = operands
        self._arguments = tuple([operand.argument for operand in operands])
        # They have the last slots.
        self._defaults = tuple([o.default for o in module.OPERANDS if o.default is not None])
        self._count = len(operands)
        self._tensors = self._count - len(scalars)
        self._slots = {operand.uid: slot for slot, operand in enumerate(operands)}
        self._names = {}
        for slot, operand in enumerate(operands):
            self._names[operand.name] = None if operand.name in self._names else slot
        self._overrides = {}

    def execute(
        self, tensor_dict, workspace=None, handle=None, override_uids=None, override_shapes=None,
        override_strides=None, tensor_uids=None,
    ):
        """Enqueue the graph on the handle's stream, as the frontend's `execute` does.

        tensor_dict: {uid, tensor of the graph, or name: tensor or address}; with `tensor_uids` a
        list of tensors or addresses. What the graph does not bind is ignored.
        workspace: a tensor, an address, or None: a block of the runtime's own.
        handle: None: the graph's.
        override_uids, override_shapes, override_strides: as for the frontend.
        """
        cdef tuple values
        cdef PyObject** items
        cdef list owned = []
        cdef Py_ssize_t index
        cdef bint overriding = (
            _is_given(override_uids) or _is_given(override_shapes) or _is_given(override_strides))
        stream = self._stream_of(handle)
        if stream is None or overriding and not self._takes_overrides:
            return self._delegate(
                tensor_dict, workspace, handle, override_uids, override_shapes, override_strides,
                tensor_uids)
        values = PyTuple_New(self._count + len(self._defaults))
        items = (<PyTupleObject*>values).ob_item
        if tensor_uids is None:
            for key, item in tensor_dict.items():
                self._put(items, self._slot_of(key), item, stream, owned)
        else:
            self._put_all(items, tensor_dict, tensor_uids, stream, owned)
        self._complete(items, stream, owned)
        for index in range(len(self._defaults)):
            _set(items, self._count + index, self._defaults[index])
        overrides = None
        if overriding:
            overrides = self._overrides_of(override_uids, override_shapes, override_strides)
        if self._check:
            self.module.run_items(items, workspace, stream, True, overrides)
            return
        if workspace is None:
            workspace = 0
        else:
            workspace = _buffer_address(workspace, "workspace", stream, owned)
        self.module.enqueue_items(items, workspace, stream, overrides)

    cdef object _stream_of(self, object handle):
        """The stream of the call; None where only the frontend knows it."""
        if handle is None:
            if not self._knows_default:
                return None
            handle = self._default_handle
            if handle is None:
                return 0
        return self._get_stream(handle)

    cdef int _slot_of(self, object key) except -2:
        """Where what stands under a key belongs; -1 where the graph does not bind it."""
        if PyLong_CheckExact(key):
            return self._slots.get(key, -1)
        if key is None:
            return -1
        if isinstance(key, str):
            slot = self._names.get(key, -1)
            if slot is None:
                raise OperandError(
                    "tensor_dict", "a name of one operand", f"{describe(key)}: use its uid")
            return slot
        return self._slots.get(key if isinstance(key, int) else key.get_uid(), -1)

    cdef int _put(
        self, PyObject** items, int slot, object item, object stream, list owned
    ) except -1:
        if slot < 0 or item is None:
            return 0
        if slot >= self._tensors:
            item = _scalar_value(item, self._operands[slot])
        elif not self._check:
            item = _buffer_address(item, self._arguments[slot], stream, owned)
        _set(items, slot, item)
        return 0

    cdef int _put_all(
        self, PyObject** items, object tensors, object tensor_uids, object stream, list owned
    ) except -1:
        cdef int slot
        if len(tensors) != len(tensor_uids):
            raise OperandError(
                "tensor_uids", f"{len(tensors)} uids, as there are buffers", str(len(tensor_uids)))
        for uid, item in zip(tensor_uids, tensors):
            slot = self._slot_of(uid)
            if slot >= 0 and items[slot] != NULL:
                raise OperandError("tensor_uids", "distinct uids", f"{describe(uid)} twice")
            self._put(items, slot, item, stream, owned)
        return 0

    cdef int _complete(self, PyObject** items, object stream, list owned) except -1:
        """Take what the graph itself holds of operands; raise for what nobody passed."""
        cdef int slot
        for slot in range(self._count):
            if items[slot] != NULL:
                continue
            operand = self._operands[slot]
            bound = getattr(self.graph, "_data_bindings", {}).get(operand.uid)
            self._put(items, slot, bound, stream, owned)
            if items[slot] == NULL:
                raise OperandError(
                    operand.argument, f"a buffer for {operand.name!a} (uid {operand.uid})", "none")
        return 0

    cdef object _overrides_of(self, object uids, object shapes, object strides):
        """The module's Overrides for the frontend's three lists."""
        counts = [0 if items is None else len(items) for items in (uids, shapes, strides)]
        if not counts[0] == counts[1] == counts[2]:
            raise OperandError(
                "override_uids", "as many shapes and strides as uids",
                "{}, {} and {}".format(*counts))
        key = _key(uids, shapes, strides)
        found = self._overrides.get(key)
        if found is None:
            found = self.module.Overrides()
            for uid, shape, stride in zip(uids, shapes, strides):
                found.override(uid, shape, stride)
            if len(self._overrides) >= MOST_OVERRIDES:
                self._overrides.clear()
            self._overrides[key] = found
        return found

    def _delegate(
        self, tensor_dict, workspace, handle, override_uids, override_shapes, override_strides,
        tensor_uids,
    ):
        options = given_options(override_uids, override_shapes, override_strides, tensor_uids)
        return self.graph.execute(tensor_dict, workspace, handle, **options)


def given_options(override_uids, override_shapes, override_strides, tensor_uids):
    """Keywords for the frontend's own methods: older ones do not know all that may be left out."""
    options = {
        "override_uids": override_uids,
        "override_shapes": override_shapes,
        "override_strides": override_strides,
        "tensor_uids": tensor_uids,
    }
    return {name: option for name, option in options.items() if option is not None}


cdef inline bint _is_given(object items) except -1:
    return items is not None and len(items) > 0


cdef inline int _set(PyObject** items, Py_ssize_t index, object item) noexcept:
    """Put a reference into a tuple under construction."""
    Py_INCREF(item)
    Py_XDECREF(items[index])
    items[index] = <PyObject*>item
    return 0


cdef object _key(object uids, object shapes, object strides):
    """Bytes that are equal for equal overrides only: each list stands behind its length."""
    cdef vector[int64_t] numbers
    for uid, shape, stride in zip(uids, shapes, strides):
        numbers.push_back(_integer(uid))
        for sizes in (shape, stride):
            numbers.push_back(len(sizes))
            for size in sizes:
                numbers.push_back(_integer(size))
    return PyBytes_FromStringAndSize(<const char*>numbers.data(), 8 * numbers.size())


cdef int64_t _integer(object number) except? -1:
    try:
        return number
    except (TypeError, OverflowError) as error:
        raise OperandTypeError("overrides", "ints of 64 bits", describe(number)) from error


cdef object _buffer_address(object item, str argument, object stream, list owned):
    """The address of a tensor, which is trusted, or an address.

    `owned` takes what must live until the call has returned.
    """
    cdef const DLPackExchangeAPI* api
    cdef DLTensor tensor
    if PyLong_CheckExact(item):
        return item
    api = exchange_api(item)
    if api != NULL and api.dltensor_from_py_object_no_sync != NULL:
        if api.dltensor_from_py_object_no_sync(<void*>item, &tensor) == 0:
            return PyLong_FromVoidPtr(<char*>tensor.data + tensor.byte_offset)
        _clear_error()  # types that DLPack does not know have an address, too
    data_ptr = getattr(item, "data_ptr", None)
    if callable(data_ptr):
        return data_ptr()
    read_other(item, argument, address(stream, "stream"), &tensor, owned)
    return PyLong_FromVoidPtr(<char*>tensor.data + tensor.byte_offset)


cdef object _scalar_value(object item, object operand):
    """The value of a scalar: the host tensor's, or what lies at a host address."""
    cdef const DLPackExchangeAPI* api
    cdef DLTensor tensor
    if PyLong_CheckExact(item):
        return _scalar_at(item, operand)
    api = exchange_api(item)
    if api == NULL or api.dltensor_from_py_object_no_sync == NULL:
        return item
    if api.dltensor_from_py_object_no_sync(<void*>item, &tensor) != 0:
        _clear_error()
        return item
    if tensor.device.device_type not in (DL_CPU, DL_CUDA_HOST):
        raise OperandTypeError(
            operand.argument, "a number, or a host tensor of one element",
            "a tensor in device memory")
    if not _has_one_element(&tensor):
        return item  # the module says what is wrong with it
    if tensor.dtype.code == DL_FLOAT and tensor.dtype.bits == 32:
        return (<float*>(<char*>tensor.data + tensor.byte_offset))[0]
    if tensor.dtype.code == DL_FLOAT and tensor.dtype.bits == 64:
        return (<double*>(<char*>tensor.data + tensor.byte_offset))[0]
    if tensor.dtype.code == DL_INT and tensor.dtype.bits == 32:
        return (<int32_t*>(<char*>tensor.data + tensor.byte_offset))[0]
    if tensor.dtype.code == DL_INT and tensor.dtype.bits == 64:
        return (<int64_t*>(<char*>tensor.data + tensor.byte_offset))[0]
    return item


cdef bint _has_one_element(const DLTensor* tensor) noexcept:
    cdef int axis
    for axis in range(tensor.ndim):
        if tensor.shape[axis] != 1:
            return False
    return True


cdef object _scalar_at(object where, object operand):
    """The frontend takes an int for the host address of a scalar, in the scalar's type."""
    if where == 0:
        raise OperandError(operand.argument, "the host address of a value", "0")
    where = <uintptr_t>address(where, operand.argument)
    data = ctypes.string_at(where, SCALAR_BYTES[operand.data_type])
    if operand.data_type == "BFLOAT16":
        return struct.unpack("<f", b"\0\0" + data)[0]
    return struct.unpack(_SCALAR_FORMATS[operand.data_type], data)[0]
