# cython: language_level=3, freethreading_compatible=True
"""A generated module's graph: its operands, its loaded plans, and the call.

`execute_plan` is the hot path. It takes no lock and no GIL and allocates nothing but cuDNN's
variant pack. Calls count themselves in `calls`; what retires plans first takes their set out of
`plans`, then waits until the calls from before have left: no plan is destroyed under a launch.
"""
import os

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t, uintptr_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.chain cimport find_joined, keep_links, reason_of_links, take_plans
from cudnn_bindgen.runtime.device_plan cimport (
    choose_first, chosen_plan, handle_of_call,
)
from cudnn_bindgen.runtime.handle cimport WORKSPACE_ALIGNMENT, Handle, Obstacle, Stop, held_block
from cudnn_bindgen.runtime.launch cimport (
    Launched, as_launched, check_strides, describe_launched, launch, needed_size, overcome,
)
from cudnn_bindgen.runtime.library cimport (
    CAPTURING, NOT_CAPTURING, CUstream, Failure, capture_state, driver_api, raise_cudnn,
)
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport (
    LoadedPlan, PlanSet, destroy_unneeded_plans, keep_for_capture, load_set, unload_set,
)
from cudnn_bindgen.runtime.record cimport POLICY_RECORD, NodeDescription
from cudnn_bindgen.runtime.registered cimport Graph, enter_call, leave_call

from cudnn_bindgen.module_data import RUNTIME_ABI
from cudnn_bindgen.runtime.errors import (
    BindingError, OperandError, PlanNotLoadedError, RuntimeAbiError, describe, plan_command,
)
from cudnn_bindgen.runtime.tensor_types import SCALAR_BYTES, span_of

cdef extern from "ranges.hpp" namespace "cudnn_bindgen" nogil:
    cppclass RangeApi:
        int (*push)(const char* name) noexcept
        int (*pop)() noexcept

    bint find_ranges(RangeApi& ranges)

cdef enum:
    # Bytes that launch records are proven for; calls with less aligned addresses go direct.
    OPERAND_PROOF = 16
    WORKSPACE_PROOF = 256
    RECORDS_BY_SCALARS = 4       # records of each stream; graphs with overrides keep more

POLICY_ENVIRONMENT = "CUDNN_BINDGEN_LAUNCH"
# The numbers of LaunchPolicy in records.hpp.
POLICIES = {"auto": 0, "direct": 1, "record": 2}
RANGES_ENVIRONMENT = "CUDNN_BINDGEN_NVTX"

cdef RangeApi _ranges

_registered = []                 # keeps alive what graphs point to


cdef int check_abi(int emitted_for) except -1:
    """Refuse a module that was emitted for another runtime."""
    if emitted_for != RUNTIME_ABI:
        raise RuntimeAbiError(
            f"the module was emitted for runtime ABI {emitted_for}, this is {RUNTIME_ABI}: emit "
            "and build it again with this version of cudnn-bindgen"
        )
    return 0


cdef void* graph_of(object binding) except NULL:
    """The graph of a binding.Binding, or its family: what the other functions take."""
    return PyCapsule_GetPointer(binding.handle, "cudnn_bindgen graph")


cdef object handle_to(void* graph):
    """What a Binding has for graph_of."""
    return PyCapsule_New(graph, "cudnn_bindgen graph", NULL)


