# cython: language_level=3, freethreading_compatible=True
"""What the frontend takes for an operand, as a generated `execute` takes it: address or number."""
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport int32_t, int64_t, uintptr_t

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.dlpack cimport (
    DL_CPU, DL_CUDA_HOST, DL_FLOAT, DL_INT, DLPackExchangeAPI, DLTensor,
)
from cudnn_bindgen.runtime.exchange cimport exchange_api, read_other

import ctypes
import struct

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError
from cudnn_bindgen.runtime.tensor_types import SCALAR_BYTES

cdef extern from "Python.h":
    object PyLong_FromVoidPtr(void*)
    void _clear_error "PyErr_Clear"() noexcept

_SCALAR_FORMATS = {"DOUBLE": "=d", "FLOAT": "=f", "HALF": "=e", "INT32": "=i", "INT64": "=q"}


cdef object buffer_address(object item, str argument, object stream, list owned):
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


cdef object scalar_value(object item, object operand):
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
