# cython: language_level=3, freethreading_compatible=True
"""Several graphs that are wired by tensors, launched as if they were one.

Callers see a graph of its own, with a chain in place of plans. Its links are graphs of their own,
each with its plans; what lies between them is in the workspace. So a call of the chain is a
function of its operands' addresses and of the workspace's, as that of a graph is, and all else is
shared with graphs: records, streams, captures, checks.

Its links share the chain's calls: who retires the plans of one waits for calls of the chain.
"""
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.device_plan cimport chosen_plan
from cudnn_bindgen.runtime.handle cimport Handle, Obstacle, Stop
from cudnn_bindgen.runtime.launch cimport Call, Launched, as_launched, enqueue_plan, launch
from cudnn_bindgen.runtime.library cimport (
    CU_STREAM_PER_THREAD, CUDA_SUCCESS, CUstream, DriverApi, Failure, driver_api, is_forked,
)
from cudnn_bindgen.runtime.plan cimport (
    MAX_DEVICES, LoadedPlan, PlanSet, keep_for_capture, most_workspace, next_id,
)
from cudnn_bindgen.runtime.record cimport POLICY_DIRECT, STAYS_ON_STREAM
from cudnn_bindgen.runtime.registered cimport Chain, Graph, Joined, Link, Place, wait_for_calls

cdef extern from "capture_branches.hpp" namespace "cudnn_bindgen" nogil:
    int find_ends(const DriverApi& driver, void* stream, vector[void*]& ends)
    int wait_for_ends(const DriverApi& driver, void* stream, const vector[void*]& ends)

cdef enum:
    LANE_ALIGNMENT = 256         # bytes; what records prove of a workspace
    NO_WORKSPACE = -1


cdef int register_chain(void* graph, void** links, object data) except -1:
    """Make a chain of `links`, registered graphs, for callers who see `graph`, which has no plans.

    `data`: module_data.ChainData.
    """
    cdef Graph* self = <Graph*>graph
    cdef Chain* chain = new Chain()
    cdef Link link
    cdef Place place
    cdef int index
    chain.inner_size = data.inner_size
    chain.is_serial = True
    for index, one in enumerate(data.links):
        link.graph = <Graph*>links[index]
        link.places.clear()
        for place.slot, place.offset in one.places:
            link.places.push_back(place)
        link.after = one.after
        link.lane = one.lane
        chain.lanes = max(chain.lanes, link.lane + 1)
        if one.after != (() if index == 0 else (index - 1,)):
            chain.is_serial = False
        chain.links.push_back(link)
        link.graph.calls = self.calls
        link.graph.within = self
    self.chain = chain
    return 0


cdef Stop find_joined(
    Graph* self, Handle* handle, Launched* what, Obstacle* obstacle
) noexcept nogil:
    """Find the plans of a chain's links on the handle's device; AT_PLAN: one has none there.

    For a thread that is inside the plans.
    """
    cdef Joined* joined = NULL
    cdef Stop stop = Stop.AT_PLAN
    if handle.device < MAX_DEVICES:
        joined = self.chain.joined[handle.device].load()
    if joined == NULL:
        stop = _join(self, handle, obstacle, &joined)
        if stop != Stop.NOWHERE:
            return stop
    what.id = joined.id
    what.records = &joined.records
    what.stream_use = &joined.stream_use
    what.workspace_size = joined.workspace_size
    what.uses_cudnn = True
    what.pack_size = 0
    what.enqueue = _enqueue_links
    what.direct = _launch_links
    what.loaded = NULL
    what.plan = NULL
    what.joined = joined
    return Stop.NOWHERE


cdef Stop _join(
    Graph* self, Handle* handle, Obstacle* obstacle, Joined** result
) noexcept nogil:
    # Under the lock no plan of a link is replaced: what is stored is of those that there are now.
    cdef Joined* joined
    cdef Stop stop = Stop.AT_PLAN
    if handle.device >= MAX_DEVICES:
        return stop
    self.building.lock()
    joined = self.chain.joined[handle.device].load()
    if joined == NULL:
        joined = new Joined()
        stop = _collect(self.chain, handle, obstacle, joined)
        if stop == Stop.NOWHERE:
            joined.id = next_id()
            self.chain.joined[handle.device].store(joined)
        else:
            del joined
            joined = NULL
    self.building.unlock()
    result[0] = joined
    return Stop.NOWHERE if joined != NULL else stop


