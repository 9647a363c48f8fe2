# cython: language_level=3
# distutils: language=c++
"""Overrides of operands that a test makes up, without a module emitted for them."""
from cudnn_bindgen.runtime.graph cimport register_graph
from cudnn_bindgen.runtime.overrides cimport (
    free_overrides, make_overrides, override_slot, override_symbols, register_overrides,
    show_overrides,
)


cdef class Probe:
    cdef void* values

    def __cinit__(self, operands, shapes, symbols, is_unbounded):
        cdef void* graph = register_graph("probe", "0" * 32, operands, ())
        register_overrides(graph, shapes, symbols, is_unbounded)
        self.values = make_overrides(graph)

    def __dealloc__(self):
        free_overrides(self.values)

    def override(self, int slot, dim, stride):
        override_slot(self.values, slot, dim, stride)

    def set(self, tuple numbers):
        override_symbols(self.values, numbers)

    def __repr__(self):
        return show_overrides(self.values)
