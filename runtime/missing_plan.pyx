# cython: language_level=3, freethreading_compatible=True
"""A plan that a graph's set lacks on a device: made by the set's maker, checked, added.

Making takes seconds and may run any Python code. So whoever waits for it counts itself out of the
graph's calls: closing and replacing go on meanwhile, and what was made for a set that is gone then
is thrown away. Which set it was is known by its maker, which stays alive as long as it is needed.
"""
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.calls cimport enter_call, leave_call
from cudnn_bindgen.runtime.device_plan cimport (
    Choice, NotChosen, add_plan, check_match, choose_plan, chosen_plan, find_kind, refuse_choice,
    refuse_missing,
)
from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.library cimport (
    NOT_CAPTURING, CUcontext, CUstream, DriverApi, Failure, capture_state, check_driver, driver_api,
    relax_capture, restore_capture,
)
from cudnn_bindgen.runtime.loaded cimport LoadedPlan, load_parts, unload
from cudnn_bindgen.runtime.plan_set cimport DeviceKind, PlanSet, kind_of
from cudnn_bindgen.runtime.registered cimport Graph


cdef int provide_plan(Graph* self, CUstream stream) except -1:
    """Choose the graph's plan for the current device, or make it, for a call on `stream`.

    Called by a thread that is not inside the graph's plans. Raises what says why there is none,
    PlanMissingError in a capture, and whatever the maker raises.
    """
    cdef DeviceKind kind
    cdef LoadedPlan* made
    maker = _choose_or_find_maker(self, stream)
    if maker is None:
        return 0
    with maker.turn():
        # Another thread may have made it, or the graph been closed, while this one waited.
        if _choose_or_find_maker(self, stream) is maker:
            made = _make(self, maker, stream, &kind)
            _add(self, NULL, maker, made, kind, stream)
    return 0


cdef int choose_first(Graph* self, PlanSet* plans) except -1:
    """Choose the current device's plan in a set that no call sees yet, or make it."""
    cdef Handle* handle = current_handle(NULL, self.owner)
    cdef DeviceKind kind
    cdef Choice choice
    cdef LoadedPlan* made
    cdef int result
    find_kind(self, handle, &kind)
    with nogil:
        result = choose_plan(self, plans, handle, kind, &choice)
    if result == 0:
        return 0
    if choice.why != NotChosen.NO_PLAN or plans.maker == NULL:
        return refuse_choice(self, kind, &choice)
    _refuse_in_capture(self, choice.there, kind, NULL)
    maker = <object>plans.maker
    made = _make(self, maker, NULL, &kind)
    return _add(self, plans, maker, made, kind, NULL)


cdef object _choose_or_find_maker(Graph* self, CUstream stream):
    """None if the current device has a plan now, or the graph is closed; else who makes plans."""
    cdef Handle* handle = current_handle(stream, self.owner)
    cdef DeviceKind kind
    cdef Choice choice
    cdef PlanSet* plans
    cdef int side, result = 0
    maker = None
    find_kind(self, handle, &kind)
    side = enter_call(&self.calls)
    plans = self.plans.load()
    if plans != NULL and chosen_plan(self, handle) == NULL:
        with nogil:
            result = choose_plan(self, plans, handle, kind, &choice)
        if result < 0 and plans.maker != NULL:
            maker = <object>plans.maker
    leave_call(&self.calls, side)
    if result == 0:
        return None
    if choice.why != NotChosen.NO_PLAN or maker is None:
        refuse_choice(self, kind, &choice)
    _refuse_in_capture(self, choice.there, kind, stream)
    return maker


cdef int _refuse_in_capture(
    Graph* self, vector[DeviceKind]& there, DeviceKind kind, CUstream stream
) except -1:
    if capture_state(driver_api(), stream) == NOT_CAPTURING:
        return 0
    return refuse_missing(
        self, there, kind,
        "none is made while a stream is being captured; call load_plan() or the module once on "
        "this device before the capture")


cdef LoadedPlan* _make(
    Graph* self, object maker, CUstream stream, DeviceKind* kind
) except NULL:
    """Return a plan for the current device, which is in no set yet, and the device's kind."""
    cdef const DriverApi* driver = driver_api()
    cdef Handle* handle = current_handle(stream, self.owner)
    cdef CUcontext context = handle.context
    cdef LoadedPlan* made
    cdef Failure ignored
    cdef int mode
    find_kind(self, handle, kind)
    # The frontend creates and destroys what has nothing to do with a capture on another thread.
    mode = relax_capture(driver)
    try:
        parts = maker.make(kind.sm, kind.sm_count, kind.cudnn_version)
    finally:
        restore_capture(driver, mode)
        _make_current(driver, context)
    module, fingerprint = <tuple>self.owner
    made = load_parts(module, fingerprint, <tuple>self.operand_data, parts)
    try:
        check_match(self, kind_of(made), kind[0])
    except BaseException:
        unload(made, &ignored)
        raise
    return made


cdef int _make_current(const DriverApi* driver, CUcontext context) except -1:
    cdef CUcontext now = NULL
    check_driver("cuCtxGetCurrent", driver.context_get_current(&now))
    if now != context:
        check_driver("cuCtxSetCurrent", driver.context_set_current(context))
    return 0


cdef int _add(
    Graph* self, PlanSet* plans, object maker, LoadedPlan* made, DeviceKind kind, CUstream stream
) except -1:
    """Add what was made to `plans`, or with NULL to the graph's set, if that is still the maker's.
    """
    cdef Handle* handle
    cdef Choice choice
    cdef Failure ignored
    cdef int side, result = 0
    cdef bint is_wanted = True
    try:
        # Another one than before, if what made the plan released this thread's handles.
        handle = current_handle(stream, self.owner)
        side = enter_call(&self.calls)
        if plans == NULL:
            plans = self.plans.load()
            is_wanted = plans != NULL and plans.maker == <void*>maker
        if is_wanted:
            with nogil:
                result = add_plan(self, plans, made, handle, &choice)
        leave_call(&self.calls, side)
        if result < 0:
            refuse_choice(self, kind, &choice)
    except BaseException:
        unload(made, &ignored)
        raise
    if not is_wanted:
        unload(made, &ignored)
    return 0
