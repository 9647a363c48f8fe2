# cython: language_level=3, freethreading_compatible=True
"""A plan that a graph's set lacks on a device: made by the set's maker, checked, added.

Making takes seconds and may run any Python code. So whoever waits for it counts itself out of the
graph's calls: closing and replacing go on meanwhile, and what was made for a set that is gone then
is thrown away. Which set it was is known by its maker, which stays alive as long as it is needed.
"""
from cudnn_bindgen.runtime.calls cimport enter_call, leave_call
from cudnn_bindgen.runtime.capture cimport (
    NOT_CAPTURING, capture_state, relax_capture, restore_capture,
)
from cudnn_bindgen.runtime.device_plan cimport (
    add_plan, check_match, find_kind, plan_on_device, refuse_missing,
)
from cudnn_bindgen.runtime.driver cimport CUcontext, CUstream, DriverApi
from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.library cimport driver_api
from cudnn_bindgen.runtime.loaded cimport LoadedPlan, load_parts, unload
from cudnn_bindgen.runtime.plan_set cimport DeviceKind, PlanSet
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure, check_driver


cdef int make_missing_plan(Graph* self, CUstream stream) except -1:
    """Make the plan that the graph lacks on the current device, for a call on `stream`.

    Called by a thread that is not inside the graph's plans. Does nothing if the plan is not missing
    any more. Raises PlanMissingError in a capture, and whatever the maker raises.
    """
    maker = _maker_if_missing(self, stream)
    if maker is None:
        return 0
    with maker.turn():
        # Another thread may have made it, or the graph been closed, while this one waited.
        if _maker_if_missing(self, stream) is maker:
            _add_unless_replaced(self, maker, _make(self, maker, stream), stream)
    return 0


cdef int choose_first(Graph* self, PlanSet* plans) except -1:
    """Choose the current device's plan in a set that no call sees yet, or make it."""
    cdef LoadedPlan* made
    with nogil:
        made = plan_on_device(self, plans, current_handle(NULL, self.owner))
    if made != NULL:
        return 0
    _refuse_in_capture(self, plans, NULL)
    return _add(self, plans, _make(self, <object>plans.maker, NULL), NULL)


cdef object _maker_if_missing(Graph* self, CUstream stream):
    """The maker of the graph's plans if these lack one for the current device, else None."""
    cdef PlanSet* plans
    cdef int side = enter_call(&self.calls)
    try:
        plans = self.plans.load()
        if plans == NULL or plans.maker == NULL:
            return None
        if plan_on_device(self, plans, current_handle(stream, self.owner)) != NULL:
            return None
        _refuse_in_capture(self, plans, stream)
        return <object>plans.maker
    finally:
        leave_call(&self.calls, side)


cdef int _refuse_in_capture(Graph* self, const PlanSet* plans, CUstream stream) except -1:
    cdef DeviceKind kind
    cdef Handle* handle
    if capture_state(driver_api(), stream) == NOT_CAPTURING:
        return 0
    handle = current_handle(stream, self.owner)
    find_kind(self, handle, &kind)
    return refuse_missing(
        self, plans, kind,
        "none is made while a stream is being captured; call load_plan() or the module once on "
        "this device before the capture")


cdef LoadedPlan* _make(Graph* self, object maker, CUstream stream) except NULL:
    """Return a plan for the current device, which is in no set yet."""
    cdef const DriverApi* driver = driver_api()
    cdef Handle* handle = current_handle(stream, self.owner)
    cdef CUcontext context = handle.context
    cdef DeviceKind kind
    cdef LoadedPlan* made
    cdef Failure ignored
    cdef int mode
    find_kind(self, handle, &kind)
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
        check_match(self, made, kind)
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


cdef int _add_unless_replaced(
    Graph* self, object maker, LoadedPlan* made, CUstream stream
) except -1:
    cdef PlanSet* plans
    cdef Failure ignored
    cdef int side = enter_call(&self.calls)
    try:
        plans = self.plans.load()
        if plans != NULL and plans.maker == <void*>maker:
            return _add(self, plans, made, stream)
    finally:
        leave_call(&self.calls, side)
    unload(made, &ignored)
    return 0


cdef int _add(Graph* self, PlanSet* plans, LoadedPlan* made, CUstream stream) except -1:
    cdef Failure ignored
    try:
        with nogil:
            # Another one than before, if what made the plan released this thread's handles.
            add_plan(self, plans, made, current_handle(stream, self.owner))
    except BaseException:
        unload(made, &ignored)
        raise
    return 0
