"""Launch records as the runtime sees them: declarations only, the C++ is in records.hpp."""
from libc.stdint cimport uint64_t
from libcpp.atomic cimport atomic
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef extern from "records.hpp" namespace "cudnn_bindgen" nogil:
    enum: POLICY_DIRECT "cudnn_bindgen::kDirect"
    enum: POLICY_RECORD "cudnn_bindgen::kRecord"

    enum: STREAM_UNKNOWN "cudnn_bindgen::kUnknown"
    enum: STAYS_ON_STREAM "cudnn_bindgen::kStays"
    enum: LEAVES_STREAM "cudnn_bindgen::kLeaves"

    # All records of one plan.
    cppclass PlanRecords:
        void empty()

    # All records of one handle.
    cppclass RecordStore:
        pass

    cppclass LaunchCounts:
        atomic[uint64_t] direct
        atomic[uint64_t] unchanged
        atomic[uint64_t] patched
        atomic[uint64_t] recorded
        atomic[uint64_t] refused
        atomic[uint64_t] evicted
        atomic[int] last_path
        string reason()

    cppclass Patch:
        unsigned offset
        unsigned operand
        uint64_t addend

    cppclass NodeDescription:
        string kind
        string function
        unsigned[3] grid
        unsigned[3] block
        unsigned shared_bytes
        size_t bytes
        vector[Patch] patches
