from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.plan cimport Plan
from cudnn_bindgen.runtime.registered cimport Graph

cdef LoadedPlan* loaded_plan(Graph* self) except NULL nogil
cdef Plan* device_plan_of_current(Graph* self, LoadedPlan* loaded) except NULL nogil
cdef Plan* device_plan(Graph* self, LoadedPlan* loaded, Handle* handle) except NULL nogil
