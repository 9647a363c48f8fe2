# cython: language_level=3, freethreading_compatible=True
"""The rarer ways in which an argument comes, and what is said when it is wrong or missing."""
import operator
import os
import struct
from collections.abc import Mapping
from itertools import islice

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.math cimport isfinite, isinf, isnan
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uintptr_t
from libc.string cimport memcpy

from cudnn_bindgen.runtime.dlpack cimport DL_CPU, DL_CUDA_HOST

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe

cdef extern from "Python.h":
    ctypedef void* vectorcallfunc
    ctypedef struct PyMethodDef:
        void* ml_meth
        int ml_flags
    ctypedef struct PyCFunctionObject:
        PyMethodDef* m_ml
        PyObject* m_self
        vectorcallfunc vectorcall
    ctypedef struct _Type "PyTypeObject":
        Py_ssize_t tp_vectorcall_offset
    enum: METH_FASTCALL, METH_KEYWORDS
    _Type* Py_TYPE(object)
    Py_ssize_t PyVectorcall_NARGS(size_t)
    PyObject* PyErr_Occurred()
    PyObject* PyExc_TypeError
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_Restore(PyObject*, PyObject*, PyObject*)

ctypedef PyObject* (*_Method)(PyObject*, PyObject**, Py_ssize_t, PyObject*) noexcept
# How scalars are stored; the place of each is its kind.
SCALARS = ("BFLOAT16", "DOUBLE", "FLOAT", "HALF", "INT32", "INT64")


cdef int store_scalar(int kind, object value, str argument, void* storage) except -1:
    """Write a scalar's bits, at most 8 bytes; `kind` is its place in SCALARS."""
    if kind == 0:
        (<uint16_t*>storage)[0] = bfloat16(value, argument)
    elif kind == 1:
        (<double*>storage)[0] = float64(value, argument)
    elif kind == 2:
        (<float*>storage)[0] = float32(value, argument)
    elif kind == 3:
        (<uint16_t*>storage)[0] = float16(value, argument)
    elif kind == 4:
        (<int32_t*>storage)[0] = int32(value, argument)
    else:
        (<int64_t*>storage)[0] = int64(value, argument)
    return 0


cdef void* convert_address(object value, str argument) except? NULL:
    """An address that is no plain int: NumPy integers and the like, never a tensor or a flag."""
    expected = "a cudaStream_t as int" if argument == "stream" else "a device address as int"
    if isinstance(value, bool):
        raise OperandTypeError(argument, expected, describe(value))
    number = _integer(value, argument, expected)
    if not 0 <= number < 1 << 64:
        raise OperandError(argument, "an address from 0 to 2**64 - 1", describe(number))
    return <void*><uintptr_t><unsigned long long>number


cdef double convert_float(object value, str argument) except? -1:
    """A number that is no plain float: ints, NumPy scalars, host tensors of one element."""
    if _is_array(value):
        value = _host_value(value, argument)
    # float() takes text, too, and whatever has bytes of it.
    if not hasattr(type(value), "__float__") and not hasattr(type(value), "__index__"):
        raise OperandTypeError(argument, "a number", describe(value))
    try:
        return float(value)
    except TypeError as error:
        raise OperandTypeError(argument, "a number", describe(value)) from error
    except OverflowError as error:
        raise OperandError(argument, "a number that a double holds", describe(value)) from error


cdef int64_t convert_int(object value, str argument, int bits) except? -1:
    """A signed integer of `bits` bits, or a host tensor of one."""
    if _is_array(value):
        value = _host_value(value, argument)
    number = _integer(value, argument, "an int")
    cdef object limit = 1  # a Python int, which a shift by 63 does not overflow
    limit <<= bits - 1
    if not -limit <= number < limit:
        raise OperandError(argument, f"an int of {bits} bits", describe(number))
    return number


cdef float narrow_float(double value, str argument) except? -1:
    """Infinities and NaN pass; a finite number that a float does not hold is an error."""
    if isfinite(value):
        raise OperandError(argument, "a number that a float holds", repr(value))
    return <float>value


cdef uint16_t float16(object value, str argument) except? 0xFFFF:
    """The bits of a HALF scalar, rounded to nearest, ties to even."""
    cdef double number = convert_float(value, argument)
    try:
        return struct.unpack("<H", struct.pack("<e", number))[0]
    except OverflowError:
        raise OperandError(argument, "a number that a half holds", repr(number)) from None


cdef uint16_t bfloat16(object value, str argument) except? 0xFFFF:
    """The bits of a BFLOAT16 scalar, rounded to nearest, ties to even."""
    cdef double wide = convert_float(value, argument)
    cdef float narrow = <float>wide
    cdef uint32_t bits
    memcpy(&bits, &narrow, sizeof(bits))
    if isnan(wide):
        return <uint16_t>(bits >> 16 | 0x40)
    if not isinf(wide):
        # Rounding twice could go wrong at ties: mark an inexact float as odd, towards zero, first.
        if narrow != wide:
            if abs(<double>narrow) > abs(wide):
                bits -= 1
            bits |= 1
        bits += 0x7FFF + (bits >> 16 & 1)
        if bits & 0x7F800000 == 0x7F800000:
            raise OperandError(argument, "a number that a bfloat16 holds", repr(wide))
    return <uint16_t>(bits >> 16)


