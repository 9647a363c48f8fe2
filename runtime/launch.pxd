from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport Plan
from cudnn_bindgen.runtime.registered cimport Graph

cdef int launch_loaded(
    Graph* graph, LoadedPlan* loaded, Handle* handle, Plan* plan, void** slots,
    OverrideValues* overrides, char* workspace, CUstream stream, bint may_record
) except -1 nogil
cdef list describe_loaded(Graph* graph, LoadedPlan* loaded, Handle* handle, Plan* plan)
