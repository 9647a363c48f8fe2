# cython: language_level=3, freethreading_compatible=True
"""Several graphs in one generated module: a key chooses one, whose own functions do the rest."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport int64
from cudnn_bindgen.runtime.graph cimport (
    close_graph, execute_plan, graph_launch_stats, graph_workspace_size, register_graph,
    replace_plans, set_graph_policy,
)
from cudnn_bindgen.runtime.members cimport MOST_NUMBERS, Family, Members, Place, refuse_key
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport TensorRules
from cudnn_bindgen.runtime.tensors cimport (
    register_tensors, run_member_tensors, run_tensors, set_tensor_checks,
)

from cudnn_bindgen.runtime import member_errors
from cudnn_bindgen.runtime.metadata import Loadable

# Keeps alive what families point to; by address: names, and of each member what can be loaded.
_registered = {}


cdef void* register_family(
    str module, tuple names, dict members, tuple plans, tuple structures, tuple places, tuple rules
) except NULL:
    """Register a module's graphs: `members`, key → metadata.Member, in the order of keys.

    `plans` are all members', told apart by their fingerprints. `structures`: what plans can be made
    of, and `rules`: layouts and shared of register_tensors, of each member. `places`: of each
    number of the key, (slot, axis) of the dims that are it.
    """
    cdef Family* family = new Family()
    cdef Members* table = &family.members
    cdef vector[Place] at
    cdef void* graph
    embedded = {}
    for plan in plans:
        embedded.setdefault(plan.fingerprint, []).append(plan)
    loadable = []
    table.width = <int>len(names)
    for (key, member), structure, (layouts, shared) in zip(
        members.items(), structures, rules, strict=True
    ):
        own = tuple(embedded.get(member.fingerprint, ()))
        key_text = ", ".join([f"{name}={value}" for name, value in zip(names, key, strict=True)])
        graph = register_graph(f"{module}[{key_text}]", member.fingerprint, member.operands, own)
        register_tensors(graph, layouts, shared)
        uids = [operand.uid for operand in member.operands]
        loadable.append(Loadable(member.fingerprint, own, structure, uids))
        table.graphs.push_back(graph)
        table.rules.push_back(<TensorRules*>(<Graph*>graph).tensors)
        for value in key:
            table.keys.push_back(value)
    for number in places:
        at.clear()
        for slot, axis in number:
            at.push_back(Place(slot, axis))
        table.places.push_back(at)
    table.finish()
    family.names = <void*>names
    _registered[<size_t>family] = names, loadable
    return family


cdef int execute_member(
    void* family, const int64_t* key, void** slots, void* workspace, void* stream
) except -1 nogil:
    """`execute_plan` of the member that has `key`; raises the same, and OperandError for others."""
    cdef Members* members = &(<Family*>family).members
    cdef int member = members.find(key)
    if member < 0:
        return refuse_key(<Family*>family, key)
    if members.rules[member].computes_nothing:
        return 0
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


cdef int64_t family_workspace_size(void* family) except -1:
    """The largest `graph_workspace_size` of all members; creates all plans."""
    cdef Family* self = <Family*>family
    cdef int member
    cdef int64_t largest = 0
    for member in range(self.members.count()):
        largest = max(largest, graph_workspace_size(self.members.graphs[member]))
    return largest


cdef int load_member(void* family, tuple plans, object source, object plan_maker) except -1:
    """`replace_plans` by `plans` of the file `source`, for the member that they are of.

    `plan_maker` is planning.missing's, or None where missing plans are refused.
    """
    cdef Family* self = <Family*>family
    cdef int member
    loadable = _registered[<size_t>family][1]
    known = [one.fingerprint for one in loadable]
    if not plans:
        raise member_errors.no_plan_error()
    if plans[0].fingerprint not in known:
        raise member_errors.unknown_graph_error(plans[0].fingerprint, known)
    member = known.index(plans[0].fingerprint)
    make_missing = plan_maker(source, loadable[member].uids) if plan_maker is not None else None
    return replace_plans(self.members.graphs[member], plans, make_missing)


cdef int load_members(void* family, object plan_maker) except -1:
    """`replace_plans` by the plans that came with the module, for each member that has some.

    With a `plan_maker` for each member; where no member has any, it raises what `replace_plans`
    does of none.
    """
    cdef Family* self = <Family*>family
    cdef int member
    loadable = _registered[<size_t>family][1]
    is_empty = not any([one.plans for one in loadable])
    for member, one in enumerate(loadable):
        if one.plans or plan_maker is not None or is_empty:
            make_missing = None
            if plan_maker is not None:
                make_missing = plan_maker(one.structure, one.uids)
            replace_plans(self.members.graphs[member], one.plans, make_missing)
    return 0


cdef int close_family(void* family) except -1:
    """`close_graph` for each member, also after one that cannot be closed."""
    cdef Family* self = <Family*>family
    cdef int member
    failure = None
    for member in range(self.members.count()):
        try:
            close_graph(self.members.graphs[member])
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return 0


cdef int set_family_policy(void* family, object policy) except -1:
    """`set_graph_policy` for each member."""
    cdef Family* self = <Family*>family
    cdef int member
    for member in range(self.members.count()):
        set_graph_policy(self.members.graphs[member], policy)
    return 0


cdef int set_family_checks(void* family, bint enabled) except -1:
    """`set_tensor_checks` for each member."""
    cdef Family* self = <Family*>family
    cdef int member
    for member in range(self.members.count()):
        set_tensor_checks(self.members.graphs[member], enabled)
    return 0


cdef dict family_launch_stats(void* family):
    """`graph_launch_stats` of all members together; the reason is one of them."""
    cdef Family* self = <Family*>family
    cdef int member
    every = [graph_launch_stats(self.members.graphs[member])
             for member in range(self.members.count())]
    total = {name: sum([stats[name] for stats in every]) for name in every[0] if name != "reason"}
    recorded = total["record_unchanged"] + total["record_patched"]
    total["hit_rate"] = recorded / max(1, recorded + total["direct"])
    total["reason"] = next((stats["reason"] for stats in every if stats["reason"]), "")
    return total
