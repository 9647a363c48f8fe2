"""What a generated module's `Overrides` calls: functions only, as in graph.pxd.

An `overrides` is an Overrides of overrides.pyx, used by one thread at a time.
"""

cdef int register_overrides(
    void* graph, tuple shapes, tuple symbols, bint is_unbounded
) except -1
cdef int override_slot(object overrides, int slot, object dim, object stride) except -1
cdef int override_symbols(object overrides, tuple numbers) except -1
cdef void* values_of(void* graph, object overrides) except? NULL
cdef int set_record_capacity(void* graph, object records) except -1
