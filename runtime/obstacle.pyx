# cython: language_level=3, freethreading_compatible=True
"""What stopped a call inside a graph's plans: provided or raised when it has left them.

Inside no Python code may run (calls.pxd), so a call says there what it lacks and begins again.
"""
from cudnn_bindgen.runtime.loaded cimport check_size
from cudnn_bindgen.runtime.missing_plan cimport provide_plan
from cudnn_bindgen.runtime.overridden cimport raise_overridden, refuse_stride
from cudnn_bindgen.runtime.refusals cimport refuse_workspace
from cudnn_bindgen.runtime.status cimport check_driver, raise_cudnn
from cudnn_bindgen.runtime.workspace cimport take_block

from cudnn_bindgen.runtime.errors import StreamError


cdef int overcome(
    Graph* self, Stop stop, Obstacle* obstacle, OverrideValues* overrides,
    int64_t workspace_bytes, CUstream stream
) except -1:
    """Provide what a call lacked, which begins again then, or raise what was wrong."""
    if stop == Stop.AT_PLAN:
        return provide_plan(self, stream)
    if stop == Stop.AT_WORKSPACE:
        return take_block(stream, obstacle.size, self.owner)
    if stop == Stop.AT_SMALL_WORKSPACE:
        return refuse_workspace(obstacle.size, workspace_bytes)
    if stop == Stop.AT_LARGE_WORKSPACE:
        return check_size(
            (<tuple>self.owner)[0], obstacle.frontend_size + <object>obstacle.size)
    if stop == Stop.AT_STREAM or stop == Stop.AT_CAPTURE:
        raise StreamError((<tuple>self.owner)[0], stop == Stop.AT_CAPTURE)
    if stop == Stop.AT_STRIDE:
        return refuse_stride(self, overrides, obstacle)
    if obstacle.failure.call == NULL:
        raise MemoryError
    if obstacle.failure.of_driver:
        return check_driver(obstacle.failure.call, obstacle.failure.status)
    if overrides != NULL:
        return raise_overridden(&obstacle.failure, self, overrides)
    return raise_cudnn(obstacle.failure.call, obstacle.failure.status, self.owner)
