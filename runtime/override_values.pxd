"""Overrides as the runtime sees them: declarations only, the C++ is in override_values.hpp."""
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as bool_t
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef extern from "override_values.hpp" namespace "cudnn_bindgen" nogil:
    cppclass DeclaredShape:
        int64_t uid
        int64_t bits
        bool_t is_output
        vector[int64_t] dim
        vector[int64_t] stride

    cppclass SymbolStep:
        char operation
        int64_t number

    cppclass SymbolUse:
        int slot
        int axis
        vector[SymbolStep] steps

    cppclass OverrideSymbol:
        bool_t is_packed
        vector[SymbolUse] uses

    cppclass OverrideTable:
        vector[DeclaredShape] shapes
        vector[OverrideSymbol] symbols
        bool_t is_unbounded
        void* graph
        void finish()

    enum: NOTHING "cudnn_bindgen::Refused::kNothing"
    enum: NEGATIVE_DIM "cudnn_bindgen::Refused::kNegativeDim"
    enum: NEGATIVE_STRIDE "cudnn_bindgen::Refused::kNegativeStride"
    enum: ABOVE_DECLARED "cudnn_bindgen::Refused::kAboveDeclared"
    enum: TOO_LARGE "cudnn_bindgen::Refused::kTooLarge"

    cppclass Refused:
        int why
        int slot
        int axis
        int64_t value

    cppclass OverrideValues:
        OverrideValues(const OverrideTable& table) except +
        OverrideValues(const OverrideValues& other) except +
        bool_t operator==(const OverrideValues& other)
        vector[int64_t] uids
        vector[vector[int64_t]] dims
        vector[vector[int64_t]] strides
        uint64_t checked_for
        uint64_t sized_for
        int sized_on
        int64_t workspace_size
        const OverrideTable& table()
        bool_t has(int slot)
        const vector[int64_t]& dim(int slot)
        const vector[int64_t]& stride(int slot)
        uint64_t span(int slot)
        bool_t is_empty_at(int slot)
        bool_t computes_nothing()
        const string& key()
        uint64_t hash()
        Refused set(int slot, const int64_t* dim, const int64_t* stride, const char* given)
        Refused set_symbols(const int64_t* numbers, const char* given)
        void reset()

cdef extern from "override_sizes.hpp" namespace "cudnn_bindgen" nogil:
    cppclass OverrideSizes:
        bool_t find(int device, const OverrideValues& values, int64_t* size)
        void keep(int device, const OverrideValues& values, int64_t size)
