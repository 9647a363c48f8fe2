from libc.stdint cimport uint64_t, uintptr_t
from libcpp.atomic cimport atomic
from libcpp.mutex cimport mutex
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.calls cimport Calls
from cudnn_bindgen.runtime.override_values cimport OverrideTable
from cudnn_bindgen.runtime.plan_set cimport PlanSet
from cudnn_bindgen.runtime.record cimport LaunchCounts


# What a generated module registers, once; never freed, because a module is never unloaded.
cdef cppclass Graph:
    int slots
    int operands                 # the first slots are addresses, the rest point to scalars
    vector[uintptr_t] mask       # alignment - 1, by slot
    vector[int] may_be_null      # operands without an element
    bint computes_nothing        # no output has an element
    vector[int] scalar_bytes     # width of each scalar
    vector[uint64_t] proven      # what a record is proven for: each operand, then the workspace
    uint64_t largest             # bytes that the operand with the most spans, as declared
    OverrideTable* overrides     # NULL: the graph takes none
    void* override_shapes        # tuples of register_overrides, kept alive by overrides.pyx
    void* override_names         # tuple of the symbols' names; likewise
    atomic[int] policy           # of records.hpp
    atomic[int] record_capacity  # records of each stream
    LaunchCounts counts
    atomic[PlanSet*] plans       # NULL: closed, or emitted from structure only
    Calls calls                  # that may be inside a plan of the set
    mutex building               # one thread creates a plan or adds one; never waits for the GIL
    void* tensors                # TensorRules*, of register_tensors
    void* owner                  # (module, fingerprint), for messages; kept alive by graph.pyx
    void* operand_data           # tuple of metadata.Operand; likewise
