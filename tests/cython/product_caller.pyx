# cython: language_level=3
# distutils: language=c++
"""Calls product's `enqueue` without the GIL, as other people's Cython code would."""
from libc.stdint cimport uintptr_t

from product cimport enqueue, override_values


def execute(
    uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, float alpha,
    uintptr_t workspace_ptr=0, uintptr_t stream=0, object overrides=None, int times=1,
):
    cdef void* values = override_values(overrides)
    cdef int i
    with nogil:
        for i in range(times):
            enqueue(
                <void*>a, <void*>b, <void*>c, <void*>d, alpha, values,
                <void*>workspace_ptr, <void*>stream,
            )
