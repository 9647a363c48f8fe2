# cython: language_level=3, freethreading_compatible=True
"""Several graphs in one generated module: a key or the tensors of a call choose one of them.

Its own functions do the rest.
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libcpp cimport bool as bool_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport int64
from cudnn_bindgen.runtime.graph cimport execute_plan
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    GIVEN_READ_ONLY, GIVEN_TENSOR, MOST_OPERANDS, Finding, TensorCall, TensorRules, check_tensors,
    refuse_tensor,
)
from cudnn_bindgen.runtime.tensors cimport choose_graph, run_chosen, run_tensors

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
    void* names                  # tuple: what the numbers of a key are called; kept by _registered


# Keeps alive what families point to.
_registered = []


cdef void* register_family(tuple names, list keys, void** graphs, tuple places) except NULL:
    """Register graphs that a key chooses among: `keys`, ascending, and as many graphs.

    `names` are those of a key's numbers. `places`: of each number, (slot, axis) of the dims that
    are it.
    """
    cdef Family* family = new Family()
    cdef Members* table = &family.members
    cdef vector[Place] at
    cdef size_t member
    table.width = <int>len(names)
    for key in keys:
        for value in key:
            table.keys.push_back(value)
    for member in range(len(keys)):
        table.graphs.push_back(graphs[member])
        table.rules.push_back(<TensorRules*>(<Graph*>graphs[member]).tensors)
    for number in places:
        at.clear()
        for slot, axis in number:
            at.push_back(Place(slot, axis))
        table.places.push_back(at)
    table.finish()
    family.names = <void*>names
    _registered.append(names)
    return family


cdef int execute_member(
    void* family, const int64_t* key, void** slots, void* workspace, void* stream
) except -1 nogil:
    """`execute_plan` of the member that has `key`; raises the same, and OperandError for others."""
    cdef Members* members = &(<Family*>family).members
    cdef int member = members.find(key)
    if member < 0:
        return _refuse_key(<Family*>family, key)
    return execute_plan(members.graphs[member], slots, workspace, stream)


cdef object run_member(
    void* family, PyObject** key, PyObject** given, void** slots, object workspace, object stream,
    bint check,
):
    """`run_tensors` of the member that has `key`, or, if all of that is None, of the tensors'."""
    cdef Family* self = <Family*>family
    cdef int64_t numbers[MOST_NUMBERS]
    cdef int member
    if not _take_key(self, key, numbers):
        return run_chosen(
            self.members.graphs[0], _member_of_tensors, self, given, slots, workspace, stream,
            check)
    member = self.members.find(numbers)
    if member < 0:
        _refuse_key(self, numbers)
    return run_tensors(
        self.members.graphs[member], given, slots, workspace, stream, check, NULL)


cdef void* member_of_operands(
    void* family, PyObject** key, PyObject** given, object stream
) except NULL:
    """The graph that `run_member` would run."""
    cdef Family* self = <Family*>family
    cdef int64_t numbers[MOST_NUMBERS]
    if not _take_key(self, key, numbers):
        return choose_graph(self.members.graphs[0], _member_of_tensors, self, given, stream)
    cdef int member = self.members.find(numbers)
    if member < 0:
        _refuse_key(self, numbers)
    return self.members.graphs[member]


cdef bint _take_key(Family* self, PyObject** key, int64_t* numbers) except -1:
    """Whether a key is given, which `numbers` becomes then."""
    cdef int number, left_out = 0
    for number in range(self.members.width):
        if <object>key[number] is None:
            left_out += 1
    if left_out == self.members.width:
        return False
    for number in range(self.members.width):
        name = (<tuple>self.names)[number]
        if <object>key[number] is None:
            from cudnn_bindgen.runtime import member_errors
            raise member_errors.half_key_error(<tuple>self.names, name)
        numbers[number] = int64(<object>key[number], name)
    return True


cdef void* member_of_key(void* family, tuple key) except NULL:
    """The graph of the member that has `key`."""
    cdef Family* self = <Family*>family
    cdef int64_t numbers[MOST_NUMBERS]
    cdef int number, member
    for number in range(self.members.width):
        numbers[number] = int64(key[number], (<tuple>self.names)[number])
    member = self.members.find(numbers)
    if member < 0:
        _refuse_key(self, numbers)
    return self.members.graphs[member]


cdef void* _member_of_tensors(void* of, const void* what) except NULL:
    """The graph of family `of` that the tensors of call `what` have the shapes of.

    Outputs may be missing. By the extents of the axes that are the key, if tensors have their axes
    as declared; else the one member that all of them fit.
    """
    cdef Family* family = <Family*>of
    cdef const TensorCall* call = <const TensorCall*>what
    cdef Members* members = &family.members
    cdef int64_t key[MOST_NUMBERS]
    cdef bint is_read = members.read_key(call[0], key)
    cdef int member = members.find(key) if is_read else -1
    if member >= 0 and members.has_extents(call[0], member):
        return members.graphs[member]
    cdef Fit fit = members.fit(call[0])
    if fit.whole == 1:
        return members.graphs[fit.first]
    if fit.whole > 1:
        from cudnn_bindgen.runtime import member_errors
        raise member_errors.ambiguous_error(
            <tuple>family.names, _key(members, fit.first), _key(members, fit.second))
    if fit.is_clear:
        # One operand is wrong, the others say which member is meant: its checks say what.
        _refuse_tensors(members, fit.first, call[0])
    if member >= 0:
        _refuse_tensors(members, member, call[0])
    from cudnn_bindgen.runtime import member_errors
    raise member_errors.unknown_shape_error(
        <tuple>family.names, _keys(members), _read_key(members, key) if is_read else None,
        _shapes(call))


cdef int _refuse_key(Family* family, const int64_t* key) except -1 with gil:
    """Raise that no member has this key."""
    from cudnn_bindgen.runtime import member_errors
    raise member_errors.unknown_key_error(
        <tuple>family.names, _keys(&family.members), _read_key(&family.members, key))


cdef int _refuse_tensors(Members* members, int member, TensorCall call) except -1:
    """Raise what is wrong with tensors for a member that they do not fit."""
    cdef void* addresses[MOST_OPERANDS]
    cdef int device
    call.rules = members.rules[member]
    cdef Finding finding = check_tensors(call, addresses, &device)
    if finding.what:
        refuse_tensor(<Graph*>members.graphs[member], &call, finding)
    return 0


cdef tuple _read_key(const Members* members, const int64_t* key):
    cdef int number
    return tuple([key[number] for number in range(members.width)])


cdef tuple _key(Members* members, int member):
    return _read_key(members, members.key_of(member))


cdef list _keys(Members* members):
    cdef int member
    return [_key(members, member) for member in range(members.count())]


cdef list _shapes(const TensorCall* call):
    """Name and shape of each tensor that was given."""
    cdef int slot, axis
    return [
        (
            (<tuple>call.rules.names)[slot],
            tuple([call.tensors[slot].shape[axis] for axis in range(call.tensors[slot].ndim)]),
        )
        for slot in range(call.count())
        if call.given[slot] == GIVEN_TENSOR or call.given[slot] == GIVEN_READ_ONLY
    ]
