# cython: language_level=3, freethreading_compatible=True
"""What one call of a graph launches on the current device."""
from cudnn_bindgen.runtime.calls cimport enter_call, leave_call
from cudnn_bindgen.runtime.device_plan cimport loaded_plans, plan_on_device
from cudnn_bindgen.runtime.handle cimport Handle, current_handle
from cudnn_bindgen.runtime.launch cimport describe_loaded
from cudnn_bindgen.runtime.loaded cimport LoadedPlan
from cudnn_bindgen.runtime.missing_plan cimport make_missing_plan
from cudnn_bindgen.runtime.plan_set cimport PlanSet
from cudnn_bindgen.runtime.registered cimport Graph


cdef list describe_graph(Graph* self):
    """Nodes, and which words of them are whose address. Raises as execute_plan does."""
    nodes = _nodes(self)
    while nodes is None:
        make_missing_plan(self, NULL)
        nodes = _nodes(self)
    names = [operand.argument for operand in <tuple>self.operand_data if operand.role != "scalar"]
    names.append("workspace_ptr")
    for node in nodes:
        node["patches"] = [
            {"byte": offset, "operand": names[operand], "addend": addend}
            for offset, operand, addend in node["patches"]
        ]
    return nodes


cdef list _nodes(Graph* self):
    """The nodes, or None: the plan has to be made."""
    cdef PlanSet* plans
    cdef Handle* handle
    cdef LoadedPlan* loaded
    cdef int side = enter_call(&self.calls)
    try:
        plans = loaded_plans(self)
        handle = current_handle(NULL, self.owner)
        loaded = plan_on_device(self, plans, handle)
        if loaded == NULL:
            return None
        return describe_loaded(self, loaded, handle, loaded.by_device[handle.device].load())
    finally:
        leave_call(&self.calls, side)
