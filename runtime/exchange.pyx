# cython: language_level=3, freethreading_compatible=True, auto_pickle=False
"""Python objects that hold tensors → DLTensor, without importing any framework.

A type's exchange API is looked up once and its functions then give a DLTensor that borrows from the
object (about 30 ns). Everything else is slower and puts what it borrows from into `owned`, a list
that the caller drops after the call, whatever happens: that is all there is to release.
"""
from array import array
from itertools import islice

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.exc cimport PyErr_SetString
from cpython.object cimport PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t

from cudnn_bindgen.runtime.arguments cimport address, convert_address
from cudnn_bindgen.runtime.dlpack cimport (
    DL_BFLOAT, DL_BOOL, DL_COMPLEX, DL_CUDA, DL_FLAG_READ_ONLY, DL_FLOAT, DL_INT, DL_MAJOR_VERSION,
    DL_UINT, DLManagedTensor, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader,
    DLTensor,
)
from cudnn_bindgen.runtime.tensor_checks cimport GIVEN_ADDRESS, GIVEN_READ_ONLY, GIVEN_TENSOR, Given

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe

cdef extern from "known_types.hpp" namespace "cudnn_bindgen" nogil:
    cppclass KnownTypes:
        const DLPackExchangeAPI* find(const void* type)
        bint add(const void* type, const DLPackExchangeAPI* api)
    KnownTypes& known_types()

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(object)

# What a consumer calls the newest DLPack it reads, and the default stream in its words.
_MAX_VERSION = (1, 3)
_LEGACY_STREAM = 1
_EXPECTED = "a tensor, or a device address as int"
# typestr's kind → DLDataTypeCode.
_CODES = {"b": DL_BOOL, "c": DL_COMPLEX, "f": DL_FLOAT, "i": DL_INT, "u": DL_UINT}
# What NumPy has no type for comes as raw bytes: of two bytes it is bfloat16, of one an FP8 type,
# which we take as bytes anyway.
_RAW = {2: (DL_BFLOAT, 16), 1: (DL_UINT, 8)}
_MAX_RANK = 64


cdef class _Managed:
    """Gives a managed tensor back to its producer."""

    cdef DLManagedTensorVersioned* tensor

    def __dealloc__(self):
        if self.tensor != NULL and self.tensor.deleter != NULL:
            self.tensor.deleter(self.tensor)


cdef class _Capsule:
    """Lets go of a capsule that nobody consumed: it then gives its tensor back."""

    cdef object capsule

    def __dealloc__(self):
        # Here and not by the list: Cython puts an exception that is on its way aside, and the
        # capsule's destructor may run Python code, which would lose it.
        self.capsule = None


cdef const DLPackExchangeAPI* exchange_api(object item) except? NULL:
    """The exchange API of the object's type; NULL if it has none of version 1."""
    cdef const DLPackExchangeAPI* api = known_types().find(<void*>Py_TYPE(item))
    if api != NULL:
        return api
    return _look_up(type(item))


cdef const DLPackExchangeAPI* _look_up(object kind) except? NULL:
    cdef const DLPackExchangeAPIHeader* header
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None or not PyCapsule_IsValid(capsule, "dlpack_exchange_api"):
        return NULL
    header = <const DLPackExchangeAPIHeader*>PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
    while header != NULL and header.version.major != DL_MAJOR_VERSION:
        header = header.prev_api
    if header != NULL and known_types().add(<void*>kind, <const DLPackExchangeAPI*>header):
        Py_INCREF(kind)
        Py_INCREF(capsule)
    return <const DLPackExchangeAPI*>header


cdef Given read_exchanged(
    const DLPackExchangeAPI* api, object item, str argument, DLTensor* out, list owned
) except *:
    """Read an object whose type has an exchange API."""
    cdef _Managed managed
    if api.dltensor_from_py_object_no_sync != NULL:
        if api.dltensor_from_py_object_no_sync(<void*>item, out) != 0:
            _refuse(item, argument)
        if out.strides == NULL and out.ndim > 0:
            _add_strides(out, owned)
        return GIVEN_TENSOR
    managed = _Managed()
    if api.managed_tensor_from_py_object_no_sync(<void*>item, &managed.tensor) != 0:
        managed.tensor = NULL
        _refuse(item, argument)
    owned.append(managed)
    return _from_versioned(managed.tensor, argument, out, owned)


