from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport Plan
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure

cdef int check_strides(
    Graph* graph, const LoadedPlan* loaded, OverrideValues* overrides
) except -1 nogil
cdef int64_t overridden_size(
    Graph* graph, LoadedPlan* loaded, Handle* handle, const Plan* plan, OverrideValues* overrides
) except -1 nogil
cdef int raise_overridden(
    Failure* failure, Graph* graph, const OverrideValues* overrides
) except -1 nogil
cdef str describe_values(Graph* graph, const OverrideValues* overrides)
