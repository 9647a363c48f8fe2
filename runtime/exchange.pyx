# cython: language_level=3, freethreading_compatible=True
"""Python objects that hold tensors → DLTensor, without importing any framework.

A type's exchange API is looked up once and its functions then give a DLTensor that borrows from the
object (about 30 ns). Everything else is slower and puts what it borrows from into `owned`, a list
that the caller drops after the call, whatever happens: that is all there is to release.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.exc cimport PyErr_SetString
from cpython.object cimport PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t, uintptr_t

from cudnn_bindgen.runtime.arguments cimport address, convert_address
from cudnn_bindgen.runtime.array_interface cimport read_array_interface
from cudnn_bindgen.runtime.dlpack cimport (
    DL_FLAG_READ_ONLY, DL_MAJOR_VERSION, DLManagedTensor, DLManagedTensorVersioned,
    DLPackExchangeAPI, DLPackExchangeAPIHeader, DLTensor,
)
from cudnn_bindgen.runtime.tensor_checks cimport (
    GIVEN_ADDRESS, GIVEN_READ_ONLY, GIVEN_TENSOR, Given,
)

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe

cdef extern from * nogil:
    """
    #include <atomic>
    #include <mutex>
    #include "dlpack.hpp"

    namespace {

    // The types that were seen, never forgotten, so that looking one up takes no lock. A program
    // has a few: tensors and parameters of one framework. Those beyond are looked up each time.
    struct KnownTypes {
        static constexpr int kCapacity = 16;
        const void* types[kCapacity];
        const DLPackExchangeAPI* apis[kCapacity];
        std::atomic<int> count{0};
        std::mutex adding;

        const DLPackExchangeAPI* find(const void* type) const {
            const int known = count.load(std::memory_order_acquire);
            for (int i = 0; i < known; ++i) {
                if (types[i] == type) return apis[i];
            }
            return nullptr;
        }
        // Whether it was added: the caller then keeps the type and its API alive.
        bool add(const void* type, const DLPackExchangeAPI* api) {
            std::lock_guard<std::mutex> lock(adding);
            const int known = count.load(std::memory_order_relaxed);
            if (known == kCapacity || find(type)) return false;
            types[known] = type;
            apis[known] = api;
            count.store(known + 1, std::memory_order_release);
            return true;
        }
    };

    KnownTypes& known_types() {
        static KnownTypes* const known = new KnownTypes;
        return *known;
    }

    }  // namespace
    """
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
        return GIVEN_READ_ONLY if read_array_interface(
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
