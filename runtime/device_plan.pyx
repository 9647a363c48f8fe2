# cython: language_level=3, freethreading_compatible=True
"""A graph's execution plan on a device: chosen from its set, created by the first who asks."""
from cpython.ref cimport PyObject
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.library cimport (
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, DriverApi,
    Failure, check_driver, cudnn_api, driver_api, raise_cudnn,
)
from cudnn_bindgen.runtime.loaded cimport MAX_DEVICES, LoadedPlan, check_size, has_sum
from cudnn_bindgen.runtime.plan cimport Plan, create_plan, destroy_plan
from cudnn_bindgen.runtime.plan_set cimport DeviceKind, PlanSet, find_plan, kind_of, kinds_of
from cudnn_bindgen.runtime.registered cimport Graph

from cudnn_bindgen.runtime.errors import (
    OperandError, PlanMismatchError, PlanMissingError, PlanNotLoadedError,
)

cdef extern from "Python.h":
    const char* PyBytes_AS_STRING(PyObject*) nogil
    Py_ssize_t PyBytes_GET_SIZE(PyObject*) nogil

cdef enum:
    # cuDNN 9.21: cudnn_graph.h, CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED.
    OVERRIDES_SINCE = 92100


cdef int choose_plan(
    Graph* self, PlanSet* plans, Handle* handle, DeviceKind kind, Choice* choice
) noexcept nogil:
    """Choose the set's plan for the handle's device, of this kind, and create it there.

    Returns 0 when `chosen` has it, else -1 and what `choice` says: for `refuse_choice`, when the
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
    if choice.plan.sm != kind.sm or choice.plan.cudnn_version != kind.cudnn_version:
        choice.why = NotChosen.OTHER_KIND
        return -1
    if _create(self, loaded, handle, choice) < 0:
        return -1
    plans.chosen[handle.device].store(loaded)
    return 0


cdef int add_plan(
    Graph* self, PlanSet* plans, LoadedPlan* loaded, Handle* handle, Choice* choice
) noexcept nogil:
    """Give the handle's device a plan that the set did not have. What fails adds nothing.

    Returns 0, or -1 as choose_plan does.
    """
    choice.plan = kind_of(loaded)
    if _create(self, loaded, handle, choice) < 0:
        return -1
    self.building.lock()
    plans.plans.push_back(loaded)
    self.building.unlock()
    plans.chosen[handle.device].store(loaded)
    return 0


cdef int find_kind(Graph* self, Handle* handle, DeviceKind* kind) except -1 nogil:
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


cdef int check_match(Graph* self, DeviceKind plan, DeviceKind kind) except -1:
    """Compare what a plan was built with to what is here, before cuDNN does so less clearly."""
    module = (<tuple>self.owner)[0]
    if kind.cudnn_version != plan.cudnn_version:
        raise PlanMismatchError(module, "cuDNN", str(plan.cudnn_version), str(kind.cudnn_version))
    if kind.sm != plan.sm:
        raise PlanMismatchError(module, "SM", str(plan.sm), str(kind.sm))
    return 0


cdef int refuse_choice(Graph* self, DeviceKind kind, Choice* choice) except -1:
    """Raise what choose_plan or add_plan has found."""
    if choice.why == NotChosen.NO_PLAN:
        return refuse_missing(
            self, choice.there, kind,
            'load_plan(on_missing="plan") makes one where nvidia-cudnn-frontend is installed')
    if choice.why == NotChosen.OTHER_KIND:
        check_match(self, choice.plan, kind)
    if choice.why == NotChosen.TOO_LARGE:
        return check_size((<tuple>self.owner)[0], choice.frontend_size + <object>choice.size)
    if choice.failure.call == NULL:
        raise MemoryError
    # Asked first: only cuDNN knows which plans run on another number of multiprocessors.
    if (
        choice.failure.status == CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH
        and choice.plan.sm_count not in (0, kind.sm_count)
    ):
        raise PlanMismatchError(
            (<tuple>self.owner)[0], "a number of multiprocessors of",
            str(choice.plan.sm_count), str(kind.sm_count))
    return raise_cudnn(choice.failure.call, choice.failure.status, self.owner)


cdef int refuse_missing(
    Graph* self, vector[DeviceKind]& there, DeviceKind kind, str remedy
) except -1:
    """Raise that no plan is for `kind`, and which there are."""
    raise PlanMissingError(
        (<tuple>self.owner)[0],
        [(each.sm, each.sm_count, each.cudnn_version) for each in there],
        (kind.sm, kind.sm_count, kind.cudnn_version),
        remedy)


cdef int refuse_unloaded(Graph* self) except -1 nogil:
    """Raise that there is no plan."""
    with gil:
        raise PlanNotLoadedError(
            f"{(<tuple>self.owner)[0]}: no plan is loaded, because the module was closed or "
            "emitted from a structure file; call load_plan() first"
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