cdef Stop _collect(
    Chain* chain, Handle* handle, Obstacle* obstacle, Joined* joined
) noexcept nogil:
    cdef vector[int64_t] sizes, starts
    cdef int64_t size, total = chain.inner_size
    cdef LoadedPlan* loaded
    cdef size_t index
    cdef int lane
    sizes.resize(chain.lanes)
    for index in range(chain.links.size()):
        loaded = chosen_plan(chain.links[index].graph, handle)
        if loaded == NULL:
            return Stop.AT_PLAN
        joined.loaded.push_back(loaded)
        joined.plans.push_back(loaded.by_device[handle.device].load())
        size = loaded.frontend_workspace + joined.plans.back().workspace_size
        joined.offsets.push_back(size)
        lane = chain.links[index].lane
        sizes[lane] = max(sizes[lane], size)
    for lane in range(chain.lanes):
        starts.push_back(total)
        total += (sizes[lane] + LANE_ALIGNMENT - 1) // LANE_ALIGNMENT * LANE_ALIGNMENT
        if total > most_workspace():
            obstacle.frontend_size = starts[lane]
            obstacle.size = sizes[lane]
            return Stop.AT_LARGE_WORKSPACE
    for index in range(chain.links.size()):
        # Until here the sizes.
        joined.offsets[index] = (
            starts[chain.links[index].lane] if joined.offsets[index] > 0 else NO_WORKSPACE)
    joined.workspace_size = total
    return Stop.NOWHERE


cdef PlanSet* take_plans(Graph* self, PlanSet* plans) noexcept nogil:
    """Put `plans` in place of the graph's; return those when no call is inside them any more.

    Of a link, what its chain has joined with them is destroyed: its records launch kernels of all.
    NULL: there were none, or it is a forked process, where calls that the fork interrupted never
    leave, and locks may be another thread's for ever.
    """
    cdef PlanSet* old
    if is_forked():
        self.plans.exchange(plans)
        return NULL
    if self.within != NULL:
        return _part(self, self.within, plans)
    old = self.plans.exchange(plans)
    if old != NULL:
        wait_for_calls(self.calls)
    return old


cdef PlanSet* _part(Graph* link, Graph* self, PlanSet* plans) noexcept nogil:
    cdef vector[Joined*] joined
    cdef PlanSet* old
    cdef Joined* one
    cdef size_t index
    cdef int device
    # Until the records are gone: another link's plans, which they launch as well, may be taken now.
    self.chain.parting.lock()
    self.building.lock()
    old = link.plans.exchange(plans)
    for device in range(MAX_DEVICES):
        one = self.chain.joined[device].exchange(NULL)
        if one != NULL:
            joined.push_back(one)
    self.building.unlock()
    if old != NULL:
        wait_for_calls(self.calls)
    for index in range(joined.size()):
        joined[index].records.empty()
        del joined[index]
    self.chain.parting.unlock()
    return old


cdef int keep_links(Joined* joined, CUstream stream, Failure* failure) noexcept nogil:
    """Let the CUDA graph that `stream` is being captured into own the links' plans as well."""
    cdef size_t index
    for index in range(joined.loaded.size()):
        if keep_for_capture(joined.loaded[index], stream, failure) < 0:
            return -1
    return 0


cdef str reason_of_links(Graph* self):
    """Why links of a chain cannot be recorded, to be added to why the chain cannot."""
    cdef Graph* graph
    cdef size_t index
    reasons = []
    if self.chain != NULL:
        for index in range(self.chain.links.size()):
            graph = self.chain.links[index].graph
            reason = graph.counts.reason().decode()
            if reason:
                reasons.append(f"; {(<tuple>graph.owner)[0]}: {reason}")
    return "".join(reasons)


