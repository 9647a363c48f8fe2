# cython: language_level=3, freethreading_compatible=True
"""One launch of a loaded plan, or of a chain's: through its launch record, or direct.

Also what a plan says to a call's overrides (alignment of strides, the workspace they need), and
what comes of a call that stopped. Inside the plans no Python code may run (registered.pxd): a call
says there what it lacks, `overcome` provides it or raises what is wrong, and the call begins again.
"""
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from libcpp.atomic cimport atomic
from libcpp.string cimport string
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.device_plan cimport handle_of_call, provide_plan
from cudnn_bindgen.runtime.handle cimport Handle, Obstacle, Stop, no_stream, take_block, use_stream
from cudnn_bindgen.runtime.library cimport (
    CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD, CUDA_SUCCESS, CUDNN_STATUS_SUCCESS, CUstream,
    DriverApi, Failure, check_driver, cudnn_api, driver_api, raise_cudnn,
)
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.plan cimport (
    LoadedPlan, Plan, ask_workspace_size, check_size, fill_pack, has_sum, launch_own, launch_plan,
    prepare_workspace,
)
from cudnn_bindgen.runtime.record cimport (
    LEAVES_STREAM, POLICY_DIRECT, STREAM_UNKNOWN, LaunchCounts, NodeDescription, PlanRecords,
    RecordStore,
)
from cudnn_bindgen.runtime.registered cimport Graph

from cudnn_bindgen.runtime.errors import CudnnError, OperandError, StreamError

cdef extern from "launch_policy.hpp" namespace "cudnn_bindgen" nogil:
    ctypedef int (*LaunchFunction)(void* what, void* const* addresses, void* stream) noexcept
    ctypedef size_t (*LargestFunction)(void* what) noexcept

    cppclass Recordable:
        LaunchFunction launch
        LargestFunction largest
        void* what
        void* context
        int device
        void* stream
        void* const* addresses
        const uint64_t* alignments
        size_t count

    cppclass CallKey:
        const char* scalars
        size_t scalar_bytes
        const char* shapes
        size_t shape_bytes
        uint64_t shape_hash

    cppclass RecordedCall:
        const DriverApi* driver
        uint64_t plan
        PlanRecords* records
        atomic[int]* stream_use
        int policy
        Recordable work
        CallKey key
        size_t capacity

    bint launch_recorded(RecordStore*& store, const RecordedCall& call, LaunchCounts& counts)
    void find_stream_use(const RecordedCall& call)

cdef extern from "launch_description.hpp" namespace "cudnn_bindgen" nogil:
    # Learns what a call launches; returns why it cannot, or an empty string.
    string describe_launch(const RecordedCall& call, vector[NodeDescription]& nodes)

cdef enum:
    STACK_SLOTS = 64             # a larger graph takes one malloc a call
    # The frontend asks from here on (graph_interface.h); the function may be in older libraries.
    SIZE_SINCE = 92300


cdef void as_launched(LoadedPlan* loaded, Plan* plan, Launched* what) noexcept nogil:
    """Say what a call of a graph launches on the device that `plan` is on."""
    what.id = loaded.id
    what.records = &loaded.records
    what.stream_use = &plan.stream_use
    what.workspace_size = loaded.frontend_workspace + plan.workspace_size
    what.uses_cudnn = loaded.kernels == NULL
    what.pack_size = loaded.uids.size()
    what.enqueue = _enqueue_plan
    what.direct = _launch_direct
    what.loaded = loaded
    what.plan = plan
    what.joined = NULL


