# cython: language_level=3
"""Overrides of operands that a test makes up, without a module emitted for them."""
from cudnn_bindgen.runtime.graph cimport handle_to, register_graph
from cudnn_bindgen.runtime.overrides cimport override_slot, override_symbols, register_overrides

from cudnn_bindgen.runtime.overrides import Overrides


class _Graph:
    def __init__(self, handle):
        self.handle = handle


cdef class Probe:
    cdef object overrides

    def __cinit__(self, operands, shapes, symbols, is_unbounded):
        cdef void* graph = register_graph("probe", "0" * 32, "", operands, ())
        register_overrides(graph, shapes, symbols, is_unbounded)
        self.overrides = type("Overrides", (Overrides,), {"_binding": _Graph(handle_to(graph))})()

    def override(self, int slot, dim, stride):
        override_slot(self.overrides, slot, dim, stride)

    def set(self, tuple numbers):
        override_symbols(self.overrides, numbers)

    def __repr__(self):
        return repr(self.overrides)
