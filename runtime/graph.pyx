# cython: language_level=3, freethreading_compatible=True
"""A generated module's graph: its operands, its loaded plan, and the call.

`execute_plan` is the hot path. It takes no lock and no GIL and allocates nothing but cuDNN's
variant pack. Calls count themselves in `calls`; what retires a plan first takes it out of
`loaded`, then waits until the calls from before have left: no plan is destroyed under a launch.
"""
from libc.stdint cimport int64_t, uintptr_t

from cudnn_bindgen.runtime.calls cimport enter_call, leave_call, wait_for_calls
from cudnn_bindgen.runtime.device_plan cimport device_plan, device_plan_of_current, loaded_plan
from cudnn_bindgen.runtime.driver cimport CUstream
from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.launch cimport describe_loaded, launch_loaded
from cudnn_bindgen.runtime.loaded cimport LoadedPlan, load_parts, unload
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.overridden cimport check_strides, overridden_size
from cudnn_bindgen.runtime.plan cimport Plan
from cudnn_bindgen.runtime.record cimport POLICY_RECORD
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.status cimport Failure, raise_cudnn
from cudnn_bindgen.runtime.workspace cimport WORKSPACE_ALIGNMENT, workspace_block

from cudnn_bindgen.runtime.errors import OperandError, RuntimeAbiError
from cudnn_bindgen.runtime.metadata import SCALAR_BYTES
from cudnn_bindgen.runtime.policy import default_policy, policy_number

RUNTIME_ABI = 1

cdef enum:
    # Bytes that launch records are proven for; calls with less aligned addresses go direct.
    OPERAND_PROOF = 16
    WORKSPACE_PROOF = 256
    RECORDS_BY_SCALARS = 4       # records of each stream; graphs with overrides keep more

_registered = []                 # keeps alive what graphs point to


cdef int check_abi(int emitted_for) except -1:
    """Refuse a module that was emitted for another runtime."""
    if emitted_for != RUNTIME_ABI:
        raise RuntimeAbiError(
            f"the module was emitted for runtime ABI {emitted_for}, this is {RUNTIME_ABI}: emit "
            "and build it again with this version of cudnn-bindgen"
        )
    return 0


cdef void* register_graph(str module, str fingerprint, tuple operands, tuple plans) except NULL:
    """Register a module's graph: `operands` in slot order, scalars last, and its plans."""
    cdef Graph* graph = new Graph()
    owner = (module, fingerprint)
    _registered.append((owner, operands))
    graph.owner = <void*>owner
    graph.operand_data = <void*>operands
    graph.slots = len(operands)
    for operand in operands:
        if operand.role == "scalar":
            graph.scalar_bytes.push_back(SCALAR_BYTES[operand.data_type])
        else:
            graph.operands += 1
            graph.proven.push_back(OPERAND_PROOF)
        graph.mask.push_back(operand.alignment - 1)
        graph.may_be_null.push_back(0 in operand.dim)
    graph.proven.push_back(WORKSPACE_PROOF)
    graph.policy.store(default_policy())
    graph.record_capacity.store(RECORDS_BY_SCALARS)
    if plans:
        graph.loaded.store(load_parts(module, fingerprint, operands, plans[0]))
    return graph


cdef int execute_plan(void* graph, void** slots, void* workspace, void* stream) except -1 nogil:
    """Enqueue the graph once.

    `slots` holds, in slot order, device addresses and then pointers to scalars that stay valid
    during the call. `workspace` may be NULL for a block of the runtime's own. Raises OperandError,
    PlanNotLoadedError, PlanMismatchError, WorkspaceError, LibraryNotFoundError, CudnnError,
    DriverError.
    """
    return _enter(<Graph*>graph, slots, NULL, workspace, -1, stream, -1)


cdef int execute_overridden(
    void* graph, void** slots, void* overrides, void* workspace, void* stream
) except -1 nogil:
    """`execute_plan` with `overrides` of make_overrides, which may be NULL; raises the same."""
    cdef Graph* self = <Graph*>graph
    cdef OverrideValues* values = <OverrideValues*>overrides
    if values == NULL or values.uids.empty():
        return 0 if self.overrides.computes_nothing else execute_plan(
            graph, slots, workspace, stream)
    if values.computes_nothing():
        return 0
    return _enter(self, slots, values, workspace, -1, stream, -1)


cdef int execute_on_device(
    void* graph, void** slots, void* overrides, void* workspace, int64_t workspace_bytes,
    void* stream, int device,
) except -1 nogil:
    """`execute_plan` for tensors on `device`, with overrides or NULL.

    `workspace_bytes` and `device` may be -1: not known. Returns 0, or, having done nothing, 1 + the
    ordinal of the current device if that is another one.
    """
    cdef OverrideValues* values = <OverrideValues*>overrides
    return _enter(<Graph*>graph, slots, values, workspace, workspace_bytes, stream, device)


cdef int64_t graph_workspace_size(void* graph) except -1:
    """Bytes of workspace on the current device; creates the plan there."""
    return overridden_workspace_size(graph, NULL)


