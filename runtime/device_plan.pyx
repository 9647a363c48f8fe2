# cython: language_level=3, freethreading_compatible=True
"""Which plan of a graph serves a device: chosen from its set, created by the first who asks.

A plan that the set lacks is made by the set's maker, checked and added. Making takes seconds and
may run any Python code. So whoever waits for it counts itself out of the graph's calls: closing and
replacing go on meanwhile, and what was made for a set that is gone then is thrown away. Which set
it was is known by its maker, which stays alive as long as it is needed.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.library cimport (
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,
    NOT_CAPTURING, CUcontext, CUstream, DriverApi, Failure, capture_state, check_driver, cudnn_api,
    driver_api, raise_cudnn, relax_capture, restore_capture,
)
from cudnn_bindgen.runtime.plan cimport (
    MAX_DEVICES, DeviceKind, LoadedPlan, Plan, PlanSet, check_size, create_kernels, create_plan,
    destroy_plan,
    find_plan, has_sum, kind_of, kinds_of, load_parts, unload,
)
from cudnn_bindgen.runtime.registered cimport Graph, enter_call, leave_call

from cudnn_bindgen.runtime.errors import (
    OperandError, PlanMismatchError, PlanMissingError, PlanNotLoadedError, plan_command,
)

cdef extern from "Python.h":
    const char* PyBytes_AS_STRING(PyObject*) nogil
    Py_ssize_t PyBytes_GET_SIZE(PyObject*) nogil

cdef enum:
    # cuDNN 9.21: cudnn_graph.h, CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED.
    OVERRIDES_SINCE = 92100


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
    _find_kind(self, handle, &kind)
    with nogil:
        result = _choose_plan(self, plans, handle, kind, &choice)
    if result == 0:
        return 0
    if choice.why != NotChosen.NO_PLAN or plans.maker == NULL:
        return _refuse_choice(self, kind, &choice)
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
    _find_kind(self, handle, &kind)
    side = enter_call(self.calls)
    plans = self.plans.load()
    if plans != NULL and chosen_plan(self, handle) == NULL:
        with nogil:
            result = _choose_plan(self, plans, handle, kind, &choice)
        if result < 0 and plans.maker != NULL:
            maker = <object>plans.maker
    leave_call(self.calls, side)
    if result == 0:
        return None
    if choice.why != NotChosen.NO_PLAN or maker is None:
        _refuse_choice(self, kind, &choice)
    _refuse_in_capture(self, choice.there, kind, stream)
    return maker


cdef int _refuse_in_capture(
    Graph* self, vector[DeviceKind]& there, DeviceKind kind, CUstream stream
) except -1:
    if capture_state(driver_api(), stream) == NOT_CAPTURING:
        return 0
    return _refuse_missing(
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
    _find_kind(self, handle, kind)
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
        _check_match(self, kind_of(made), kind[0])
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
        side = enter_call(self.calls)
        if plans == NULL:
            plans = self.plans.load()
            is_wanted = plans != NULL and plans.maker == <void*>maker
        if is_wanted:
            with nogil:
                result = _add_plan(self, plans, made, handle, &choice)
        leave_call(self.calls, side)
        if result < 0:
            _refuse_choice(self, kind, &choice)
    except BaseException:
        unload(made, &ignored)
        raise
    if not is_wanted:
        unload(made, &ignored)
    return 0


cdef int _choose_plan(
    Graph* self, PlanSet* plans, Handle* handle, DeviceKind kind, Choice* choice
) noexcept nogil:
    """Choose the set's plan for the handle's device, of this kind, and create it there.

    Returns 0 when `chosen` has it, else -1 and what `choice` says: for `_refuse_choice`, when the
    thread is inside the plans no more.
    """
    cdef LoadedPlan* loaded
    choice.why = NotChosen.NO_PLAN
    self.building.lock()
    # Nothing to choose from one: it may run on another number of multiprocessors.
    if plans.maker == NULL and plans.plans.size() == 1:
        loaded = plans.plans[0]
    else:
        loaded = find_plan(plans, kind)
        if loaded == NULL:
            choice.there = kinds_of(plans)
    self.building.unlock()
    if loaded == NULL:
        return -1
    choice.plan = kind_of(loaded)
    if not _fits(choice.plan, kind):
        choice.why = NotChosen.OTHER_KIND
        return -1
    if _create(self, loaded, handle, choice) < 0:
        return -1
    plans.chosen[handle.device].store(loaded)
    return 0


cdef bint _fits(DeviceKind plan, DeviceKind kind) noexcept nogil:
    """Whether a plan may run on a kind of device; of cuDNN's, cuDNN knows the rest."""
    if plan.sm != kind.sm:
        return False
    # Kernels have the number of multiprocessors in their grids, and need no version of cuDNN.
    return plan.sm_count == kind.sm_count if plan.cudnn_version == 0 else (
        plan.cudnn_version == kind.cudnn_version)


cdef int _add_plan(
    Graph* self, PlanSet* plans, LoadedPlan* loaded, Handle* handle, Choice* choice
) noexcept nogil:
    """Give the handle's device a plan that the set did not have. What fails adds nothing.

    Returns 0, or -1 as _choose_plan does.
    """
    choice.plan = kind_of(loaded)
    if _create(self, loaded, handle, choice) < 0:
        return -1
    self.building.lock()
    plans.plans.push_back(loaded)
    self.building.unlock()
    plans.chosen[handle.device].store(loaded)
    return 0


