# cython: language_level=3
# distutils: language=c++
"""Plans called through the runtime without a module of their own: for sweeps over many files."""
from libc.stdint cimport uintptr_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.graph cimport (
    close_graph, execute_plan, graph_launch_path, graph_launch_stats, graph_workspace_size,
    register_graph,
)


cdef class PlanCalls:
    """The plans of one graph: `operands` are metadata.Operand in slot order, scalars last."""

    cdef void* graph

    def __init__(self, str name, str fingerprint, tuple operands, tuple plans):
        self.graph = register_graph(name, fingerprint, operands, plans)

    def execute(self, list addresses, uintptr_t stream=0, uintptr_t workspace=0):
        """Call with device addresses, then host addresses of scalars."""
        cdef vector[void*] slots
        for address in addresses:
            slots.push_back(<void*><uintptr_t>address)
        execute_plan(self.graph, slots.data(), <void*>workspace, <void*>stream)

    def workspace_size(self):
        return graph_workspace_size(self.graph)

    def path(self):
        return graph_launch_path(self.graph)

    def stats(self):
        return graph_launch_stats(self.graph)

    def close(self):
        close_graph(self.graph)