cdef int64_t overridden_workspace_size(void* graph, void* overrides) except -1:
    """`graph_workspace_size` under `overrides` of make_overrides, which may be NULL."""
    cdef Graph* self = <Graph*>graph
    cdef OverrideValues* values = <OverrideValues*>overrides
    cdef int side
    if values != NULL and values.uids.empty():
        values = NULL
    with nogil:
        side = enter_call(&self.calls)
        try:
            return _workspace_size(self, values)
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
            device_plan_of_current(self, loaded)
    except BaseException:
        unload(loaded, &ignored)
        raise
    return _retire(self, self.loaded.exchange(loaded))


cdef int close_graph(void* graph) except -1:
    """Take the plan out, wait for the calls inside it, destroy it on every device."""
    cdef Graph* self = <Graph*>graph
    return _retire(self, self.loaded.exchange(NULL))


cdef int set_graph_policy(void* graph, object policy) except -1:
    """Force the launch path: "auto", "direct" or "record"."""
    (<Graph*>graph).policy.store(policy_number(policy))
    return 0


cdef object graph_launch_path(void* graph):
    """How the last call was launched."""
    return "record" if (<Graph*>graph).counts.last_path.load() == POLICY_RECORD else "direct"


cdef dict graph_launch_stats(void* graph):
    """Counts of the graph's calls over all threads, and why the last refused record was refused."""
    cdef Graph* self = <Graph*>graph
    direct = self.counts.direct.load()
    unchanged, patched = self.counts.unchanged.load(), self.counts.patched.load()
    return {
        "direct": direct,
        "record_unchanged": unchanged,
        "record_patched": patched,
        "hit_rate": (unchanged + patched) / max(1, direct + unchanged + patched),
        "recorded": self.counts.recorded.load(),
        "evicted": self.counts.evicted.load(),
        "refused": self.counts.refused.load(),
        "reason": self.counts.reason().decode(),
    }


cdef list graph_launch_nodes(void* graph):
    """What one call launches on the current device, and which words of it are whose address."""
    cdef Graph* self = <Graph*>graph
    cdef int side = enter_call(&self.calls)
    cdef LoadedPlan* loaded
    cdef Handle* handle
    try:
        loaded = loaded_plan(self)
        handle = current_handle(NULL, self.owner)
        nodes = describe_loaded(self, loaded, handle, device_plan(self, loaded, handle))
    finally:
        leave_call(&self.calls, side)
    names = [operand.argument for operand in <tuple>self.operand_data if operand.role != "scalar"]
    names.append("workspace_ptr")
    for node in nodes:
        node["patches"] = [
            {"byte": offset, "operand": names[operand], "addend": addend}
            for offset, operand, addend in node["patches"]
        ]
    return nodes


cdef int _enter(
    Graph* self, void** slots, OverrideValues* overrides, void* workspace,
    int64_t workspace_bytes, CUstream stream, int device
) except -1 nogil:
    cdef int slot
    for slot in range(self.operands):
        if slots[slot] == NULL:
            if not _may_be_null(self, slot, overrides):
                return _refuse(self, slot, slots[slot])
        elif <uintptr_t>slots[slot] & self.mask[slot]:
            return _refuse(self, slot, slots[slot])
    if <uintptr_t>workspace & (WORKSPACE_ALIGNMENT - 1):
        return _refuse(self, -1, workspace)
    cdef int side = enter_call(&self.calls)
    try:
        return _execute(self, slots, overrides, workspace, workspace_bytes, stream, device)
    finally:
        leave_call(&self.calls, side)


cdef inline bint _may_be_null(Graph* self, int slot, OverrideValues* overrides) noexcept nogil:
    if overrides != NULL:
        return overrides.is_empty_at(slot)
    return self.may_be_null[slot]


cdef int _execute(
    Graph* self, void** slots, OverrideValues* overrides, void* workspace,
    int64_t workspace_bytes, CUstream stream, int device
) except -1 nogil:
    cdef LoadedPlan* loaded = loaded_plan(self)
    cdef Handle* handle = current_handle(stream, self.owner)
    if device >= 0 and handle.device != device:
        return 1 + handle.device
    cdef const Plan* plan = device_plan(self, loaded, handle)
    cdef int64_t size
    if overrides != NULL:
        check_strides(self, loaded, overrides)
    if workspace == NULL or workspace_bytes >= 0:
        size = _size(self, loaded, handle, plan, overrides)
        if 0 <= workspace_bytes < size:
            return _refuse_workspace(size, workspace_bytes)
        if workspace == NULL and size > 0:
            workspace = workspace_block(handle, stream, size)
    return launch_loaded(
        self, loaded, handle, plan, slots, overrides, <char*>workspace, stream)


cdef int64_t _workspace_size(Graph* self, OverrideValues* overrides) except -1 nogil:
    cdef LoadedPlan* loaded = loaded_plan(self)
    cdef Handle* handle = current_handle(NULL, self.owner)
    return _size(self, loaded, handle, device_plan(self, loaded, handle), overrides)


cdef inline int64_t _size(
    Graph* self, LoadedPlan* loaded, Handle* handle, const Plan* plan, OverrideValues* overrides
) except -1 nogil:
    if overrides != NULL:
        return overridden_size(self, loaded, handle, plan, overrides)
    return loaded.frontend_workspace + plan.workspace_size


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


cdef int _refuse_workspace(int64_t size, int64_t given) except -1 nogil:
    with gil:
        raise OperandError("workspace", f"at least {size} bytes", f"{given} bytes")


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
