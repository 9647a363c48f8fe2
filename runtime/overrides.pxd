"""What a generated module's `Overrides` calls: functions only, as in graph.pxd.

An `overrides` is what make_overrides or copy_overrides gave; used by one thread at a time.
"""

cdef int register_overrides(
    void* graph, tuple shapes, tuple symbols, bint is_unbounded
) except -1
cdef void* make_overrides(void* graph) except NULL
cdef void* copy_overrides(void* overrides) except NULL
cdef void free_overrides(void* overrides) noexcept
cdef int override_slot(void* overrides, int slot, object dim, object stride) except -1
cdef int override_operand(void* overrides, object operand, object dim, object stride) except -1
cdef int override_symbols(void* overrides, tuple numbers) except -1
cdef int refuse_overrides(str module, object given) except -1
cdef int reset_overrides(void* overrides) except -1
cdef bint equal_overrides(void* overrides, void* other) noexcept
cdef Py_hash_t hash_overrides(void* overrides) except? -1
cdef str show_overrides(void* overrides)
cdef int set_record_capacity(void* graph, object records) except -1