cdef bint convert_flag(object value, str argument) except -1:
    """What has a truth value."""
    try:
        return bool(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise OperandTypeError(argument, "True or False", describe(value)) from error


cdef object _integer(object value, str argument, str expected):
    # Tensors have __index__ too, but a tensor is not its own address.
    if _is_array(value):
        raise OperandTypeError(
            argument, expected, f"{describe(value)}; pass its address (data_ptr())")
    try:
        return operator.index(value)
    except TypeError as error:
        raise OperandTypeError(argument, expected, describe(value)) from error


cdef bint _is_array(object value):
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


cdef object _host_value(object value, str argument):
    """The one element of a host tensor: reading device memory would wait for the GPU."""
    expected = "a number, or a host tensor of one element"
    try:
        on_host = value.__dlpack_device__()[0] in (DL_CPU, DL_CUDA_HOST)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise OperandTypeError(argument, expected, f"{describe(value)}: {error}") from error
    if not on_host:
        raise OperandTypeError(argument, expected, f"{describe(value)} in device memory")
    try:
        return value.item()
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise OperandTypeError(argument, expected, f"{describe(value)}: {error}") from error


cdef int explain_calls(object functions, object owner, str table) except -1:
    """Let functions of a module say what a call lacks: Cython only counts what it refuses.

    They get the docstrings that attributes of `owner` have by their names, and the `table` of
    operands below it; None: theirs stay.
    """
    cdef PyCFunctionObject* compiled
    for function in functions:
        compiled = <PyCFunctionObject*><PyObject*>function
        # Each object has an entry of its own: CPython's public protocol (PEP 590), by which a
        # type says in tp_vectorcall_offset where its objects keep theirs. Nobody calls a
        # function before its module is imported, so no other thread sees the entry change.
        # _call does what Cython's entry does as long as all of this holds: the entry lies where a
        # PyCFunctionObject has it, which Cython's functions begin with; the method takes an
        # array and names, and for itself the function. Where another Cython or Python differs,
        # the function keeps its entry, and Cython's own message stays.
        if (<char*>&compiled.vectorcall - <char*>compiled != Py_TYPE(function).tp_vectorcall_offset
                or compiled.m_ml.ml_flags != METH_FASTCALL | METH_KEYWORDS
                or compiled.m_self != <PyObject*>function):
            continue
        compiled.vectorcall = <vectorcallfunc>_call
        if owner is not None:
            text = (<str>getattr(owner, function.__name__).__doc__).replace("\n        ", "\n")
            function.__doc__ = f"{text}\n{table}"
    return 0


cdef PyObject* _call(
    PyObject* function, PyObject** given, size_t flags, PyObject* names
) except NULL:
    """What Cython's own entry of a function does; looks at the arguments again if it fails."""
    cdef Py_ssize_t count = PyVectorcall_NARGS(flags)
    cdef PyObject* result = (<_Method>(<PyCFunctionObject*>function).m_ml.ml_meth)(
        function, given, count, names)
    if result == NULL and PyErr_Occurred() == PyExc_TypeError:
        _explain(<object>function, count, names)
    return result


cdef int _explain(object function, Py_ssize_t count, PyObject* names) except -1:
    """Replace the TypeError that is set, if the arguments are not those of the function."""
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* traceback
    PyErr_Fetch(&kind, &error, &traceback)
    try:
        from cudnn_bindgen.runtime.call_errors import compiled_call_error
        clearer = compiled_call_error(function, count, () if names == NULL else <tuple>names)
    except BaseException:
        Py_XDECREF(kind)
        Py_XDECREF(error)
        Py_XDECREF(traceback)
        raise
    if clearer is not None:
        Py_INCREF(clearer)
        Py_XDECREF(error)
        error = <PyObject*>clearer
    PyErr_Restore(kind, error, traceback)
    return 0


cdef tuple arguments_by_uid(object arguments, tuple operands):
    """The arguments of `execute` in order, from a mapping keyed by uid."""
    if not isinstance(arguments, Mapping):
        raise OperandTypeError(
            "arguments", "a mapping from uids to addresses and values", describe(arguments))
    values = []
    for operand in operands:
        value = arguments.get(operand.uid, operand.default)
        if value is None:
            given = [describe(uid) for uid in islice(arguments, len(operands) + 1)]
            got = f"uids {', '.join(given)}" if given else "none"
            raise OperandError(operand.argument, f"an entry for uid {operand.uid}", got)
        values.append(value)
    uids = [operand.uid for operand in operands]
    unknown = [uid for uid in arguments if uid not in uids]
    if unknown:
        raise OperandError(
            "arguments", f"uids among {', '.join(map(str, uids))}", f"uid {describe(unknown[0])}")
    return tuple(values)


cdef bint makes_missing(object on_missing) except -1:
    """Whether a plan is made where there is none: what `load_plan` was told."""
    if not isinstance(on_missing, str) or on_missing not in ("refuse", "plan"):
        raise OperandError("on_missing", '"refuse" or "plan"', describe(on_missing))
    return on_missing == "plan"


cdef object plan_source(object plan):
    """What `load_plan` was given: a file's content, or its path as text."""
    if isinstance(plan, (bytes, bytearray, memoryview)):
        return bytes(plan)
    expected = "bytes of a plan file, or its path"
    try:
        path = os.fsencode(plan)
    except TypeError as error:
        raise OperandTypeError("plan", expected, describe(plan)) from error
    except UnicodeEncodeError as error:
        raise OperandError("plan", expected, describe(plan)) from error
    if b"\0" in path:
        raise OperandError("plan", expected, describe(plan))
    return os.fsdecode(path)
