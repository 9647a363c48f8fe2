"""What generated modules call: functions only, found by name and signature at a module's import.

Adding a function is safe for modules compiled earlier. Changing what one means needs a new number
in module_data.py.
"""
from libc.stdint cimport int64_t

cdef int check_abi(int emitted_for) except -1
cdef void* graph_of(object binding) except NULL
cdef object handle_to(void* graph)
cdef void* register_graph(
    str module, str fingerprint, str source, tuple operands, tuple plans
) except NULL
cdef int execute_plan(void* graph, void** slots, void* workspace, void* stream) except -1 nogil
cdef int execute_overridden(
    void* graph, void** slots, void* overrides, void* workspace, void* stream
) except -1 nogil
cdef int execute_on_device(
    void* graph, void** slots, void* overrides, void* workspace, int64_t workspace_bytes,
    void* stream, int device,
) except -1 nogil
cdef int64_t graph_workspace_size(void* graph) except -1
cdef int64_t overridden_workspace_size(void* graph, void* overrides) except -1
cdef int replace_plans(void* graph, tuple plans, object make_missing) except -1
cdef int close_graph(void* graph) except -1
cdef bint is_graph_open(void* graph) noexcept
cdef int set_graph_policy(void* graph, object policy) except -1
cdef int policy_number(object name, str where) except -1
cdef object graph_launch_path(void* graph)
cdef dict graph_launch_stats(void* graph)
cdef list graph_launch_nodes(void* graph)