cdef void* register_graph(
    str module, str fingerprint, str source, tuple operands, tuple plans
) except NULL:
    """Register a module's graph: `operands` in slot order, scalars last, and its plans.

    `source`: what its file is called.
    """
    cdef Graph* graph = new Graph()
    graph.calls = &graph.own_calls
    owner = (module, fingerprint)
    _registered.append((owner, operands, source))
    graph.owner = <void*>owner
    graph.source = <void*>source
    graph.operand_data = <void*>operands
    graph.slots = len(operands)
    for operand in operands:
        if operand.role == "scalar":
            graph.scalar_bytes.push_back(SCALAR_BYTES[operand.data_type])
        else:
            graph.operands += 1
            graph.proven.push_back(OPERAND_PROOF)
            graph.largest = max(graph.largest, span_of(operand))
        graph.mask.push_back(operand.alignment - 1)
        graph.may_be_null.push_back(0 in operand.dim)
    outputs = [operand for operand in operands if operand.role == "output"]
    graph.computes_nothing = bool(outputs) and all([0 in output.dim for output in outputs])
    graph.proven.push_back(WORKSPACE_PROOF)
    graph.policy.store(policy_number(
        os.environ.get(POLICY_ENVIRONMENT) or "auto", POLICY_ENVIRONMENT))
    graph.record_capacity.store(RECORDS_BY_SCALARS)
    if _wants_ranges() and find_ranges(_ranges):
        name = module.encode()
        _registered.append(name)
        graph.range = name
    if plans:
        graph.plans.store(load_set(owner, operands, plans, None))
    return graph


cdef bint _wants_ranges() except -1:
    wanted = os.environ.get(RANGES_ENVIRONMENT) or "0"
    if wanted not in ("0", "1"):
        raise OperandError(RANGES_ENVIRONMENT, "0 or 1", describe(wanted))
    return wanted == "1"


cdef int execute_plan(void* graph, void** slots, void* workspace, void* stream) except -1 nogil:
    """Enqueue the graph once.

    `slots` holds, in slot order, device addresses and then pointers to scalars that stay valid
    during the call. `workspace` may be NULL for a block of the runtime's own. Raises OperandError,
    PlanNotLoadedError, PlanMismatchError, WorkspaceError, LibraryNotFoundError, CudnnError,
    DriverError, and what `make_missing` of replace_plans raises.
    """
    if (<Graph*>graph).computes_nothing:
        return 0
    return _enter(<Graph*>graph, slots, NULL, workspace, -1, stream, -1)


cdef int execute_overridden(
    void* graph, void** slots, void* overrides, void* workspace, void* stream
) except -1 nogil:
    """`execute_plan` with `overrides` of make_overrides, which may be NULL; raises the same."""
    cdef Graph* self = <Graph*>graph
    cdef OverrideValues* values = <OverrideValues*>overrides
    if values == NULL or values.uids.empty():
        return execute_plan(graph, slots, workspace, stream)
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
    cdef Obstacle obstacle
    cdef Stop stop
    if values != NULL and values.uids.empty():
        values = NULL
    obstacle.owner = NULL
    while True:
        stop = _find_size(self, handle_of_call(self, NULL), values, &obstacle)
        if stop == Stop.NOWHERE:
            return obstacle.size
        overcome(self, stop, &obstacle, values, -1, NULL)


cdef int replace_plans(void* graph, tuple plans, object make_missing) except -1:
    """Create the current device's plan of `plans` (module_data.PlanParts), then put all in place.

    `make_missing` is None or called, with SM, SM count and cuDNN version of the current device, to
    make a plan where none is for the device: it returns a PlanParts.

    Raises as execute_plan does; the plans loaded before stay in place then, unless it is one of
    those which cannot be destroyed.
    """
    cdef Graph* self = <Graph*>graph
    cdef PlanSet* loaded
    cdef Failure ignored
    if not plans and make_missing is None:
        raise PlanNotLoadedError(
            f"{(<tuple>self.owner)[0]}: there is no plan to load, because the module was emitted "
            "from a structure file: give load_plan() the file that "
            f"{plan_command(<str>self.source)} makes, or "
            'on_missing="plan" where nvidia-cudnn-frontend is installed')
    loaded = load_set(<tuple>self.owner, <tuple>self.operand_data, plans, make_missing)
    try:
        choose_first(self, loaded)
    except BaseException:
        unload_set(loaded, &ignored)
        raise
    return _replace(self, loaded)


cdef int close_graph(void* graph) except -1:
    """Take the plans out, wait for the calls inside them, destroy them on every device.

    What a captured CUDA graph launches stays until the graph is gone.
    """
    cdef Graph* self = <Graph*>graph
    return _replace(self, NULL)


cdef bint is_graph_open(void* graph) noexcept:
    """Whether plans are loaded."""
    return (<Graph*>graph).plans.load() != NULL


