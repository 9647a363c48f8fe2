# cython: language_level=3, freethreading_compatible=True
"""A graph's execution plan on a device: chosen from its set, created by the first who asks."""
from cpython.ref cimport PyObject
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.driver cimport (
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, DriverApi,
)
from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.library cimport cudnn_api, driver_api
from cudnn_bindgen.runtime.loaded cimport MAX_DEVICES, LoadedPlan
from cudnn_bindgen.runtime.plan cimport Plan, create_plan
from cudnn_bindgen.runtime.plan_set cimport DeviceKind, PlanSet, find_plan, kinds_of
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure, check_driver, raise_cudnn

from cudnn_bindgen.runtime.errors import (
    OperandError, PlanMismatchError, PlanMissingError, PlanNotLoadedError,
)

cdef extern from "Python.h":
    const char* PyBytes_AS_STRING(PyObject*) nogil
    Py_ssize_t PyBytes_GET_SIZE(PyObject*) nogil

cdef enum:
    # cuDNN 9.21: cudnn_graph.h, CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED.
    OVERRIDES_SINCE = 92100


cdef PlanSet* loaded_plans(Graph* self) except NULL nogil:
    cdef PlanSet* plans = self.plans.load()
    if plans == NULL:
        _refuse_unloaded(self)
    return plans


cdef LoadedPlan* plan_on_device(Graph* self, PlanSet* plans, Handle* handle) except? NULL nogil:
    """The set's plan for the handle's device, which exists there: `by_device` has it.

    Created by the first thread that asks. NULL: the set lacks one, and has a maker.
    """
    cdef LoadedPlan* loaded
    if handle.device >= MAX_DEVICES:
        with gil:
            raise OperandError("device", f"an ordinal below {MAX_DEVICES}", str(handle.device))
    loaded = plans.chosen[handle.device].load()
    if loaded != NULL:
        return loaded
    return _choose(self, plans, handle)


cdef int add_plan(
    Graph* self, PlanSet* plans, LoadedPlan* loaded, Handle* handle
) except -1 nogil:
    """Give the handle's device a plan that the set did not have. What fails adds nothing."""
    _create(self, loaded, handle)
    self.building.lock()
    try:
        plans.plans.push_back(loaded)
    finally:
        self.building.unlock()
    plans.chosen[handle.device].store(loaded)
    return 0


cdef int find_kind(Graph* self, Handle* handle, DeviceKind* kind) except -1 nogil:
    """Ask what a plan for the handle's device must be for."""
    cdef const DriverApi* driver = driver_api()
    cdef int major = 0, minor = 0
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


cdef int check_match(Graph* self, const LoadedPlan* loaded, DeviceKind kind) except -1 nogil:
    """Compare what the plan was built with to what is here, before cuDNN does so less clearly."""
    if kind.cudnn_version == loaded.cudnn_version and kind.sm == loaded.sm:
        return 0
    with gil:
        module = (<tuple>self.owner)[0]
        if kind.cudnn_version != loaded.cudnn_version:
            raise PlanMismatchError(
                module, "cuDNN", str(loaded.cudnn_version), str(kind.cudnn_version))
        raise PlanMismatchError(module, "SM", str(loaded.sm), str(kind.sm))


cdef int refuse_missing(
    Graph* self, const PlanSet* plans, DeviceKind kind, str remedy
) except -1:
    """Raise that no plan is for `kind`, and which there are."""
    cdef vector[DeviceKind] there
    with nogil:
        # Copied first: what makes Python objects may lose the GIL for a while.
        self.building.lock()
        there = kinds_of(plans)
        self.building.unlock()
    raise PlanMissingError(
        (<tuple>self.owner)[0],
        [(each.sm, each.sm_count, each.cudnn_version) for each in there],
        (kind.sm, kind.sm_count, kind.cudnn_version),
        remedy)


cdef LoadedPlan* _choose(Graph* self, PlanSet* plans, Handle* handle) except? NULL nogil:
    cdef DeviceKind kind
    cdef LoadedPlan* loaded
    find_kind(self, handle, &kind)
    if plans.maker == NULL and plans.plans.size() == 1:
        # Nothing to choose: it may run on another number of multiprocessors, or cuDNN says why not.
        loaded = plans.plans[0]
        check_match(self, loaded, kind)
    else:
        self.building.lock()
        loaded = find_plan(plans, kind)
        self.building.unlock()
    if loaded == NULL:
        if plans.maker != NULL:
            return NULL
        with gil:
            refuse_missing(
                self, plans, kind,
                'load_plan(on_missing="plan") makes one where nvidia-cudnn-frontend is installed')
    _create(self, loaded, handle)
    plans.chosen[handle.device].store(loaded)
    return loaded


cdef int _create(Graph* self, LoadedPlan* loaded, Handle* handle) except -1 nogil:
    """Create the execution plan on the handle's device, unless another thread has."""
    cdef Plan* plan
    cdef Failure failure
    failure.call = "malloc"
    self.building.lock()
    plan = loaded.by_device[handle.device].load()
    if plan == NULL:
        plan = create_plan(
            cudnn_api(), handle, PyBytes_AS_STRING(<PyObject*>loaded.text),
            PyBytes_GET_SIZE(<PyObject*>loaded.text) + 1, &failure)
        loaded.by_device[handle.device].store(plan)
    self.building.unlock()
    if plan == NULL:
        return raise_cudnn(failure.call, failure.status, self.owner)
    return 0


cdef int _refuse_unloaded(Graph* self) except -1 nogil:
    with gil:
        raise PlanNotLoadedError(
            f"{(<tuple>self.owner)[0]}: no plan is loaded, because the module was closed or "
            "emitted from a structure file; call load_plan() first"
        )
