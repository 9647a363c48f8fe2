# distutils: language=c++
# cython: language_level=3, auto_pickle=False
"""A chain of layers, relu(x @ weight + bias), which one call enqueues without the GIL."""
from libc.stdint cimport uintptr_t
from libcpp.vector cimport vector

from dense cimport enqueue


cdef struct Layer:
    void* weight
    void* bias
    void* output


cdef class Layers:
    """Where each layer's weight, bias and output lie; the memory is the caller's."""
    cdef vector[Layer] _layers

    def __init__(self, layers):
        cdef uintptr_t weight, bias, output
        for weight, bias, output in layers:
            self._layers.push_back(Layer(<void*>weight, <void*>bias, <void*>output))

    def forward(self, uintptr_t x, uintptr_t workspace=0, uintptr_t stream=0):
        """Enqueue all layers on `stream`; after an error, those before the wrong one."""
        with nogil:
            enqueue_all(self._layers, <void*>x, <void*>workspace, <void*>stream)


cdef int enqueue_all(
    vector[Layer]& layers, void* x, void* workspace, void* stream
) except -1 nogil:
    cdef Layer layer
    for layer in layers:
        # On an error Cython returns from here: the next layer would read what was never written.
        enqueue(x, layer.weight, layer.bias, layer.output, workspace, stream)
        x = layer.output
    return 0