cdef void _fill(Link* link, void** outer, char* workspace, void** slots) noexcept nogil:
    """Write the addresses of a link's slots."""
    cdef size_t slot
    cdef Place* place
    cdef char* start
    for slot in range(link.places.size()):
        place = &link.places[slot]
        start = workspace
        if place.slot >= 0:
            start = <char*>outer[place.slot]
        slots[slot] = start + place.offset


cdef char* _own_workspace(Joined* joined, size_t link, char* workspace) noexcept nogil:
    cdef int64_t offset = joined.offsets[link]
    if offset == NO_WORKSPACE:
        return NULL
    return workspace + offset


cdef int _enqueue_links(
    Call* call, void** slots, char* workspace, CUstream stream, Failure* failure
) noexcept nogil:
    """Enqueue all links on a stream that is being captured, as branches where they are apart."""
    cdef const DriverApi* driver = driver_api()
    cdef Chain* chain = call.graph.chain
    cdef Joined* joined = call.what.joined
    cdef vector[vector[void*]] ends
    cdef vector[void*]* others
    cdef vector[void*] own, pack
    cdef Link* link
    cdef LoadedPlan* loaded
    cdef size_t index, other
    cdef int status
    ends.resize(chain.links.size())
    for index in range(chain.links.size()):
        link = &chain.links[index]
        loaded = joined.loaded[index]
        if not chain.is_serial:
            # What it waits for; its own ends from here on.
            for other in range(link.after.size()):
                others = &ends[link.after[other]]
                ends[index].insert(ends[index].end(), others.begin(), others.end())
            status = wait_for_ends(driver[0], stream, ends[index])
            if status != CUDA_SUCCESS:
                failure[0] = Failure("cuStreamUpdateCaptureDependencies", status, True)
                return -1
        if not link.graph.computes_nothing:
            own.resize(link.graph.slots)
            pack.resize(loaded.uids.size())
            _fill(link, slots, workspace, own.data())
            if enqueue_plan(
                    loaded, joined.plans[index], call.handle, link.graph.slots, own.data(), NULL,
                    _own_workspace(joined, index, workspace), pack.data(), stream, failure) < 0:
                return -1
        if not chain.is_serial:
            status = find_ends(driver[0], stream, ends[index])
            if status != CUDA_SUCCESS:
                failure[0] = Failure("cuStreamGetCaptureInfo", status, True)
                return -1
    return 0


cdef Stop _launch_links(
    Call* call, CUstream stream, bint in_capture, Obstacle* obstacle
) noexcept nogil:
    """Launch one link after the other; by records of their own, if the chain can have none."""
    cdef Graph* self = call.graph
    cdef Stop stop = Stop.NOWHERE
    cdef int policy = POLICY_DIRECT
    if self.counts.refused.load():
        policy = self.policy.load()
    # All of them first: no call does the half of its work.
    if in_capture or <size_t>stream > CU_STREAM_PER_THREAD:
        stop = _for_each_link(call, stream, in_capture, True, policy, obstacle)
    if stop == Stop.NOWHERE:
        stop = _for_each_link(call, stream, in_capture, False, policy, obstacle)
    return stop


cdef Stop _for_each_link(
    Call* call, CUstream stream, bint in_capture, bint checks_only, int policy, Obstacle* obstacle
) noexcept nogil:
    cdef Joined* joined = call.what.joined
    cdef Launched what
    cdef vector[void*] own
    cdef Link* link
    cdef Stop stop
    cdef size_t index
    for index in range(call.graph.chain.links.size()):
        link = &call.graph.chain.links[index]
        if link.graph.computes_nothing:
            continue
        if checks_only and joined.plans[index].stream_use.load() == STAYS_ON_STREAM:
            continue
        if link.graph.policy.load() != policy:
            link.graph.policy.store(policy)
        own.resize(link.graph.slots)
        _fill(link, call.slots, call.workspace, own.data())
        as_launched(joined.loaded[index], joined.plans[index], &what)
        stop = launch(
            &what, link.graph, call.handle, own.data(), NULL,
            _own_workspace(joined, index, call.workspace), stream, not in_capture, checks_only,
            obstacle)
        if stop != Stop.NOWHERE:
            obstacle.owner = link.graph.owner
            return stop
    return Stop.NOWHERE