cdef Stop launch(
    const Launched* what, Graph* graph, Handle* handle, void** slots, OverrideValues* overrides,
    char* workspace, CUstream stream, bint may_record, bint checks_only, Obstacle* obstacle
) noexcept nogil:
    """Enqueue the graph once on `stream`, or say at what it stopped.

    `may_record`: the stream is not being captured. A captured graph gets the launch's own nodes.
    `checks_only`: enqueue nothing; look whether all would stay on the stream.
    """
    cdef void* memory[3 * STACK_SLOTS]
    cdef void** room = memory
    cdef size_t slots_needed = max(what.pack_size, <size_t>graph.slots + 1)
    if slots_needed > STACK_SLOTS:
        room = <void**>malloc(3 * slots_needed * sizeof(void*))
        if room == NULL:
            obstacle.failure.call = NULL
            return Stop.AT_FAILURE
    else:
        slots_needed = STACK_SLOTS
    cdef Call call
    cdef Stop stop
    _assemble(&call, what, graph, handle, slots, overrides, workspace, room, slots_needed)
    if checks_only:
        stop = _check_stream(&call, stream, not may_record)
    elif may_record and graph.policy.load() != POLICY_DIRECT and _launch_recorded(&call, stream):
        stop = Stop.NOWHERE
    else:
        stop = what.direct(&call, stream, not may_record, obstacle)
        if stop == Stop.NOWHERE:
            graph.counts.direct.fetch_add(1)
            graph.counts.last_path.store(POLICY_DIRECT)
    if room != memory:
        free(room)
    return stop


cdef void describe_launched(
    const Launched* what, Graph* graph, Handle* handle, vector[NodeDescription]& nodes,
    string& reason
) noexcept nogil:
    """Record the graph for made-up addresses and tell its nodes; nothing is launched.

    `reason` becomes why it cannot be recorded, if it cannot.
    """
    cdef size_t room_slots = max(what.pack_size, <size_t>graph.slots + 1)
    cdef vector[void*] room
    cdef vector[void*] slots
    cdef vector[uint64_t] zeros
    cdef char* made_up = <char*>(<uintptr_t>1 << 40)
    cdef size_t slot
    cdef Call call
    cdef RecordedCall recorded
    room.resize(3 * room_slots)
    slots.resize(graph.slots)
    zeros.resize(graph.slots)
    for slot in range(slots.size()):
        slots[slot] = made_up + (slot << 32)
        if slot >= <size_t>graph.operands:
            slots[slot] = &zeros[slot]
    _assemble(
        &call, what, graph, handle, slots.data(), NULL, made_up + (slots.size() << 32),
        room.data(), room_slots)
    _as_recorded(&call, NULL, &recorded)
    (&reason)[0] = describe_launch(recorded, nodes)


cdef void _assemble(
    Call* call, const Launched* what, Graph* graph, Handle* handle, void** slots,
    OverrideValues* overrides, char* workspace, void** room, size_t room_slots
) noexcept nogil:
    call.what = what
    call.graph = graph
    call.handle = handle
    call.slots = slots
    call.overrides = overrides
    call.workspace = workspace
    # Under overrides only cuDNN knows, and asking costs more than an address too many.
    call.has_workspace = workspace != NULL if overrides != NULL else what.workspace_size > 0
    call.pack = room
    call.addresses = room + room_slots
    call.scalars = <char*>(room + 2 * room_slots)


cdef Stop _check_stream(Call* call, CUstream stream, bint in_capture) noexcept nogil:
    """Stop a launch that would compute something wrong, because a part of it leaves the stream.

    Some engines of cuDNN launch a kernel on the legacy stream, whatever stream the handle has: a
    capture misses it, and on a non-blocking stream it runs too early or too late. Seen once for
    each plan and device, by capturing a call (recorder.hpp); asked again if that failed.
    """
    cdef RecordedCall recorded
    cdef unsigned int flags = 0
    # On the default streams all comes right: the legacy one waits for the others.
    if <size_t>stream <= CU_STREAM_PER_THREAD and not in_capture:
        return Stop.NOWHERE
    if call.what.stream_use.load() == STREAM_UNKNOWN:
        _as_recorded(call, stream, &recorded)
        find_stream_use(recorded)
    if call.what.stream_use.load() != LEAVES_STREAM:
        return Stop.NOWHERE
    if in_capture:
        return Stop.AT_CAPTURE
    # What is no stream cuDNN refuses.
    if driver_api().stream_get_flags(stream, &flags) == CUDA_SUCCESS:
        if flags & CU_STREAM_NON_BLOCKING:
            return Stop.AT_STREAM
    return Stop.NOWHERE


