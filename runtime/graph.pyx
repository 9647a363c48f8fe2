# cython: language_level=3, freethreading_compatible=True
"""A generated module's graph: its operands, its loaded plan, and the call.

`execute_plan` is the hot path. It takes no lock and no GIL and allocates nothing but cuDNN's
variant pack. Calls count themselves in `calls`; what retires a plan first takes it out of
`loaded`, then waits until the calls from before have left: no plan is destroyed under a launch.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libcpp.atomic cimport atomic
from libcpp.mutex cimport mutex
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.calls cimport Calls, enter_call, leave_call, wait_for_calls
from cudnn_bindgen.runtime.driver cimport (
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CUstream, DriverApi,
)
from cudnn_bindgen.runtime.handle cimport Handle, current_handle, use_stream
from cudnn_bindgen.runtime.library cimport cudnn_api, driver_api
from cudnn_bindgen.runtime.loaded cimport (
    MAX_DEVICES, LoadedPlan, fill_pack, load_parts, prepare_workspace, unload,
)
from cudnn_bindgen.runtime.plan cimport Plan, create_plan, launch_plan
from cudnn_bindgen.runtime.status cimport Failure, check_driver, raise_cudnn
from cudnn_bindgen.runtime.workspace cimport workspace_block

from cudnn_bindgen.runtime.errors import (
    OperandError, PlanMismatchError, PlanNotLoadedError, RuntimeAbiError,
)

cdef extern from "Python.h":
    const char* PyBytes_AS_STRING(PyObject*) nogil
    Py_ssize_t PyBytes_GET_SIZE(PyObject*) nogil

RUNTIME_ABI = 1

cdef enum:
    STACK_SLOTS = 64             # larger packs take one malloc a call
    WORKSPACE_ALIGNMENT = 16     # bytes


# Registered once a module, never freed: a module is never unloaded.
cdef cppclass Graph:
    int slots
    int operands                 # the first ones are addresses, the rest point to scalars
    vector[uintptr_t] mask       # alignment - 1, by slot
    vector[int] may_be_null      # operands without an element
    atomic[LoadedPlan*] loaded   # NULL: closed, or emitted from structure only
    Calls calls                  # that may be inside a plan
    mutex building               # one thread creates a device's plan; held without the GIL
    void* owner                  # (module, fingerprint), for messages; kept alive by _registered
    void* operand_data           # tuple of metadata.Operand; likewise

_registered = []


cdef int check_abi(int emitted_for) except -1:
    """Refuse a module that was emitted for another runtime."""
    if emitted_for != RUNTIME_ABI:
        raise RuntimeAbiError(
            f"the module was emitted for runtime ABI {emitted_for}, this is {RUNTIME_ABI}: emit "
            "and build it again with this version of cudnn-bindgen"
        )
    return 0


cdef void* register_graph(str module, str fingerprint, tuple operands, object plan) except NULL:
    """Register a module's graph: `operands` in slot order, scalars last; `plan` may be None."""
    cdef Graph* graph = new Graph()
    owner = (module, fingerprint)
    _registered.append((owner, operands))
    graph.owner = <void*>owner
    graph.operand_data = <void*>operands
    graph.slots = len(operands)
    for operand in operands:
        if operand.role != "scalar":
            graph.operands += 1
        graph.mask.push_back(operand.alignment - 1)
        graph.may_be_null.push_back(0 in operand.dim)
    if plan is not None:
        graph.loaded.store(load_parts(module, fingerprint, operands, plan))
    return graph


cdef int execute_plan(void* graph, void** slots, void* workspace, void* stream) except -1 nogil:
    """Enqueue the graph once.

    `slots` holds, in slot order, device addresses and then pointers to scalars that stay valid
    during the call. `workspace` may be NULL for a block of the runtime's own. Raises OperandError,
    PlanNotLoadedError, PlanMismatchError, WorkspaceError, LibraryNotFoundError, CudnnError,
    DriverError.
    """
    cdef Graph* self = <Graph*>graph
    cdef int slot
    for slot in range(self.operands):
        if slots[slot] == NULL:
            if not self.may_be_null[slot]:
                return _refuse(self, slot, slots[slot])
        elif <uintptr_t>slots[slot] & self.mask[slot]:
            return _refuse(self, slot, slots[slot])
    if <uintptr_t>workspace & (WORKSPACE_ALIGNMENT - 1):
        return _refuse(self, -1, workspace)
    cdef int side = enter_call(&self.calls)
    try:
        return _execute(self, slots, workspace, stream)
    finally:
        leave_call(&self.calls, side)


cdef int64_t graph_workspace_size(void* graph) except -1:
    """Bytes of workspace on the current device; creates the plan there."""
    cdef Graph* self = <Graph*>graph
    cdef int side
    with nogil:
        side = enter_call(&self.calls)
        try:
            return _workspace_size(self)
        finally:
            leave_call(&self.calls, side)


