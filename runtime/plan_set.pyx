# cython: language_level=3, freethreading_compatible=True
"""The plans that a graph has, each laid out, and which of them is for a kind of device."""
from cpython.ref cimport PyObject
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.library cimport Failure
from cudnn_bindgen.runtime.loaded cimport LoadedPlan, load_parts, unload


cdef extern from "Python.h":
    void increment_reference "Py_INCREF"(object)
    void decrement_reference "Py_DECREF"(PyObject*)


cdef PlanSet* load_set(
    tuple owner, tuple operands, tuple plans, object make_missing
) except NULL:
    """Lay out `plans` (module_data.PlanParts) for a graph; `make_missing` is None or a callable.

    `owner`: (module, fingerprint). Raises PlanMismatchError; needs no GPU.
    """
    cdef PlanSet* loaded = new PlanSet()
    cdef Failure ignored
    module, fingerprint = owner
    try:
        for parts in plans:
            loaded.plans.push_back(load_parts(module, fingerprint, operands, parts))
        if make_missing is not None:
            from cudnn_bindgen.runtime.plan_maker import PlanMaker
            maker = PlanMaker(module, make_missing)
            increment_reference(maker)
            loaded.maker = <void*>maker
    except BaseException:
        unload_set(loaded, &ignored)
        raise
    return loaded


cdef LoadedPlan* find_plan(const PlanSet* plans, DeviceKind kind) noexcept nogil:
    """The plan for a kind of device or NULL. One that says no SM count gives way to one that does.
    """
    cdef LoadedPlan* plan
    cdef LoadedPlan* of_any_count = NULL
    cdef size_t index
    for index in range(plans.plans.size()):
        plan = plans.plans[index]
        if plan.sm != kind.sm or plan.cudnn_version != kind.cudnn_version:
            continue
        if plan.sm_count == kind.sm_count:
            return plan
        if plan.sm_count == 0 and of_any_count == NULL:
            of_any_count = plan
    return of_any_count


cdef DeviceKind kind_of(const LoadedPlan* plan) noexcept nogil:
    """What a plan is for."""
    return DeviceKind(plan.sm, plan.sm_count, plan.cudnn_version)


cdef vector[DeviceKind] kinds_of(const PlanSet* plans) noexcept nogil:
    """What each plan is for."""
    cdef vector[DeviceKind] kinds
    cdef size_t index
    for index in range(plans.plans.size()):
        kinds.push_back(kind_of(plans.plans[index]))
    return kinds


cdef int unload_set(PlanSet* plans, Failure* failure) noexcept nogil:
    """Destroy all plans on all devices, and the set itself; no call may be inside it."""
    cdef int result = 0
    cdef size_t index
    for index in range(plans.plans.size()):
        if unload(plans.plans[index], failure) < 0:
            result = -1
    if plans.maker != NULL:
        with gil:
            decrement_reference(<PyObject*>plans.maker)
    del plans
    return result
