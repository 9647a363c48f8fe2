from libcpp.atomic cimport atomic
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.library cimport Failure
from cudnn_bindgen.runtime.loaded cimport MAX_DEVICES, LoadedPlan


# What a plan is chosen by.
cdef struct DeviceKind:
    int sm
    int sm_count
    int cudnn_version


# The plans of one graph for several kinds of device, and which one each device has. Owned by the
# graph that it is loaded into.
cdef cppclass PlanSet:
    vector[LoadedPlan*] plans    # grows where there is a maker, under `Graph.building`
    void* maker                  # a reference to a PlanMaker; NULL: a missing plan is an error
    # By device ordinal; NULL: not used there yet. A plan stands here once it exists on the device.
    atomic[LoadedPlan*] chosen[MAX_DEVICES]

cdef PlanSet* load_set(
    tuple owner, tuple operands, tuple plans, object make_missing
) except NULL
cdef LoadedPlan* find_plan(const PlanSet* plans, DeviceKind kind) noexcept nogil
cdef DeviceKind kind_of(const LoadedPlan* plan) noexcept nogil
cdef vector[DeviceKind] kinds_of(const PlanSet* plans) noexcept nogil
cdef int unload_set(PlanSet* plans, Failure* failure) noexcept nogil
