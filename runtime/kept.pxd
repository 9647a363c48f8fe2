"""Things that captured CUDA graphs need: declarations only, the C++ is in kept.hpp."""
from libc.stdint cimport uint64_t

cdef extern from "kept.hpp" namespace "cudnn_bindgen" nogil:
    cppclass UserObjectCalls:
        void* get_capture_info
        void* create
        void* release
        void* retain

    uint64_t capture_id(const UserObjectCalls& driver, void* stream)

    cppclass Kept:
        Kept(void* what, void (*unneeded)(void* what) noexcept nogil)
        int hold(const UserObjectCalls& driver, void* stream)
        bint let_go()

    cppclass Unneeded:
        void add(void* what)
        void* take()
