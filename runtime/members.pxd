"""The members of a family: declarations of members.hpp, and what is said of keys."""
from libc.stdint cimport int64_t
from libcpp cimport bool as bool_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.tensor_checks cimport TensorCall, TensorRules

cdef extern from "members.hpp" namespace "cudnn_bindgen" nogil:
    struct Place:
        int slot
        int axis

    struct Fit:
        int whole
        int first
        int second
        bool_t is_clear

    cppclass Members:
        int width
        vector[int64_t] keys
        vector[void*] graphs
        vector[const TensorRules*] rules
        vector[vector[Place]] places
        int count()
        const int64_t* key_of(int member)
        void finish()
        int find(const int64_t* key)
        bool_t read_key(const TensorCall& call, int64_t* key)
        bool_t has_extents(const TensorCall& call, int member)
        Fit fit(const TensorCall& call)

cdef enum:
    MOST_NUMBERS = 16            # of a key: codegen/model/limits.py


# What a generated module for several graphs registers, once; never freed, as a Graph is not.
cdef cppclass Family:
    Members members
    void* names                  # tuple: what the numbers of a key are called; kept by family.pyx

cdef void* member_of_tensors(Family* family, const TensorCall* call) except NULL
cdef int refuse_key(Family* family, const int64_t* key) except -1 with gil
