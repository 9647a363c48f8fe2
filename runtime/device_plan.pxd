from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.plan_set cimport DeviceKind, PlanSet
from cudnn_bindgen.runtime.registered cimport Graph

cdef PlanSet* loaded_plans(Graph* self) except NULL nogil
cdef LoadedPlan* plan_on_device(Graph* self, PlanSet* plans, Handle* handle) except? NULL nogil
cdef int add_plan(
    Graph* self, PlanSet* plans, LoadedPlan* loaded, Handle* handle
) except -1 nogil
cdef int find_kind(Graph* self, Handle* handle, DeviceKind* kind) except -1 nogil
cdef int check_match(Graph* self, const LoadedPlan* loaded, DeviceKind kind) except -1 nogil
cdef int refuse_missing(
    Graph* self, const PlanSet* plans, DeviceKind kind, str remedy
) except -1