cdef int replace_plan(void* graph, object plan) except -1:
    """Create the plan of `plan` (metadata.PlanParts) on the current device, then put it in place.

    Raises as execute_plan does; the plan loaded before stays in place then, unless it is that one
    which cannot be destroyed.
    """
    cdef Graph* self = <Graph*>graph
    module, fingerprint = <object>self.owner
    cdef LoadedPlan* loaded = load_parts(
        module, fingerprint, <tuple>self.operand_data, plan)
    cdef Failure ignored
    try:
        with nogil:
            _device_plan_of_current(self, loaded)
    except BaseException:
        unload(loaded, &ignored)
        raise
    return _retire(self, self.loaded.exchange(loaded))


cdef int close_graph(void* graph) except -1:
    """Take the plan out, wait for the calls inside it, destroy it on every device."""
    cdef Graph* self = <Graph*>graph
    return _retire(self, self.loaded.exchange(NULL))


cdef int _execute(Graph* self, void** slots, void* workspace, CUstream stream) except -1 nogil:
    cdef LoadedPlan* loaded = self.loaded.load()
    if loaded == NULL:
        return _refuse_unloaded(self)
    cdef Handle* handle = current_handle(stream, self.owner)
    cdef const Plan* plan = _device_plan(self, loaded, handle)
    use_stream(handle, stream, self.owner)
    cdef int64_t size = loaded.frontend_workspace + plan.workspace_size
    if workspace == NULL and size > 0:
        workspace = workspace_block(handle, size)
    if loaded.uids.size() <= STACK_SLOTS:
        return _launch_small(self, loaded, handle, plan, slots, <char*>workspace)
    return _launch_large(self, loaded, handle, plan, slots, <char*>workspace)


cdef int _launch_small(
    Graph* self, LoadedPlan* loaded, Handle* handle, const Plan* plan, void** slots,
    char* workspace
) except -1 nogil:
    cdef void* pack[STACK_SLOTS]
    return _launch(self, loaded, handle, plan, slots, workspace, pack)


cdef int _launch_large(
    Graph* self, LoadedPlan* loaded, Handle* handle, const Plan* plan, void** slots,
    char* workspace
) except -1 nogil:
    cdef void** pack = <void**>malloc(loaded.uids.size() * sizeof(void*))
    if pack == NULL:
        with gil:
            raise MemoryError
    try:
        return _launch(self, loaded, handle, plan, slots, workspace, pack)
    finally:
        free(pack)


cdef int _launch(
    Graph* self, LoadedPlan* loaded, Handle* handle, const Plan* plan, void** slots,
    char* workspace, void** pack
) except -1 nogil:
    cdef Failure failure
    cdef int count = fill_pack(loaded, self.slots, slots, workspace, pack)
    if not loaded.parts.empty():
        if prepare_workspace(loaded, driver_api(), workspace, handle.stream, &failure) < 0:
            return check_driver(failure.call, failure.status)
    if launch_plan(
        cudnn_api(), handle, plan, count, loaded.uids.data(), pack,
        # cuDNN's share lies after the frontend's.
        workspace + loaded.frontend_workspace if workspace != NULL else NULL, &failure
    ) < 0:
        return raise_cudnn(failure.call, failure.status, self.owner)
    return 0


cdef int64_t _workspace_size(Graph* self) except -1 nogil:
    cdef LoadedPlan* loaded = self.loaded.load()
    if loaded == NULL:
        return _refuse_unloaded(self)
    return loaded.frontend_workspace + _device_plan_of_current(self, loaded).workspace_size


cdef Plan* _device_plan_of_current(Graph* self, LoadedPlan* loaded) except NULL nogil:
    return _device_plan(self, loaded, current_handle(NULL, self.owner))


cdef Plan* _device_plan(Graph* self, LoadedPlan* loaded, Handle* handle) except NULL nogil:
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


cdef int _retire(Graph* self, LoadedPlan* loaded) except -1:
    cdef Failure failure
    cdef int result
    if loaded == NULL:
        return 0
    with nogil:
        wait_for_calls(&self.calls)
        result = unload(loaded, &failure)
    if result < 0:
        return raise_cudnn(failure.call, failure.status, self.owner)
    return 0


cdef int _refuse(Graph* self, int slot, void* address) except -1 nogil:
    with gil:
        got = f"0x{<uintptr_t>address:x}"
        if slot < 0:
            raise OperandError("workspace_ptr", f"a multiple of {WORKSPACE_ALIGNMENT}", got)
        operand = (<tuple>self.operand_data)[slot]
        what = f"the address of {operand.name!a} (uid {operand.uid})"
        if address == NULL:
            raise OperandError(operand.argument, what, "0")
        raise OperandError(operand.argument, f"{what}, a multiple of {operand.alignment}", got)


cdef int _refuse_unloaded(Graph* self) except -1 nogil:
    with gil:
        raise PlanNotLoadedError(
            f"{(<tuple>self.owner)[0]}: no plan is loaded, because the module was closed or "
            "emitted from a structure file; call load_plan() first"
        )
