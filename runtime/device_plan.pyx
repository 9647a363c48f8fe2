# cython: language_level=3, freethreading_compatible=True
"""A graph's execution plan on a device: the loaded one, created there by the first who asks."""
from cpython.ref cimport PyObject

from cudnn_bindgen.runtime.driver cimport (
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    DriverApi,
)
from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.library cimport cudnn_api, driver_api
from cudnn_bindgen.runtime.loaded cimport MAX_DEVICES, LoadedPlan
from cudnn_bindgen.runtime.plan cimport Plan, create_plan
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure, check_driver, raise_cudnn

from cudnn_bindgen.runtime.errors import OperandError, PlanMismatchError, PlanNotLoadedError

cdef extern from "Python.h":
    const char* PyBytes_AS_STRING(PyObject*) nogil
    Py_ssize_t PyBytes_GET_SIZE(PyObject*) nogil

cdef enum:
    # cuDNN 9.21: cudnn_graph.h, CUDNN_ATTR_OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED.
    OVERRIDES_SINCE = 92100


cdef LoadedPlan* loaded_plan(Graph* self) except NULL nogil:
    cdef LoadedPlan* loaded = self.loaded.load()
    if loaded == NULL:
        _refuse_unloaded(self)
    return loaded


cdef Plan* device_plan_of_current(Graph* self, LoadedPlan* loaded) except NULL nogil:
    return device_plan(self, loaded, current_handle(NULL, self.owner))


cdef Plan* device_plan(Graph* self, LoadedPlan* loaded, Handle* handle) except NULL nogil:
    """The plan on the handle's device, created by the first thread that asks."""
    cdef Plan* plan
    cdef Failure failure
    if handle.device >= MAX_DEVICES:
        with gil:
            raise OperandError("device", f"an ordinal below {MAX_DEVICES}", str(handle.device))
    plan = loaded.by_device[handle.device].load()
    if plan != NULL:
        return plan
    _check_match(self, loaded, handle)
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
        raise_cudnn(failure.call, failure.status, self.owner)
    return plan


cdef int _check_match(Graph* self, LoadedPlan* loaded, Handle* handle) except -1 nogil:
    """Compare what the plan was built with to what is here, before cuDNN does so less clearly."""
    cdef const DriverApi* driver = driver_api()
    cdef int major = 0, minor = 0
    cdef int version = <int>cudnn_api().get_version()
    if self.overrides != NULL and version < OVERRIDES_SINCE:
        with gil:
            raise PlanMismatchError(
                (<tuple>self.owner)[0], "cuDNN for a graph with override shapes",
                f"{OVERRIDES_SINCE} or newer", str(version))
    check_driver("cuDeviceGetAttribute", driver.device_get_attribute(
        &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle.device))
    check_driver("cuDeviceGetAttribute", driver.device_get_attribute(
        &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle.device))
    if version == loaded.cudnn_version and 10 * major + minor == loaded.sm:
        return 0
    with gil:
        module = (<tuple>self.owner)[0]
        if version != loaded.cudnn_version:
            raise PlanMismatchError(module, "cuDNN", str(loaded.cudnn_version), str(version))
        raise PlanMismatchError(module, "SM", str(loaded.sm), str(10 * major + minor))


cdef int _refuse_unloaded(Graph* self) except -1 nogil:
    with gil:
        raise PlanNotLoadedError(
            f"{(<tuple>self.owner)[0]}: no plan is loaded, because the module was closed or "
            "emitted from a structure file; call load_plan() first"
        )
