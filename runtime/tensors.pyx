# cython: language_level=3, freethreading_compatible=True
"""A generated module's `run`: objects → DLTensors → addresses, then the call that `execute` makes.

Objects are borrowed from the caller, which holds them during the call; what reading them takes is
in `owned` and released with it, also when an operand in the middle is refused.
"""
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.dlpack cimport DLPackExchangeAPI, DLTensor
from cudnn_bindgen.runtime.exchange cimport (
    GIVEN_ADDRESS, GIVEN_TENSOR, Given, current_stream, exchange_api, read_exchanged, read_other,
    stream_address, stream_of_framework,
)
from cudnn_bindgen.runtime.graph cimport execute_sized
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    check_address, check_overlaps, check_tensor, check_workspace, current_device, expected_dim,
    expected_stride, workspace_size_of,
)
from cudnn_bindgen.runtime.tensor_layout cimport LayoutKind, LayoutRule
from cudnn_bindgen.runtime.tensor_rules cimport (
    MOST_OPERANDS, AcceptedType, TensorRule, TensorRules,
)

from cudnn_bindgen.runtime.allocate import allocate_output
from cudnn_bindgen.runtime.tensor_types import STORED

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(object)
    void clear_error "PyErr_Clear"() noexcept

cdef enum:
    # Beside the ways of `Given`, while a call looks at its arguments.
    NOT_YET_READ = 100
    TO_BE_MADE = 101

_KINDS = {"plain": 0, "swapped": 1, "ragged": 2, "paged": 3, "dense": 4}

# Keeps alive what rules point to.
_registered = []


cdef int register_tensors(void* graph, tuple layouts, tuple shared) except -1:
    """Say how a graph's operands are compared, after register_graph.

    `layouts`: (parameter of `run`, kind, free axis) of each operand, in slot order. `shared`: slots
    (output, operand) that may be the same memory.
    """
    cdef Graph* self = <Graph*>graph
    cdef TensorRules* rules = new TensorRules()
    operands = (<tuple>self.operand_data)[:self.operands]
    for operand, (_, kind, free_axis) in zip(operands, layouts, strict=True):
        rules.operands.push_back(_rule(operand, _KINDS[kind], free_axis))
        if operand.role == "output":
            rules.outputs.push_back(<int>rules.operands.size() - 1)
    for output, other in shared:
        rules.operands[<int>output].shares.push_back(other)
    outputs = [operand for operand in operands if operand.role == "output"]
    rules.computes_nothing = bool(outputs) and all(0 in operand.dim for operand in outputs)
    rules.is_checked.store(True)
    names = tuple(name for name, _, _ in layouts)
    _registered.append(names)
    rules.names = <void*>names
    self.tensors = rules
    return 0


cdef TensorRule _rule(object operand, int kind, int free_axis) except *:
    cdef TensorRule rule
    cdef AcceptedType accepted
    rule.layout = LayoutRule(<LayoutKind>kind, free_axis)
    rule.is_output = operand.role == "output"
    rule.dim = operand.dim
    rule.stride = operand.stride
    for stored in STORED[operand.data_type]:
        accepted.data_type = stored.code | stored.bits << 8 | stored.lanes << 16
        accepted.pack = stored.pack
        rule.types.push_back(accepted)
    return rule


cdef int set_tensor_checks(void* graph, bint enabled) except -1:
    """Turn the checks of `run` on or off for all its calls."""
    (<TensorRules*>(<Graph*>graph).tensors).is_checked.store(enabled)
    return 0


cdef object run_tensors(
    void* graph,
    PyObject** given,
    void** slots,
    object workspace,
    object stream,
    bint check,
    void* overrides,
):
    """Enqueue the graph on the operands `given`, in slot order; None where an output is left out.

    `slots` has room for all slots and holds pointers to the scalars already. `overrides` are of
    make_overrides or NULL. Returns what stands for the outputs. Raises OperandError and what
    execute_plan raises.
    """
    cdef Graph* self = <Graph*>graph
    cdef TensorRules* rules = <TensorRules*>self.tensors
    cdef OverrideValues* values = <OverrideValues*>overrides
    cdef DLTensor views[MOST_OPERANDS]
    cdef int states[MOST_OPERANDS]
    cdef list owned = []
    cdef int slot, first = -1, device = -1
    cdef int64_t workspace_bytes = -1
    cdef bint computes_nothing = rules.computes_nothing
    cdef void* queue
    cdef void* memory
    if values != NULL:
        if values.uids.empty():
            values = NULL
        else:
            computes_nothing = values.computes_nothing()
    cdef int left = _read_exchanged(self, rules, given, views, states, owned, &first)
    queue = _stream(given, views, states, self.operands, first, stream)
    if left:
        _read_others(self, rules, given, views, states, owned, queue, values)
    check = check and rules.is_checked.load()
    if check and not computes_nothing:
        device = current_device(queue, self.owner)
    for slot in range(self.operands):
        if check and states[slot] != GIVEN_ADDRESS:
            check_tensor(self, rules, slot, &views[slot], <Given>states[slot], device, values)
        slots[slot] = <char*>views[slot].data + views[slot].byte_offset
        check_address(self, rules, slot, slots[slot], values)
    if check:
        check_overlaps(self, rules, views, states, slots)
    memory = _workspace(workspace, queue, check, device, &workspace_bytes, owned)
    if not computes_nothing:
        execute_sized(graph, slots, values, memory, workspace_bytes, queue)
    return _outputs(rules, given)


