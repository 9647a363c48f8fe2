from cudnn_bindgen.runtime.handle cimport Handle, Obstacle, Stop
from cudnn_bindgen.runtime.launch cimport Launched
from cudnn_bindgen.runtime.library cimport CUstream, Failure
from cudnn_bindgen.runtime.plan cimport PlanSet
from cudnn_bindgen.runtime.registered cimport Graph, Joined

cdef int register_chain(void* graph, void** links, object data) except -1
cdef Stop find_joined(
    Graph* self, Handle* handle, Launched* what, Obstacle* obstacle
) noexcept nogil
cdef PlanSet* take_plans(Graph* self, PlanSet* plans) noexcept nogil
cdef int keep_links(Joined* joined, CUstream stream, Failure* failure) noexcept nogil
cdef str reason_of_links(Graph* self)
