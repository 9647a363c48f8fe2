# cython: language_level=3, freethreading_compatible=True
"""Several graphs in one generated module: a key chooses one, whose own functions do the rest."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport int64
from cudnn_bindgen.runtime.graph cimport execute_plan
from cudnn_bindgen.runtime.members cimport MOST_NUMBERS, Family, Members, Place, refuse_key
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport TensorRules
from cudnn_bindgen.runtime.tensors cimport run_member_tensors, run_tensors


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
        return refuse_key(<Family*>family, key)
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
        return run_member_tensors(self, given, slots, workspace, stream, check)
    member = self.members.find(numbers)
    if member < 0:
        refuse_key(self, numbers)
    return run_tensors(
        self.members.graphs[member], given, slots, workspace, stream, check, NULL)


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
        refuse_key(self, numbers)
    return self.members.graphs[member]