cdef Given read_other(object item, str argument, void* stream, DLTensor* out, list owned) except *:
    """Read an object whose type has no exchange API; its producer orders itself before `stream`."""
    if hasattr(item, "__dlpack__"):
        return _read_dlpack(item, argument, stream, out, owned)
    interface = getattr(item, "__cuda_array_interface__", None)
    if interface is not None:
        return GIVEN_READ_ONLY if _read_array_interface(
            interface, argument, stream, out, owned) else GIVEN_TENSOR
    data_ptr = getattr(item, "data_ptr", None)
    if callable(data_ptr):
        out.data = address(data_ptr(), argument)
        out.byte_offset = 0
        return GIVEN_ADDRESS
    if not hasattr(item, "__index__") or isinstance(item, bool):
        raise OperandTypeError(argument, _EXPECTED, describe(item))
    out.data = convert_address(item, argument)
    out.byte_offset = 0
    return GIVEN_ADDRESS


cdef void* current_stream(const DLPackExchangeAPI* api, const DLTensor* tensor) except? NULL:
    """The stream that the tensor's framework works on now."""
    cdef void* stream = NULL
    if api.current_work_stream(
        tensor.device.device_type, tensor.device.device_id, &stream
    ) != 0:
        _propagate()
    return stream


cdef void* stream_address(object stream) except? NULL:
    """A cudaStream_t from what frameworks call a stream."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair = protocol() if callable(protocol) else protocol
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise OperandTypeError(
                "stream", "version and address from __cuda_stream__", describe(pair))
        version, value = pair
        if not isinstance(version, int) or version != 0:
            raise OperandError("stream", "version 0 of __cuda_stream__", describe(version))
        return address(value, "stream")
    for name in ("cuda_stream", "ptr"):
        value = getattr(stream, name, None)
        if value is not None:
            return address(value, "stream")
    return address(stream, "stream")


cdef object make_exchanged(
    const DLPackExchangeAPI* api, const DLTensor* prototype, str argument
):
    """A new row-major tensor of the prototype's dims, type and device."""
    cdef DLManagedTensorVersioned* made = NULL
    cdef void* result = NULL
    cdef DLTensor wanted = prototype[0]
    wanted.data = NULL
    wanted.strides = NULL
    wanted.byte_offset = 0
    try:
        if api.managed_tensor_allocator(&wanted, &made, NULL, _set_error) != 0:
            _propagate()
        # Takes the managed tensor over, also when it fails.
        if api.managed_tensor_to_py_object_no_sync(made, &result) != 0:
            _propagate()
    except Exception as error:
        raise OperandError(argument, f"a tensor; making one failed: {error}", "None") from error
    item = <object>result
    Py_DECREF(item)  # the function gave a reference, Cython took another
    return item


cdef void _set_error(void* context, const char* kind, const char* message) noexcept with gil:
    PyErr_SetString(MemoryError if kind == b"MemoryError" else RuntimeError, message)


