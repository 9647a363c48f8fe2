# cython: language_level=3, freethreading_compatible=True, auto_pickle=False
"""A generated module's `run`: objects → DLTensors → addresses, then the call that `execute` makes.

Objects are borrowed from the caller, which holds them during the call; what reading them takes is
in `owned` and released with it, also when an operand in the middle is refused. What most calls do
not need is in operands.pyx.
"""
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.dlpack cimport DLPackExchangeAPI, DLTensor
from cudnn_bindgen.runtime.exchange cimport current_stream, exchange_api
from cudnn_bindgen.runtime.graph cimport execute_on_device
from cudnn_bindgen.runtime.operands cimport (
    check_workspace, make_output, outputs_of, read_operand, read_stream, stream_of_framework,
    take_shapes, workspace_address,
)
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    GIVEN_ADDRESS, GIVEN_TENSOR, MOST_OPERANDS, NOT_YET_READ, UNKNOWN_DEVICE, AcceptedType,
    Finding, Given, LayoutKind, LayoutRule, Strided, TensorCall, TensorRule, TensorRules,
    check_described, check_tensors, operand_name, refuse_device, refuse_tensor, take_addresses,
)

from cudnn_bindgen.runtime.tensor_checks import KINDS
from cudnn_bindgen.runtime.tensor_types import STORED

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(object)
    void _clear_error "PyErr_Clear"() noexcept

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
        rules.operands.push_back(_rule(operand, KINDS.index(kind), free_axis))
        if operand.role == "output":
            rules.outputs.push_back(<int>rules.operands.size() - 1)
    for output, other in shared:
        rules.operands[<int>output].shares.push_back(other)
    rules.finish()
    names = tuple([name for name, _, _ in layouts])
    _registered.append(names)
    rules.names = <void*>names
    self.tensors = rules
    return 0


cdef TensorRule _rule(object operand, int kind, int free_axis) except *:
    cdef TensorRule rule
    cdef AcceptedType accepted
    rule.layout = LayoutRule(<LayoutKind>kind, free_axis)
    rule.is_output = operand.role == "output"
    rule.may_be_null = 0 in operand.dim
    rule.mask = operand.alignment - 1
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


cdef int check_tensors_of(void* graph, object described) except -1:
    """Refuse what `run` would refuse, of tensors that have no memory.

    `described`, of the first operands: ((code, bits, lanes), (device type, device), dims, strides),
    or None for one that is not looked at.
    """
    cdef Graph* self = <Graph*>graph
    cdef DLTensor tensors[MOST_OPERANDS]
    cdef Given how[MOST_OPERANDS]
    cdef TensorCall call
    cdef vector[vector[int64_t]] sizes
    cdef DLTensor* tensor
    cdef Finding finding
    cdef int slot
    call.rules = <TensorRules*>self.tensors
    call.expected = NULL
    call.tensors = tensors
    call.given = how
    if not call.rules.is_checked.load():
        return 0
    sizes.reserve(2 * call.count())  # call points into it
    for slot in range(call.count()):
        call.given[slot] = GIVEN_ADDRESS
    for slot, one in enumerate(described):
        if one is None:
            continue
        (code, bits, lanes), (device_type, device), dim, stride = one
        if slot >= call.count() or len(dim) != len(stride):
            raise ValueError("expected a description of each operand, with a stride for each dim")
        call.given[slot] = GIVEN_TENSOR
        tensor = &call.tensors[slot]
        tensor.data = NULL
        tensor.byte_offset = 0
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = code, bits, lanes
        tensor.device.device_type, tensor.device.device_id = device_type, device
        tensor.ndim = len(dim)
        sizes.push_back(dim)
        tensor.shape = sizes.back().data()
        sizes.push_back(stride)
        tensor.strides = sizes.back().data()
    finding = check_described(call)
    if finding.what:
        refuse_tensor(self, &call, finding)
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
    return _run(
        <Graph*>graph, NULL, NULL, given, slots, workspace, stream, check,
        <OverrideValues*>overrides)


cdef object run_chosen(
    void* graph, ChooseGraph choose, void* among, PyObject** given, void** slots, object workspace,
    object stream, bint check
):
    """`run_tensors` of what `choose` returns for the call's tensors, which `graph` reads."""
    return _run(
        <Graph*>graph, choose, among, given, slots, workspace, stream, check, NULL)


cdef void* choose_graph(
    void* graph, ChooseGraph choose, void* among, PyObject** given, object stream
) except NULL:
    """What `choose` returns for tensors, which `graph` reads; nothing is launched."""
    cdef DLTensor tensors[MOST_OPERANDS]
    cdef Given how[MOST_OPERANDS]
    cdef TensorCall call
    cdef list owned = []
    cdef int first = -1
    call.rules = <TensorRules*>(<Graph*>graph).tensors
    call.expected = NULL
    call.tensors = tensors
    call.given = how
    if _read_exchanged(&call, given, &first):
        _read_others(&call, given, _stream(&call, given, first, stream), owned)
    return choose(among, &call)


