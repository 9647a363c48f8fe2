"""What generated modules for several graphs call: functions only, as in graph.pxd."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef void* register_family(
    str module, tuple names, dict members, tuple plans, tuple structures, tuple places, tuple rules
) except NULL
cdef int execute_member(
    void* family, const int64_t* key, void** slots, void* workspace, void* stream
) except -1 nogil
cdef object run_member(
    void* family, PyObject** key, PyObject** given, void** slots, object workspace, object stream,
    bint check,
)
cdef void* member_of_key(void* family, tuple key) except NULL
cdef int64_t family_workspace_size(void* family) except -1
cdef int load_member(void* family, tuple plans, object source, object plan_maker) except -1
cdef int load_members(void* family, object plan_maker) except -1
cdef int close_family(void* family) except -1
cdef int set_family_policy(void* family, object policy) except -1
cdef int set_family_checks(void* family, bint enabled) except -1
cdef dict family_launch_stats(void* family)
