# cython: language_level=3, freethreading_compatible=True
"""Which member of a family the tensors of a call are for, and what is said if that is none."""
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.members cimport MOST_NUMBERS, Family, Fit, Members
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    GIVEN_READ_ONLY, GIVEN_TENSOR, MOST_OPERANDS, Finding, TensorCall, check_tensors, refuse_tensor,
)


cdef void* member_of_tensors(Family* family, const TensorCall* call) except NULL:
    """The graph that the tensors of `call`, whose outputs may be missing, have the shapes of.

    By the extents of the axes that are the key, if tensors have their axes as declared; else the
    one member that all of them fit.
    """
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


cdef int refuse_key(Family* family, const int64_t* key) except -1 with gil:
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
