from cudnn_bindgen.runtime.library cimport CUstream
from cudnn_bindgen.runtime.plan_set cimport PlanSet
from cudnn_bindgen.runtime.registered cimport Graph

cdef int provide_plan(Graph* self, CUstream stream) except -1
cdef int choose_first(Graph* self, PlanSet* plans) except -1
