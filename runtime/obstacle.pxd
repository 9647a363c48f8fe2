from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure


# Where a call stopped before it was launched; `Obstacle` has the rest.
cdef enum Stop:
    NOWHERE = 0
    AT_PLAN                      # none is chosen for the device
    AT_WORKSPACE                 # the stream has no block of `size` bytes
    AT_SMALL_WORKSPACE           # the caller's has less than `size` bytes
    AT_LARGE_WORKSPACE           # `frontend_size` and cuDNN's `size` are more than can be
    AT_STREAM                    # a part of the launch would not wait for it
    AT_CAPTURE                   # a part of the launch would not be in it
    AT_STRIDE                    # an overridden one: slot, axis, and the alignment that it breaks
    AT_FAILURE


cdef struct Obstacle:
    int64_t size
    int64_t frontend_size
    int slot
    int axis
    int64_t alignment
    Failure failure


cdef int overcome(
    Graph* self, Stop stop, Obstacle* obstacle, OverrideValues* overrides,
    int64_t workspace_bytes, CUstream stream
) except -1
