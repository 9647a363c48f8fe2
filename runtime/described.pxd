from cudnn_bindgen.runtime.registered cimport Graph

cdef list describe_graph(Graph* self)
