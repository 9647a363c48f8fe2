# cython: language_level=3
# distutils: language=c++
"""Calls product's `enqueue` without the GIL, as other people's Cython code would."""
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from libc.stdint cimport uintptr_t

from product cimport enqueue, override_values


def execute(
    uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, float alpha,
    uintptr_t workspace_ptr=0, uintptr_t stream=0, object overrides=None, int times=1,
):
    cdef void* values = override_values(overrides)
    cdef int _i
    with nogil:
        for _i in range(times):
            enqueue(
                <void*>a, <void*>b, <void*>c, <void*>d, alpha, values,
                <void*>workspace_ptr, <void*>stream,
            )


def places(object overrides):
    """Where cuDNN finds uids, dims and strides: addresses of all vectors' contents."""
    cdef OverrideValues* values = <OverrideValues*>override_values(overrides)
    cdef size_t i
    found = [<uintptr_t>values.uids.data(), <uintptr_t>values.key().data()]
    for i in range(values.uids.size()):
        found.append(<uintptr_t>values.dims[i].data())
        found.append(<uintptr_t>values.strides[i].data())
    return found
