"""Methods that count their calls in C, and ask for a closer look before some of them."""

from libc.stdint cimport uint64_t
from libcpp.vector cimport vector


cdef extern from "counted_method.hpp" namespace "recording":
    cdef struct Count:
        unsigned long thread
        uint64_t calls

    object make_type()
    object make(object type, object original, object look)
    vector[Count] read(object method, size_t address) except +
    void forget(object method, size_t address)
    void forget_all(object method)
    void c_look_again "recording::look_again"(object method, size_t address)
    void stop(object method)


cdef object TYPE = make_type()


def count_calls(original, look):
    """Return `original`, counted, for a class to have as a method.

    ``look(object, arguments, named, calls, since, has_returned)`` is called before some calls of a
    thread with an object: the first one, then whichever it returns. `since` counts from the last
    look, the call at hand included; `has_returned` says whether a call looked at has ended well.
    Neither objects nor arguments are kept.
    """
    return make(TYPE, original, look)


def read_calls(method, size_t address):
    """Return [(thread, calls)] of the object at an address."""
    return [(count.thread, count.calls) for count in read(method, address)]


def look_again(method, size_t address):
    """Look before the next call with an object, whatever the last look said."""
    c_look_again(method, address)


def forget_calls(method, size_t address):
    """Drop what was counted of an object that is about to go."""
    forget(method, address)


def forget_all_calls(method):
    """Drop all that was counted, as a forked child has to."""
    forget_all(method)


def stop_counting(method):
    """Only pass calls on from now."""
    stop(method)