cdef Stop _launch_direct(
    Call* call, CUstream stream, bint in_capture, Obstacle* obstacle
) noexcept nogil:
    cdef Stop stop = _check_stream(call, stream, in_capture)
    if stop != Stop.NOWHERE:
        return stop
    if call.what.uses_cudnn and use_stream(call.handle, stream, &obstacle.failure) < 0:
        return Stop.AT_FAILURE
    if _enqueue_plan(call, call.slots, call.workspace, stream, &obstacle.failure) < 0:
        return Stop.AT_FAILURE
    return Stop.NOWHERE


cdef int _enqueue_plan(
    Call* call, void** slots, char* workspace, CUstream stream, Failure* failure
) noexcept nogil:
    return enqueue_plan(
        call.what.loaded, call.what.plan, call.handle, call.graph.slots, slots, call.overrides,
        workspace, call.pack, stream, failure)


cdef int enqueue_plan(
    LoadedPlan* loaded, Plan* plan, Handle* handle, int count, void** slots,
    OverrideValues* overrides, char* workspace, void** pack, CUstream stream, Failure* failure
) noexcept nogil:
    """Enqueue a plan on `stream`, which the handle's cuDNN has; `pack` is room for its uids."""
    if loaded.kernels != NULL:
        return launch_own(loaded, plan, slots, workspace, stream, failure)
    cdef int filled = fill_pack(loaded, count, slots, workspace, pack)
    if not loaded.parts.empty():
        if prepare_workspace(loaded, driver_api(), workspace, stream, failure) < 0:
            return -1
    # cuDNN's share of the workspace lies after the frontend's.
    return launch_plan(
        cudnn_api(), handle, plan, filled, loaded.uids.data(), pack, overrides,
        workspace + loaded.frontend_workspace if workspace != NULL else NULL, failure)


cdef bint _launch_recorded(Call* call, CUstream stream) noexcept nogil:
    """Launch through a record if there is one or it is time to make one."""
    cdef RecordedCall recorded
    _as_recorded(call, stream, &recorded)
    return launch_recorded(call.handle.records, recorded, call.graph.counts)


cdef void _as_recorded(Call* call, CUstream stream, RecordedCall* recorded) noexcept nogil:
    """Sort a call into addresses, which may change under a record, and all else."""
    cdef Graph* graph = call.graph
    cdef int scalar, width
    cdef size_t used = 0
    memcpy(call.addresses, call.slots, graph.operands * sizeof(void*))
    call.addresses[graph.operands] = call.workspace
    for scalar in range(graph.slots - graph.operands):
        width = graph.scalar_bytes[scalar]
        memcpy(call.scalars + used, call.slots[graph.operands + scalar], width)
        used += width
    recorded.driver = call.handle.driver
    recorded.plan = call.what.id
    recorded.records = call.what.records
    recorded.stream_use = call.what.stream_use
    recorded.policy = graph.policy.load()
    recorded.work.context = call.handle.context
    recorded.work.device = call.handle.device
    recorded.work.stream = stream
    recorded.work.addresses = call.addresses
    recorded.work.alignments = graph.proven.data()
    recorded.work.count = graph.operands + (1 if call.has_workspace else 0)
    # A call without workspace has one address less: no record serves both.
    call.scalars[used] = call.has_workspace
    recorded.key.scalars = call.scalars
    recorded.key.scalar_bytes = used + 1
    recorded.key.shapes = NULL
    recorded.key.shape_bytes = recorded.key.shape_hash = 0
    if call.overrides != NULL:
        recorded.key.shapes = call.overrides.key().data()
        recorded.key.shape_bytes = call.overrides.key().size()
        recorded.key.shape_hash = call.overrides.hash()
    recorded.capacity = graph.record_capacity.load()
    recorded.work.launch = _launch_for_record
    recorded.work.largest = _largest_for_record
    recorded.work.what = call