cdef Given _read_dlpack(
    object item, str argument, void* stream, DLTensor* out, list owned
) except *:
    # What is asked for must be consumed on that stream. Host memory knows no streams.
    keywords = {}
    cdef uintptr_t number = <uintptr_t>stream
    try:
        if item.__dlpack_device__()[0] not in (1, 3):
            keywords["stream"] = number or _LEGACY_STREAM
        try:
            capsule = item.__dlpack__(max_version=_MAX_VERSION, **keywords)
        except TypeError:  # from before version 1
            capsule = item.__dlpack__(**keywords)
    except Exception as error:
        raise OperandError(
            argument, "a tensor that can be shared", f"{describe(item)}: {error}"
        ) from error
    owned.append(_hold(capsule))
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        return _from_versioned(
            <DLManagedTensorVersioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned"),
            argument, out, owned)
    if not PyCapsule_IsValid(capsule, "dltensor"):
        raise OperandTypeError(argument, "a DLPack capsule from __dlpack__", describe(capsule))
    out[0] = (<DLManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")).dl_tensor
    _add_strides(out, owned)
    return GIVEN_TENSOR


cdef _Capsule _hold(object capsule):
    cdef _Capsule held = _Capsule()
    held.capsule = capsule
    return held


cdef Given _from_versioned(
    const DLManagedTensorVersioned* managed, str argument, DLTensor* out, list owned
) except *:
    if managed.version.major != DL_MAJOR_VERSION:
        raise OperandError(
            argument, f"version {DL_MAJOR_VERSION} of DLPack",
            f"version {managed.version.major}.{managed.version.minor}")
    out[0] = managed.dl_tensor
    _add_strides(out, owned)
    return GIVEN_READ_ONLY if managed.flags & DL_FLAG_READ_ONLY else GIVEN_TENSOR


cdef int _add_strides(DLTensor* tensor, list owned) except -1:
    """Row-major strides, which older producers leave out."""
    cdef int64_t* strides
    cdef uint64_t following = 1  # wraps where no memory holds so much: refused as a layout
    cdef int axis
    if tensor.strides != NULL or tensor.ndim <= 0:
        return 0
    memory = bytearray(8 * tensor.ndim)
    owned.append(memory)
    strides = <int64_t*>PyByteArray_AS_STRING(memory)
    for axis in range(tensor.ndim - 1, -1, -1):
        strides[axis] = following
        following *= <uint64_t>max(<int64_t>1, tensor.shape[axis])
    tensor.strides = strides
    return 0


cdef int _refuse(object item, str argument) except -1:
    """Say whose operand the exception is that the exchange API has set."""
    try:
        _propagate()
    except Exception as error:
        first_line = str(error).partition("\n")[0]  # PyTorch adds its C++ stack
        raise OperandError(
            argument, "a tensor with device memory", f"{describe(item)}: {first_line}"
        ) from error


cdef int _propagate() except -1:
    """Raise the exception that a C function has set."""
    return -1


cdef bint _read_array_interface(
    object interface, str argument, void* stream, DLTensor* out, list owned
) except? -1:
    """Read a `__cuda_array_interface__` of versions 0 to 3, the oldest way to share memory.

    What the dict says of sizes is kept in `owned`. True if the array is read-only.
    """
    try:
        shape = tuple(islice(interface["shape"], _MAX_RANK + 1))
        code, bits = _data_type(interface["typestr"])
        data, is_read_only = interface["data"]
        strides = _strides(shape, interface.get("strides"), bits // 8)
        memory = array("q", (*shape, *strides, 0))
        own_stream = interface.get("stream")
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        kind = type(error).__name__
        raise OperandError(
            argument, "a complete __cuda_array_interface__",
            f"{describe(interface)}: {kind} {error}"
        ) from error
    _check_stream(own_stream, argument, stream)
    owned.append(memory)
    address_of_sizes, _ = memory.buffer_info()
    cdef int64_t* sizes = <int64_t*><uintptr_t>address_of_sizes
    out.data = address(data, argument)
    out.device.device_type = DL_CUDA
    out.device.device_id = -1  # the interface does not say: nobody can compare it
    out.ndim = len(shape)
    out.dtype.code = <uint8_t><int>code
    out.dtype.bits = <uint8_t><int>bits
    out.dtype.lanes = 1
    out.shape = sizes
    out.strides = sizes + out.ndim
    out.byte_offset = 0
    return bool(is_read_only)


cdef tuple _data_type(str typestr):
    order, kind, size = typestr[:1], typestr[1:2], int(typestr[2:])
    if order == ">":
        raise ValueError("big-endian")
    if kind == "V":
        return _RAW[size]
    if not 1 <= size <= 16:
        raise ValueError(f"{size} bytes an element")
    return _CODES[kind], 8 * size


cdef tuple _strides(tuple shape, object given, int size):
    """Strides in elements, from strides in bytes or from nothing: row-major."""
    if len(shape) > _MAX_RANK:
        raise ValueError(f"rank {len(shape)}")
    if given is None:
        strides = []
        following = 1
        for extent in reversed(shape):
            strides.append(following)
            following *= max(1, extent)
        return tuple(reversed(strides))
    if len(given) != len(shape):
        raise ValueError("strides of another rank than shape")
    for stride in given:
        if stride % size:
            raise ValueError(f"strides that are no multiples of {size} bytes")
    return tuple([stride // size for stride in given])


cdef int _check_stream(object producer, str argument, void* stream) except -1:
    """The array's own stream must be that of the call: nobody would wait for it otherwise."""
    cdef uintptr_t own = <uintptr_t>stream
    if producer is None:
        return 0
    if not isinstance(producer, int):
        raise OperandTypeError(
            argument, "None or an int as the stream of its array interface", describe(producer))
    if producer == (own or _LEGACY_STREAM):
        return 0
    raise OperandError(
        argument,
        f"an array whose work is on stream {own or _LEGACY_STREAM}, that of the call",
        f"one on stream {describe(producer)}: pass that one as `stream`, or wait for it",
    )