cdef object _run(
    Graph* self,
    ChooseGraph choose,
    void* among,
    PyObject** given,
    void** slots,
    object workspace,
    object stream,
    bint check,
    OverrideValues* values,
):
    """Run `self`, or what `choose`, unless that is NULL, returns for the tensors."""
    cdef TensorRules* rules = <TensorRules*>self.tensors
    cdef Strided expected[MOST_OPERANDS]
    cdef DLTensor tensors[MOST_OPERANDS]
    cdef Given how[MOST_OPERANDS]
    cdef TensorCall call
    cdef Finding finding
    cdef list owned = None       # what reading and making tensors takes
    cdef bint computes_nothing
    cdef int first = -1, device = UNKNOWN_DEVICE, current
    cdef int64_t workspace_bytes = -1
    cdef void* memory = NULL
    cdef void* queue
    call.rules = rules
    call.expected = NULL
    call.tensors = tensors
    call.given = how
    if values != NULL and values.uids.empty():
        values = NULL
    cdef int left = _read_exchanged(&call, given, &first)
    queue = _stream(&call, given, first, stream)
    if left:
        owned = []
        _read_others(&call, given, queue, owned)
    if choose != NULL:
        self = <Graph*>choose(among, &call)
        call.rules = rules = <TensorRules*>self.tensors
    if values != NULL:
        take_shapes(rules, values, expected)
        call.expected = expected
    if left:
        _make_outputs(self, &call, given, queue, owned)
        # What made them may have run any Python code, and that have set other overrides.
        if values != NULL:
            take_shapes(rules, values, expected)
    check = check and rules.is_checked.load()
    if check:
        finding = check_tensors(call, slots, &device)
    else:
        finding = take_addresses(call, slots)
    if finding.what:
        refuse_tensor(self, &call, finding)
    if workspace is not None:
        owned = [] if owned is None else owned
        memory = _read_workspace(&call, workspace, queue, check, &device, &workspace_bytes, owned)
    computes_nothing = values.computes_nothing() if values != NULL else self.computes_nothing
    if not computes_nothing:
        current = execute_on_device(self, slots, values, memory, workspace_bytes, queue, device)
        if current > 0:
            refuse_device(&call, device, current - 1)
    return outputs_of(rules, given)


cdef int _read_exchanged(TensorCall* call, PyObject** given, int* first) except -1:
    """Read addresses and what has an exchange API; return how many operands are left.

    `first` becomes the first slot whose type has one.
    """
    cdef const DLPackExchangeAPI* api = NULL
    cdef PyTypeObject* kind = NULL
    cdef DLTensor* tensor
    cdef int slot, left = 0
    for slot in range(call.count()):
        item = <object>given[slot]
        tensor = &call.tensors[slot]
        if PyLong_CheckExact(item):
            tensor.data = address(item, (<tuple>call.rules.names)[slot])
            tensor.byte_offset = 0
            call.given[slot] = GIVEN_ADDRESS
            continue
        if Py_TYPE(item) != kind:
            kind = Py_TYPE(item)
            api = exchange_api(item)
        call.given[slot] = GIVEN_TENSOR
        if api == NULL or api.dltensor_from_py_object_no_sync == NULL:
            call.given[slot] = NOT_YET_READ
            left += 1
        elif api.dltensor_from_py_object_no_sync(given[slot], tensor) != 0:
            _clear_error()  # it is read again, where there is time to say why
            call.given[slot] = NOT_YET_READ
            left += 1
        else:
            if tensor.strides == NULL and tensor.ndim > 0:  # row-major, before DLPack 1.2
                call.given[slot] = NOT_YET_READ
                left += 1
            if first[0] < 0:
                first[0] = slot
    return left


cdef void* _stream(
    const TensorCall* call, PyObject** given, int first, object stream
) except? NULL:
    """The stream of a call: the caller's, else the one its framework works on."""
    if stream is not None:
        return read_stream(stream)
    if first < 0:
        return stream_of_framework(call, given)
    return current_stream(exchange_api(<object>given[first]), &call.tensors[first])


cdef int _read_others(
    TensorCall* call, PyObject** given, void* stream, list owned
) except -1:
    """Read what is NOT_YET_READ, but for outputs that are None."""
    cdef int slot
    for slot in range(call.count()):
        item = <object>given[slot]
        if item is None and call.rules.operands[slot].is_output:
            continue
        if call.given[slot] == NOT_YET_READ:
            call.given[slot] = read_operand(
                item, operand_name(call, slot), stream, &call.tensors[slot], owned)
    return 0


cdef int _make_outputs(
    Graph* graph, TensorCall* call, PyObject** given, void* stream, list owned
) except -1:
    """Make the outputs that are None and put them into `given`; _read_others comes first."""
    cdef int slot
    like = None
    for slot in range(call.count()):
        item = <object>given[slot]
        if item is not None and not PyLong_CheckExact(item):
            like = item
            break
    for slot in range(call.count()):
        if <object>given[slot] is None:
            made = make_output(graph, call, slot, like)
            owned.append(made)
            given[slot] = <PyObject*>made
            call.given[slot] = read_operand(
                made, operand_name(call, slot), stream, &call.tensors[slot], owned)
    return 0


cdef void* _read_workspace(
    const TensorCall* call, object workspace, void* stream, bint check, int* device, int64_t* size,
    list owned
) except? NULL:
    """The workspace's address; `size` becomes its bytes where they are known.

    `device` is that of the call's tensors, and becomes the workspace's where they have none. With
    `check` no tensor may share its memory.
    """
    cdef DLTensor tensor
    cdef Given how = read_operand(workspace, "workspace", stream, &tensor, owned)
    if check and how != GIVEN_ADDRESS:
        size[0] = check_workspace(call, &tensor, how, device)
    return workspace_address(&tensor)
