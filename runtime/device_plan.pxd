from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.library cimport CUstream
from cudnn_bindgen.runtime.plan cimport MAX_DEVICES, LoadedPlan, PlanSet
from cudnn_bindgen.runtime.registered cimport Graph


cdef inline Handle* handle_of_call(Graph* self, CUstream stream) except NULL nogil:
    """The handle of a call that is about to enter. Raises that no plan is loaded before all else.

    Of a chain that is found out later: provide_plan asks each link.
    """
    if self.plans.load() == NULL and self.chain == NULL:
        refuse_unloaded(self)
    return current_handle(stream, self.owner)


cdef inline LoadedPlan* chosen_plan(Graph* self, const Handle* handle) noexcept nogil:
    """The graph's plan for the handle's device, which exists there: `by_device` has it.

    For a thread that is inside the plans. NULL: provide_plan comes first.
    """
    cdef PlanSet* plans = self.plans.load()
    if plans == NULL or handle.device >= MAX_DEVICES:
        return NULL
    return plans.chosen[handle.device].load()


cdef int provide_plan(Graph* self, CUstream stream) except -1
cdef int choose_first(Graph* self, PlanSet* plans) except -1
cdef int refuse_unloaded(Graph* self) except -1 nogil