cdef int set_graph_policy(void* graph, object policy) except -1:
    """Force the launch path: "auto", "direct" or "record"."""
    (<Graph*>graph).policy.store(policy_number(policy, "policy"))
    return 0


cdef int policy_number(object name, str where) except -1:
    """The number of a policy. Raises OperandError where there is none of that name."""
    # A caller may give anything, also what has no hash.
    if not isinstance(name, str) or name not in POLICIES:
        raise OperandError(where, f"one of {', '.join(POLICIES)}", describe(name))
    return POLICIES[name]


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
        "reason": self.counts.reason().decode() + reason_of_links(self),
    }


cdef list graph_launch_nodes(void* graph):
    """What one call launches on the current device, and which words of it are whose address.

    Raises as execute_plan does.
    """
    cdef Graph* self = <Graph*>graph
    cdef vector[NodeDescription] nodes
    cdef string reason
    cdef Obstacle obstacle
    cdef Stop stop
    obstacle.owner = NULL
    while True:
        stop = _find_nodes(self, handle_of_call(self, NULL), nodes, reason, &obstacle)
        if stop == Stop.NOWHERE:
            break
        overcome(self, stop, &obstacle, NULL, -1, NULL)
    if not reason.empty():
        raise BindingError(f"the launch cannot be recorded: {reason.decode()}")
    names = [operand.argument for operand in <tuple>self.operand_data if operand.role != "scalar"]
    names.append("workspace_ptr")
    return [
        {
            "kind": node.kind.decode(),
            "function": node.function.decode(),
            "grid": tuple(node.grid),
            "block": tuple(node.block),
            "shared_bytes": node.shared_bytes,
            "bytes": node.bytes,
            "patches": [
                {"byte": patch.offset, "operand": names[patch.operand], "addend": patch.addend}
                for patch in node.patches
            ],
        }
        for node in nodes
    ]


cdef int _enter(
    Graph* self, void** slots, OverrideValues* overrides, void* workspace,
    int64_t workspace_bytes, CUstream stream, int device
) except -1 nogil:
    cdef int slot
    for slot in range(self.operands):
        if slots[slot] == NULL:
            if not _may_be_null(self, slot, overrides):
                return _refuse_address(self, slot, slots[slot])
        elif <uintptr_t>slots[slot] & self.mask[slot]:
            return _refuse_address(self, slot, slots[slot])
    # Neither is the rule, so that calls without a range pay nothing for those with one.
    if <uintptr_t>workspace & (WORKSPACE_ALIGNMENT - 1) | <uintptr_t>self.range:
        if <uintptr_t>workspace & (WORKSPACE_ALIGNMENT - 1):
            return _refuse_address(self, -1, workspace)
        _ranges.push(self.range)
        try:
            return _call(self, slots, overrides, workspace, workspace_bytes, stream, device)
        finally:
            _ranges.pop()
    return _call(self, slots, overrides, workspace, workspace_bytes, stream, device)


cdef inline int _call(
    Graph* self, void** slots, OverrideValues* overrides, void* workspace,
    int64_t workspace_bytes, CUstream stream, int device
) except -1 nogil:
    cdef Handle* handle
    cdef Obstacle obstacle
    cdef Stop stop
    cdef int side
    obstacle.owner = NULL
    while True:
        handle = handle_of_call(self, stream)
        if device >= 0 and handle.device != device:
            return 1 + handle.device
        side = enter_call(self.calls)
        stop = _execute(
            self, handle, slots, overrides, workspace, workspace_bytes, stream, &obstacle)
        leave_call(self.calls, side)
        if stop == Stop.NOWHERE:
            return 0
        with gil:
            overcome(self, stop, &obstacle, overrides, workspace_bytes, stream)


cdef int _refuse_address(Graph* graph, int slot, void* address) except -1 nogil:
    """Raise that an address is null or not aligned: an operand's, or with slot -1 the workspace's.
    """
    with gil:
        got = f"0x{<uintptr_t>address:x}"
        if slot < 0:
            raise OperandError("workspace_ptr", f"a multiple of {WORKSPACE_ALIGNMENT}", got)
        operand = (<tuple>graph.operand_data)[slot]
        what = f"the address of {operand.name!a} (uid {operand.uid})"
        if address == NULL:
            raise OperandError(operand.argument, what, "0")
        raise OperandError(operand.argument, f"{what}, a multiple of {operand.alignment}", got)


