from libcpp.string cimport string
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.obstacle cimport Stop
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport Plan
from cudnn_bindgen.runtime.record cimport NodeDescription
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure

cdef Stop launch_loaded(
    Graph* graph, LoadedPlan* loaded, Handle* handle, Plan* plan, void** slots,
    OverrideValues* overrides, char* workspace, CUstream stream, bint may_record,
    Failure* failure
) noexcept nogil
cdef void describe_loaded(
    Graph* graph, LoadedPlan* loaded, Handle* handle, Plan* plan,
    vector[NodeDescription]& nodes, string& reason
) noexcept nogil