cdef size_t _largest_for_record(void* what) noexcept nogil:
    """Bytes from an address on that a call may touch, of the operand or workspace with the most."""
    cdef Call* call = <Call*>what
    cdef uint64_t largest = call.graph.largest
    cdef int64_t workspace = call.what.workspace_size
    cdef int slot
    if call.overrides != NULL:
        for slot in range(call.graph.operands):
            if call.overrides.has(slot):
                largest = max(largest, call.overrides.span(slot))
        # What cuDNN said of this call, if it was asked.
        workspace = max(workspace, call.overrides.workspace_size)
    return max(largest, <uint64_t>workspace)


cdef int _launch_for_record(void* what, void* const* addresses, void* stream) noexcept nogil:
    """What recorder.hpp captures: the direct launch with other addresses on another stream."""
    cdef Call* call = <Call*>what
    cdef Graph* graph = call.graph
    cdef char* workspace = call.workspace
    cdef Failure failure
    cdef int status
    # The slots of the call itself must stay; the captured addresses stand in front of its scalars.
    cdef void** slots = <void**>malloc((graph.slots + 1) * sizeof(void*))
    if slots == NULL:
        return -1
    memcpy(slots, call.slots, graph.slots * sizeof(void*))
    memcpy(slots, <const void*>addresses, graph.operands * sizeof(void*))
    if call.has_workspace:
        workspace = <char*>addresses[graph.operands]
    status = CUDNN_STATUS_SUCCESS
    if call.what.uses_cudnn:
        # The capturing stream is gone after recording: the next direct call must set its own.
        call.handle.stream = no_stream()
        status = cudnn_api().set_stream(call.handle.cudnn, stream)
    if status == CUDNN_STATUS_SUCCESS:
        status = call.what.enqueue(call, slots, workspace, stream, &failure)
    free(slots)
    return status


cdef Stop check_strides(
    Graph* graph, const LoadedPlan* loaded, OverrideValues* overrides, Obstacle* obstacle
) noexcept nogil:
    """Find a stride that breaks an alignment the plan counts on, as the frontend does.

    Each axis counts that has more than one element and a stride other than 1 (node_interface.h,
    misaligned_stride_dimension). Asked once for each value.
    """
    cdef size_t index
    cdef int slot, axis
    cdef int64_t bits
    if overrides.checked_for == loaded.id:
        return Stop.NOWHERE
    for index in range(loaded.aligned.size()):
        slot = loaded.aligned[index].slot
        if slot >= graph.operands or not overrides.has(slot):
            continue
        bits = graph.overrides.shapes[slot].bits
        for axis in range(<int>overrides.dim(slot).size()):
            if overrides.dim(slot)[axis] <= 1 or overrides.stride(slot)[axis] == 1:
                continue
            if overrides.stride(slot)[axis] * bits % (8 * loaded.aligned[index].alignment):
                obstacle.slot = slot
                obstacle.axis = axis
                obstacle.alignment = loaded.aligned[index].alignment
                return Stop.AT_STRIDE
    overrides.checked_for = loaded.id
    return Stop.NOWHERE