cdef inline bint _may_be_null(Graph* self, int slot, OverrideValues* overrides) noexcept nogil:
    if overrides != NULL:
        return overrides.is_empty_at(slot)
    return self.may_be_null[slot]


cdef Stop _execute(
    Graph* self, Handle* handle, void** slots, OverrideValues* overrides, void* workspace,
    int64_t workspace_bytes, CUstream stream, Obstacle* obstacle
) noexcept nogil:
    cdef Launched what
    cdef Stop stop = _find_launched(self, handle, &what, obstacle)
    if stop != Stop.NOWHERE:
        return stop
    cdef int state = capture_state(driver_api(), stream)
    if overrides != NULL:
        stop = check_strides(self, what.loaded, overrides, obstacle)
        if stop != Stop.NOWHERE:
            return stop
    if workspace == NULL or workspace_bytes >= 0:
        stop = needed_size(&what, handle, overrides, obstacle)
        if stop != Stop.NOWHERE:
            return stop
        if 0 <= workspace_bytes < obstacle.size:
            return Stop.AT_SMALL_WORKSPACE
        if workspace == NULL and obstacle.size > 0:
            stop = held_block(handle, stream, state, obstacle, &workspace)
            if stop != Stop.NOWHERE:
                return stop
    if state == CAPTURING and _keep(&what, stream, &obstacle.failure) < 0:
        return Stop.AT_FAILURE
    return launch(
        &what, self, handle, slots, overrides, <char*>workspace, stream, state == NOT_CAPTURING,
        False, obstacle)


cdef inline Stop _find_launched(
    Graph* self, Handle* handle, Launched* what, Obstacle* obstacle
) noexcept nogil:
    """Find what a call launches on the handle's device; AT_PLAN: it lacks a plan there."""
    if self.chain != NULL:
        return find_joined(self, handle, what, obstacle)
    cdef LoadedPlan* loaded = chosen_plan(self, handle)
    if loaded == NULL:
        return Stop.AT_PLAN
    as_launched(loaded, loaded.by_device[handle.device].load(), what)
    return Stop.NOWHERE


cdef int _keep(const Launched* what, CUstream stream, Failure* failure) noexcept nogil:
    """Let the CUDA graph that `stream` is being captured into own what is launched."""
    if what.joined != NULL:
        return keep_links(what.joined, stream, failure)
    return keep_for_capture(what.loaded, stream, failure)


cdef Stop _find_size(
    Graph* self, Handle* handle, OverrideValues* overrides, Obstacle* obstacle
) noexcept nogil:
    cdef Launched what
    cdef int side = enter_call(self.calls)
    cdef Stop stop = _find_launched(self, handle, &what, obstacle)
    if stop == Stop.NOWHERE:
        stop = needed_size(&what, handle, overrides, obstacle)
    leave_call(self.calls, side)
    return stop


cdef Stop _find_nodes(
    Graph* self, Handle* handle, vector[NodeDescription]& nodes, string& reason,
    Obstacle* obstacle
) noexcept nogil:
    cdef Launched what
    cdef int side = enter_call(self.calls)
    cdef Stop stop = _find_launched(self, handle, &what, obstacle)
    if stop == Stop.NOWHERE:
        describe_launched(&what, self, handle, nodes, reason)
    leave_call(self.calls, side)
    return stop


cdef int _replace(Graph* self, PlanSet* plans) except -1:
    """Put a set in place of the graph's, or none; destroy that when calls have left it."""
    cdef Failure failure
    cdef PlanSet* old
    cdef int result = 0
    destroy_unneeded_plans()
    with nogil:
        old = take_plans(self, plans)
        if old != NULL:
            result = unload_set(old, &failure)
    if result < 0:
        return raise_cudnn(failure.call, failure.status, self.owner)
    return 0
