"""A registered graph, and counting the calls that are inside its plan.

What retires a plan waits for the calls that came in so far, not for a moment without calls, which
may never come.

No Python code runs inside: a finalizer, a signal handler or a debugger may close the graph, and
would wait for its own call. What a call lacks, or must raise, is a value until it has left.
"""
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libcpp.atomic cimport atomic
from libcpp.mutex cimport mutex
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.override_values cimport OverrideTable
from cudnn_bindgen.runtime.plan cimport MAX_DEVICES, LoadedPlan, Plan, PlanSet
from cudnn_bindgen.runtime.record cimport LaunchCounts, PlanRecords

cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef cppclass Calls:
    atomic[int] inside[2]        # by the side that a call came in on
    atomic[int] side             # where calls come in now
    mutex waiting                # one thread waits at a time; held without the GIL


cdef cppclass Graph


# Where the address of a link's slot comes from.
cdef struct Place:
    int slot                     # of the chain; -1: the workspace
    int64_t offset               # bytes from there on


# A graph of a chain.
cdef cppclass Link:
    Graph* graph
    vector[Place] places         # of each slot
    vector[int] after            # links that it waits for; not those that these wait for
    int lane                     # of the workspace


# The plans that a chain's links have on one device. Owned by the chain until one of them is
# retired; immutable but for the last two.
cdef cppclass Joined:
    uint64_t id                  # no plan and no others of the process ever have it
    vector[LoadedPlan*] loaded   # of each link
    vector[Plan*] plans
    vector[int64_t] offsets      # of each link's part of the workspace; -1: it needs none
    int64_t workspace_size
    PlanRecords records
    atomic[int] stream_use       # of records.hpp


# What makes one graph of several: the rest is theirs.
cdef cppclass Chain:
    vector[Link] links           # in the order in which they run
    bint is_serial               # each waits for the one before
    int lanes
    int64_t inner_size           # bytes of tensors between links, where the workspace begins
    # By device ordinal; written under `Graph.building` of the chain. NULL: not joined yet.
    atomic[Joined*] joined[MAX_DEVICES]
    mutex parting                # one thread takes plans of a link; never waits for the GIL


# What a generated module registers, once; never freed, because a module is never unloaded.
cdef cppclass Graph:
    int slots
    int operands                 # the first slots are addresses, the rest point to scalars
    vector[uintptr_t] mask       # alignment - 1, by slot
    vector[int] may_be_null      # operands without an element
    bint computes_nothing        # no output has an element
    vector[int] scalar_bytes     # width of each scalar
    vector[uint64_t] proven      # what a record is proven for: each operand, then the workspace
    uint64_t largest             # bytes that the operand with the most spans, as declared
    OverrideTable* overrides     # NULL: the graph takes none
    void* override_shapes        # tuples of register_overrides, kept alive by overrides.pyx
    void* override_names         # tuple of the symbols' names; likewise
    atomic[int] policy           # of records.hpp
    atomic[int] record_capacity  # records of each stream
    LaunchCounts counts
    atomic[PlanSet*] plans       # NULL: closed, or emitted from structure only
    Calls own_calls
    Calls* calls                 # that may be inside a plan of the set; links share their chain's
    Chain* chain                 # NULL: it is none
    Graph* within                # the chain that it is a link of, or NULL
    mutex building               # one thread creates a plan or adds one; never waits for the GIL
    void* tensors                # TensorRules*, of register_tensors
    void* source                 # the base name of its file, for messages; kept alive likewise
    const char* range            # its name in profiles; NULL: calls are no ranges; likewise
    void* owner                  # (module, fingerprint), for messages; kept alive by graph.pyx
    void* operand_data           # tuple of metadata.Operand; likewise


cdef inline int enter_call(Calls* calls) noexcept nogil:
    """Count a call in; return the side for `leave_call`."""
    cdef int side = calls.side.load()
    calls.inside[side].fetch_add(1)
    return side


cdef inline void leave_call(Calls* calls, int side) noexcept nogil:
    calls.inside[side].fetch_sub(1)


cdef inline void wait_for_calls(Calls* calls) noexcept nogil:
    """Wait until every call has left that may see what the caller has just taken away.

    Such a call has counted itself on one of the sides before that was taken away, so it is enough
    to see each side empty once. Others come in on one side only while the other runs empty.
    """
    cdef int side
    calls.waiting.lock()
    side = calls.side.load()
    # Calls that read `side` before it changed the last time and counted themselves after.
    while calls.inside[1 - side].load() != 0:
        sched_yield()
    calls.side.store(1 - side)
    while calls.inside[side].load() != 0:
        sched_yield()
    calls.waiting.unlock()
