# cython: language_level=3, freethreading_compatible=True
"""`__cuda_array_interface__` (versions 0 to 3) → DLTensor: the oldest way to share memory."""
from array import array
from itertools import islice

from libc.stdint cimport int64_t, uint8_t, uintptr_t

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.dlpack cimport (
    DL_BFLOAT, DL_BOOL, DL_COMPLEX, DL_CUDA, DL_FLOAT, DL_INT, DL_UINT, DLTensor,
)

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe

# typestr's kind → DLDataTypeCode.
_CODES = {"b": DL_BOOL, "c": DL_COMPLEX, "f": DL_FLOAT, "i": DL_INT, "u": DL_UINT}
# What NumPy has no type for comes as raw bytes: of two bytes it is bfloat16, of one an FP8 type,
# which we take as bytes anyway.
_RAW = {2: (DL_BFLOAT, 16), 1: (DL_UINT, 8)}
_MAX_RANK = 64
_LEGACY_STREAM = 1


cdef bint read_array_interface(
    object interface, str argument, void* stream, DLTensor* out, list owned
) except? -1:
    """Read the dict; what it says of sizes is kept in `owned`. True if the array is read-only."""
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
    if any(stride % size for stride in given):
        raise ValueError(f"strides that are no multiples of {size} bytes")
    return tuple(stride // size for stride in given)


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
