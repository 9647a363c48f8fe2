# cython: language_level=3, freethreading_compatible=True
"""What one call of a graph launches on the current device."""
from libcpp.string cimport string
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.calls cimport enter_call, leave_call
from cudnn_bindgen.runtime.device_plan cimport chosen_plan, handle_of_call
from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.launch cimport describe_loaded
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.missing_plan cimport provide_plan
from cudnn_bindgen.runtime.record cimport NodeDescription
from cudnn_bindgen.runtime.registered cimport Graph

from cudnn_bindgen.runtime.errors import BindingError


cdef list describe_graph(Graph* self):
    """Nodes, and which words of them are whose address. Raises as execute_plan does."""
    cdef vector[NodeDescription] nodes
    cdef string reason
    while not _find_nodes(self, handle_of_call(self, NULL), nodes, reason):
        provide_plan(self, NULL)
    if not reason.empty():
        raise BindingError(f"the launch cannot be recorded: {reason.decode()}")
    names = [operand.argument for operand in <tuple>self.operand_data if operand.role != "scalar"]
    names.append("workspace_ptr")
    return [
        {
            "kind": node.kind.decode(),
            "function": node.function.decode(),
            "grid": tuple(node.grid),
            "block": tuple(node.block),
            "shared_bytes": node.shared_bytes,
            "bytes": node.bytes,
            "patches": [
                {"byte": patch.offset, "operand": names[patch.operand], "addend": patch.addend}
                for patch in node.patches
            ],
        }
        for node in nodes
    ]


cdef bint _find_nodes(
    Graph* self, Handle* handle, vector[NodeDescription]& nodes, string& reason
) noexcept nogil:
    """False: no plan is chosen for the device."""
    cdef int side = enter_call(&self.calls)
    cdef LoadedPlan* loaded = chosen_plan(self, handle)
    if loaded != NULL:
        describe_loaded(
            self, loaded, handle, loaded.by_device[handle.device].load(), nodes, reason)
    leave_call(&self.calls, side)
    return loaded != NULL
