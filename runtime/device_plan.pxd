from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.library cimport CUstream, Failure
from cudnn_bindgen.runtime.loaded cimport MAX_DEVICES, LoadedPlan
from cudnn_bindgen.runtime.plan_set cimport DeviceKind, PlanSet
from cudnn_bindgen.runtime.registered cimport Graph

cdef enum NotChosen:
    NO_PLAN                      # is for the device: `there` is what there are plans for
    OTHER_KIND                   # the only plan is for `plan`
    TOO_LARGE                    # workspace: `frontend_size` and cuDNN's `size`
    BY_CUDNN                     # `failure`; with no call, for want of memory


# Why no plan was chosen.
cdef cppclass Choice:
    NotChosen why
    vector[DeviceKind] there
    DeviceKind plan
    int64_t frontend_size
    int64_t size
    Failure failure


cdef inline Handle* handle_of_call(Graph* self, CUstream stream) except NULL nogil:
    """The handle of a call that is about to enter. Raises that no plan is loaded before all else.
    """
    if self.plans.load() == NULL:
        refuse_unloaded(self)
    return current_handle(stream, self.owner)


cdef inline LoadedPlan* chosen_plan(Graph* self, const Handle* handle) noexcept nogil:
    """The graph's plan for the handle's device, which exists there: `by_device` has it.

    For a thread that is inside the plans. NULL: provide_plan, of missing_plan.pyx, comes first.
    """
    cdef PlanSet* plans = self.plans.load()
    if plans == NULL or handle.device >= MAX_DEVICES:
        return NULL
    return plans.chosen[handle.device].load()


cdef int choose_plan(
    Graph* self, PlanSet* plans, Handle* handle, DeviceKind kind, Choice* choice
) noexcept nogil
cdef int add_plan(
    Graph* self, PlanSet* plans, LoadedPlan* loaded, Handle* handle, Choice* choice
) noexcept nogil
cdef int find_kind(Graph* self, Handle* handle, DeviceKind* kind) except -1 nogil
cdef int check_match(Graph* self, DeviceKind plan, DeviceKind kind) except -1
cdef int refuse_choice(Graph* self, DeviceKind kind, Choice* choice) except -1
cdef int refuse_missing(
    Graph* self, vector[DeviceKind]& there, DeviceKind kind, str remedy
) except -1
cdef int refuse_unloaded(Graph* self) except -1 nogil
