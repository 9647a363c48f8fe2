"""Launch records as the runtime sees them: declarations only, the C++ is in launch_policy.hpp."""
from libc.stdint cimport uint64_t
from libcpp.atomic cimport atomic
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef extern from "launch_policy.hpp" namespace "cudnn_bindgen" nogil:
    enum: POLICY_DIRECT "cudnn_bindgen::kDirect"
    enum: POLICY_RECORD "cudnn_bindgen::kRecord"

    enum: STREAM_UNKNOWN "cudnn_bindgen::kUnknown"
    enum: STAYS_ON_STREAM "cudnn_bindgen::kStays"
    enum: LEAVES_STREAM "cudnn_bindgen::kLeaves"

    ctypedef int (*LaunchFunction)(void* what, void* const* addresses, void* stream) noexcept
    ctypedef size_t (*LargestFunction)(void* what) noexcept

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

    cppclass Recordable:
        LaunchFunction launch
        LargestFunction largest
        void* what
        void* context
        int device
        void* stream
        void* const* addresses
        const uint64_t* alignments
        size_t count

    cppclass CallKey:
        const char* scalars
        size_t scalar_bytes
        const char* shapes
        size_t shape_bytes
        uint64_t shape_hash

    cppclass RecordedCall:
        uint64_t plan
        PlanRecords* records
        atomic[int]* stream_use
        int policy
        Recordable work
        CallKey key
        size_t capacity

    bint launch_recorded(RecordStore*& store, const RecordedCall& call, LaunchCounts& counts)
    void find_stream_use(const RecordedCall& call)

cdef extern from "launch_description.hpp" namespace "cudnn_bindgen" nogil:
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

    # Learns what a call launches; returns why it cannot, or an empty string.
    string describe_launch(const RecordedCall& call, vector[NodeDescription]& nodes)