cdef int _find_kind(Graph* self, Handle* handle, DeviceKind* kind) except -1 nogil:
    """Ask what a plan for the handle's device must be for."""
    cdef const DriverApi* driver = driver_api()
    cdef int major = 0, minor = 0
    if handle.device >= MAX_DEVICES:
        with gil:
            raise OperandError("device", f"an ordinal below {MAX_DEVICES}", str(handle.device))
    kind.cudnn_version = <int>cudnn_api().get_version()
    if self.overrides != NULL and kind.cudnn_version < OVERRIDES_SINCE:
        with gil:
            raise PlanMismatchError(
                (<tuple>self.owner)[0], "cuDNN for a graph with override shapes",
                f"{OVERRIDES_SINCE} or newer", str(kind.cudnn_version))
    check_driver("cuDeviceGetAttribute", driver.device_get_attribute(
        &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle.device))
    check_driver("cuDeviceGetAttribute", driver.device_get_attribute(
        &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle.device))
    kind.sm = 10 * major + minor
    kind.sm_count = 0
    return check_driver("cuDeviceGetAttribute", driver.device_get_attribute(
        &kind.sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle.device))


cdef int _check_match(Graph* self, DeviceKind plan, DeviceKind kind) except -1:
    """Compare what a plan was built with to what is here, before cuDNN does so less clearly."""
    module = (<tuple>self.owner)[0]
    if plan.cudnn_version not in (0, kind.cudnn_version):
        raise PlanMismatchError(
            module, "cuDNN", str(plan.cudnn_version), str(kind.cudnn_version),
            _command_for(self, kind))
    if kind.sm != plan.sm:
        raise PlanMismatchError(
            module, "SM", str(plan.sm), str(kind.sm), _command_for(self, kind))
    if plan.cudnn_version == 0 and plan.sm_count != kind.sm_count:
        raise PlanMismatchError(
            module, "a number of multiprocessors of", str(plan.sm_count), str(kind.sm_count),
            _command_for(self, kind))
    return 0


cdef str _command_for(Graph* self, DeviceKind kind):
    return plan_command(<str>self.source, f"sm_{kind.sm}:{kind.sm_count}")


cdef int _refuse_choice(Graph* self, DeviceKind kind, Choice* choice) except -1:
    """Raise what _choose_plan or _add_plan has found."""
    if choice.why == NotChosen.NO_PLAN:
        return _refuse_missing(
            self, choice.there, kind,
            'load_plan(on_missing="plan") makes one where nvidia-cudnn-frontend is installed')
    if choice.why == NotChosen.OTHER_KIND:
        _check_match(self, choice.plan, kind)
    if choice.why == NotChosen.TOO_LARGE:
        return check_size((<tuple>self.owner)[0], choice.frontend_size + <object>choice.size)
    if choice.failure.call == NULL:
        raise MemoryError
    # Asked first: only cuDNN knows which plans run on another number of multiprocessors.
    if (
        not choice.failure.of_driver
        and choice.failure.status == CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH
        and choice.plan.sm_count not in (0, kind.sm_count)
    ):
        raise PlanMismatchError(
            (<tuple>self.owner)[0], "a number of multiprocessors of",
            str(choice.plan.sm_count), str(kind.sm_count), _command_for(self, kind))
    if choice.failure.of_driver:
        return check_driver(choice.failure.call, choice.failure.status)
    return raise_cudnn(choice.failure.call, choice.failure.status, self.owner)


cdef int _refuse_missing(
    Graph* self, vector[DeviceKind]& there, DeviceKind kind, str remedy
) except -1:
    """Raise that no plan is for `kind`, and which there are."""
    raise PlanMissingError(
        (<tuple>self.owner)[0],
        [(each.sm, each.sm_count, each.cudnn_version) for each in there],
        (kind.sm, kind.sm_count, kind.cudnn_version),
        remedy,
        _command_for(self, kind))


cdef int refuse_unloaded(Graph* self) except -1 nogil:
    """Raise that there is no plan."""
    with gil:
        raise PlanNotLoadedError(
            f"{(<tuple>self.owner)[0]}: no plan is loaded, because the module was closed or "
            "emitted from a structure file: call load_plan() first, with the file that "
            f"{plan_command(<str>self.source)} makes"
        )


cdef int _create(
    Graph* self, LoadedPlan* loaded, Handle* handle, Choice* choice
) noexcept nogil:
    """Create the execution plan on the handle's device, unless another thread has."""
    cdef Plan* plan
    cdef Failure ignored
    cdef int result = 0
    choice.why = NotChosen.BY_CUDNN
    choice.failure.call = NULL
    self.building.lock()
    plan = loaded.by_device[handle.device].load()
    if plan == NULL:
        if loaded.kernels != NULL:
            plan = create_kernels(loaded, handle, &choice.failure)
        else:
            plan = create_plan(
                cudnn_api(), handle, PyBytes_AS_STRING(<PyObject*>loaded.text),
                PyBytes_GET_SIZE(<PyObject*>loaded.text) + 1, &choice.failure)
        if plan == NULL:
            result = -1
        elif not has_sum(loaded, plan.workspace_size):
            choice.why = NotChosen.TOO_LARGE
            choice.frontend_size = loaded.frontend_workspace
            choice.size = plan.workspace_size
            destroy_plan(plan, &ignored)
            result = -1
        else:
            loaded.by_device[handle.device].store(plan)
    self.building.unlock()
    return result