cdef Stop overridden_size(
    LoadedPlan* loaded, Handle* handle, const Plan* plan, OverrideValues* overrides,
    Obstacle* obstacle
) noexcept nogil:
    """Find the bytes of workspace for a call; asks cuDNN once for each value, 9.23 and newer."""
    cdef int64_t size = 0
    if overrides.sized_for == loaded.id and overrides.sized_on == handle.device:
        obstacle.size = overrides.workspace_size
        return Stop.NOWHERE
    if cudnn_api().get_plan_workspace_size == NULL or cudnn_api().get_version() < SIZE_SINCE:
        size = plan.workspace_size
    elif not loaded.sizes.find(handle.device, overrides[0], &size):
        if ask_workspace_size(
                cudnn_api(), handle, plan, overrides, &size, &obstacle.failure) < 0:
            return Stop.AT_FAILURE
        if not has_sum(loaded, size):
            obstacle.frontend_size = loaded.frontend_workspace
            obstacle.size = size
            return Stop.AT_LARGE_WORKSPACE
        loaded.sizes.keep(handle.device, overrides[0], size)
    obstacle.size = overrides.workspace_size = loaded.frontend_workspace + size
    overrides.sized_for = loaded.id
    overrides.sized_on = handle.device
    return Stop.NOWHERE


cdef int _raise_overridden(
    Failure* failure, Graph* graph, const OverrideValues* overrides
) except -1:
    """Raise what cuDNN said, with the values that were asked of it."""
    try:
        return raise_cudnn(failure.call, failure.status, graph.owner)
    except CudnnError as error:
        error.add_overrides(describe_values(graph, overrides))
        raise


cdef str describe_values(Graph* graph, const OverrideValues* overrides):
    """`q=((2, 8), (8, 1)), ...`: dims and strides of what is overridden."""
    return ", ".join([
        f"{(<tuple>graph.override_shapes)[slot][0]}="
        f"({tuple(overrides.dim(slot))}, {tuple(overrides.stride(slot))})"
        for slot in range(graph.operands)
        if overrides.has(slot)
    ])


cdef int _refuse_stride(
    Graph* graph, const OverrideValues* overrides, const Obstacle* obstacle
) except -1:
    """Raise what check_strides has found."""
    name, axes, _ = (<tuple>graph.override_shapes)[obstacle.slot]
    raise OperandError(
        f"{name}.{axes[obstacle.axis]}",
        f"a stride of a multiple of {obstacle.alignment} bytes",
        f"{overrides.stride(obstacle.slot)[obstacle.axis]} elements",
    )


cdef int overcome(
    Graph* self, Stop stop, Obstacle* obstacle, OverrideValues* overrides,
    int64_t workspace_bytes, CUstream stream
) except -1:
    """Provide what a call lacked, which begins again then, or raise what was wrong."""
    cdef void* owner = self.owner if obstacle.owner == NULL else obstacle.owner
    cdef size_t link
    if stop == Stop.AT_PLAN and self.chain != NULL:
        for link in range(self.chain.links.size()):
            handle_of_call(self.chain.links[link].graph, stream)
            provide_plan(self.chain.links[link].graph, stream)
        return 0
    if stop == Stop.AT_PLAN:
        return provide_plan(self, stream)
    if stop == Stop.AT_WORKSPACE:
        return take_block(stream, obstacle.size, self.owner)
    if stop == Stop.AT_SMALL_WORKSPACE:
        raise OperandError(
            "workspace", f"at least {obstacle.size} bytes", f"{workspace_bytes} bytes")
    if stop == Stop.AT_LARGE_WORKSPACE:
        return check_size(
            (<tuple>self.owner)[0], obstacle.frontend_size + <object>obstacle.size)
    if stop == Stop.AT_STREAM or stop == Stop.AT_CAPTURE:
        raise StreamError((<tuple>owner)[0], stop == Stop.AT_CAPTURE)
    if stop == Stop.AT_STRIDE:
        return _refuse_stride(self, overrides, obstacle)
    if obstacle.failure.call == NULL:
        raise MemoryError
    if obstacle.failure.of_driver:
        return check_driver(obstacle.failure.call, obstacle.failure.status)
    if overrides != NULL:
        return _raise_overridden(&obstacle.failure, self, overrides)
    return raise_cudnn(obstacle.failure.call, obstacle.failure.status, owner)
