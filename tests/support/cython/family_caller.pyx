# cython: language_level=3
"""Calls rows's `enqueue` without the GIL, as other people's Cython code would."""
from libc.stdint cimport int64_t, uintptr_t

from rows cimport enqueue


def execute(
    uintptr_t x, uintptr_t w, uintptr_t y, float epsilon, int64_t m,
    uintptr_t workspace_ptr=0, uintptr_t stream=0,
):
    with nogil:
        enqueue(
            <void*>x, <void*>w, <void*>y, epsilon, m, <void*>workspace_ptr, <void*>stream)
