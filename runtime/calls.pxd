"""Counting the calls that are inside a graph's plan, so that what retires a plan can wait for them.

Waiting is for the calls that came in so far, not for a moment without calls, which may never come.

No Python code runs inside: a finalizer, a signal handler or a debugger may close the graph, and
would wait for its own call. What a call lacks, or must raise, is a value until it has left.
"""
from libcpp.atomic cimport atomic
from libcpp.mutex cimport mutex

cdef extern from "<sched.h>" nogil:
    int sched_yield()


cdef cppclass Calls:
    atomic[int] inside[2]        # by the side that a call came in on
    atomic[int] side             # where calls come in now
    mutex waiting                # one thread waits at a time; held without the GIL


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