cdef int _read_exchanged(
    Graph* self, TensorRules* rules, PyObject** given, DLTensor* views, int* states, list owned,
    int* first
) except -1:
    """Read addresses and what has an exchange API; return how many operands are left.

    `first` becomes the first slot that was read through an exchange API.
    """
    cdef const DLPackExchangeAPI* api = NULL
    cdef PyTypeObject* kind = NULL
    cdef int slot, left = 0
    for slot in range(self.operands):
        item = <object>given[slot]
        if PyLong_CheckExact(item):
            views[slot].data = address(item, _name(rules, slot))
            views[slot].byte_offset = 0
            states[slot] = GIVEN_ADDRESS
            continue
        if Py_TYPE(item) != kind:
            kind = Py_TYPE(item)
            api = exchange_api(item)
        if api == NULL:
            is_made = item is None and rules.operands[slot].is_output
            states[slot] = TO_BE_MADE if is_made else NOT_YET_READ
            left += 1
            continue
        if api.dltensor_from_py_object_no_sync == NULL or (
            api.dltensor_from_py_object_no_sync(given[slot], &views[slot]) != 0
        ) or views[slot].strides == NULL:
            # Again, slowly: it knows what to do, or how to say what is wrong.
            states[slot] = _read_again(api, item, _name(rules, slot), &views[slot], owned)
        else:
            states[slot] = GIVEN_TENSOR
        if first[0] < 0:
            first[0] = slot
    return left


cdef Given _read_again(
    const DLPackExchangeAPI* api, object item, str name, DLTensor* view, list owned
) except *:
    clear_error()
    return read_exchanged(api, item, name, view, owned)


cdef int _read_others(
    Graph* self, TensorRules* rules, PyObject** given, DLTensor* views, int* states, list owned,
    void* queue, OverrideValues* values
) except -1:
    """Read what has no exchange API; make the outputs that were left out, and read them."""
    cdef const DLPackExchangeAPI* api
    cdef int slot
    for slot in range(self.operands):
        if states[slot] == NOT_YET_READ:
            states[slot] = read_other(
                <object>given[slot], _name(rules, slot), queue, &views[slot], owned)
    like = None
    for slot in range(self.operands):
        if states[slot] != TO_BE_MADE and not PyLong_CheckExact(<object>given[slot]):
            like = <object>given[slot]
            break
    for slot in range(self.operands):
        if states[slot] == TO_BE_MADE:
            made = allocate_output(
                like, _name(rules, slot), (<tuple>self.operand_data)[slot],
                expected_dim(rules, slot, values),
                expected_stride(rules, slot, values),
                <int>rules.operands[slot].layout.kind == 2)
            owned.append(made)
            given[slot] = <PyObject*>made
            api = exchange_api(made)
            if api != NULL:
                states[slot] = read_exchanged(
                    api, made, _name(rules, slot), &views[slot], owned)
            else:
                states[slot] = read_other(made, _name(rules, slot), queue, &views[slot], owned)
    return 0

cdef void* _stream(
    PyObject** given, const DLTensor* views, const int* states, int operands, int first,
    object stream
) except? NULL:
    """The stream of a call: the caller's, else the one its framework works on."""
    cdef int slot
    if stream is not None:
        if PyLong_CheckExact(stream):
            return address(stream, "stream")
        return stream_address(stream)
    if first >= 0:
        return current_stream(exchange_api(<object>given[first]), &views[first])
    for slot in range(operands):
        if states[slot] == NOT_YET_READ:
            return stream_of_framework(<object>given[slot])
    return NULL


cdef void* _workspace(
    object workspace, void* queue, bint check, int device, int64_t* size, list owned
) except? NULL:
    """The workspace's address; `size` becomes its bytes where they are known."""
    cdef DLTensor view
    cdef Given state
    cdef const DLPackExchangeAPI* api
    if workspace is None:
        return NULL
    if PyLong_CheckExact(workspace):
        return check_workspace(address(workspace, "workspace"))
    api = exchange_api(workspace)
    if api != NULL:
        state = read_exchanged(api, workspace, "workspace", &view, owned)
    else:
        state = read_other(workspace, "workspace", queue, &view, owned)
    if check and state != GIVEN_ADDRESS:
        size[0] = workspace_size_of(&view, state, device)
    return check_workspace(<char*>view.data + view.byte_offset)


cdef object _outputs(TensorRules* rules, PyObject** given):
    cdef int index
    if rules.outputs.size() == 1:
        return <object>given[rules.outputs[0]]
    if rules.outputs.empty():
        return None
    return tuple([<object>given[rules.outputs[index]] for index in range(rules.outputs.size())])


cdef str _name(TensorRules* rules, int slot):
    return (<tuple>rules.names)[slot]
