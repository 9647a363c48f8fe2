"""Python arguments of a generated `execute` → C, inline for the common types.

What is not an exact int or float goes out of line (arguments.pyx), which also raises: an
OperandError that names the argument.
"""
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport int32_t, int64_t, uint16_t, uintptr_t

cdef extern from "Python.h":
    # Declared here without an exception value: the inline code looks at the result itself.
    unsigned long long _as_unsigned "PyLong_AsUnsignedLongLong"(object) noexcept
    long long _as_signed "PyLong_AsLongLong"(object) noexcept
    void _clear_error "PyErr_Clear"() noexcept

cdef int store_scalar(int kind, object value, str argument, void* storage) except -1
cdef void* convert_address(object value, str argument) except? NULL
cdef double convert_float(object value, str argument) except? -1
cdef int64_t convert_int(object value, str argument, int bits) except? -1
cdef bint convert_flag(object value, str argument) except -1
cdef float narrow_float(double value, str argument) except? -1
cdef uint16_t float16(object value, str argument) except? 0xFFFF
cdef uint16_t bfloat16(object value, str argument) except? 0xFFFF
cdef tuple arguments_by_uid(object arguments, tuple operands)
cdef bint makes_missing(object on_missing) except -1
cdef object plan_source(object plan)
cdef int explain_calls(object functions, object owner, str table) except -1


cdef inline void* address(object value, str argument) except? NULL:
    """A device address, workspace or stream: a non-negative int."""
    cdef unsigned long long number
    if PyLong_CheckExact(value):
        number = _as_unsigned(value)
        if number != <unsigned long long>-1:
            return <void*><uintptr_t>number
        _clear_error()
    return convert_address(value, argument)


cdef inline double float64(object value, str argument) except? -1:
    """A DOUBLE scalar."""
    if PyFloat_CheckExact(value):
        return PyFloat_AS_DOUBLE(value)
    return convert_float(value, argument)


cdef inline float float32(object value, str argument) except? -1:
    """A FLOAT scalar, rounded to nearest."""
    cdef double wide = float64(value, argument)
    cdef float narrow = <float>wide
    if narrow - narrow == 0:  # finite; anything else is looked at out of line
        return narrow
    return narrow_float(wide, argument)


cdef inline int32_t int32(object value, str argument) except? -1:
    """An INT32 scalar."""
    return <int32_t>convert_int(value, argument, 32)


cdef inline int64_t int64(object value, str argument) except? -1:
    """An INT64 scalar, or a number of a family's key."""
    cdef long long number
    if PyLong_CheckExact(value):
        number = _as_signed(value)
        if number != -1:
            return number
        _clear_error()
    return convert_int(value, argument, 64)


cdef inline bint flag(object value, str argument) except -1:
    """A choice between two ways."""
    if value is True:
        return True
    return convert_flag(value, argument)
