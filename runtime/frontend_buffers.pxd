"""Operands as the frontend takes them. See docs/accelerate.md."""

cdef object buffer_address(object item, str argument, object stream, list owned)
cdef object scalar_value(object item, object operand)
