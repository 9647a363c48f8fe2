# cython: language_level=3, freethreading_compatible=True
"""A generated module's `run`: objects → DLTensors → addresses, then the call that `execute` makes.

Objects are borrowed from the caller, which holds them during the call; what reading them takes is
in `owned` and released with it, also when an operand in the middle is refused.
"""
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.arguments cimport address
from cudnn_bindgen.runtime.dlpack cimport DLPackExchangeAPI, DLTensor
from cudnn_bindgen.runtime.exchange cimport current_stream, exchange_api, stream_address
from cudnn_bindgen.runtime.graph cimport execute_on_device
from cudnn_bindgen.runtime.members cimport Family, member_of_tensors
from cudnn_bindgen.runtime.other_tensors cimport (
    make_outputs, read_others, read_workspace, stream_of_framework,
)
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.refusals cimport refuse_device, refuse_tensor
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    GIVEN_ADDRESS, GIVEN_TENSOR, MOST_OPERANDS, NOT_YET_READ, UNKNOWN_DEVICE, AcceptedType,
    Finding, TensorCall, TensorRule, TensorRules, check_tensors, take_addresses,
)
from cudnn_bindgen.runtime.tensor_layout cimport LayoutKind, LayoutRule, Strided

from cudnn_bindgen.runtime.layout_match import KINDS
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
        <Graph*>graph, NULL, given, slots, workspace, stream, check, <OverrideValues*>overrides)


cdef object run_member_tensors(
    void* family, PyObject** given, void** slots, object workspace, object stream, bint check
):
    """`run_tensors` of the member of `family` that the operands have the shapes of."""
    cdef Family* self = <Family*>family
    return _run(
        <Graph*>self.members.graphs[0], self, given, slots, workspace, stream, check, NULL)


cdef object _run(
    Graph* self,
    Family* family,
    PyObject** given,
    void** slots,
    object workspace,
    object stream,
    bint check,
    OverrideValues* values,
):
    """Run `self`, or the member of `family`, unless that is NULL, that the tensors are for."""
    cdef TensorRules* rules = <TensorRules*>self.tensors
    cdef Strided expected[MOST_OPERANDS]
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
    if values != NULL and values.uids.empty():
        values = NULL
    cdef int left = _read_exchanged(&call, given, &first)
    queue = _stream(&call, given, first, stream)
    if left:
        owned = []
        read_others(&call, given, queue, owned)
    if family != NULL:
        self = <Graph*>member_of_tensors(family, &call)
        call.rules = rules = <TensorRules*>self.tensors
    if values != NULL:
        _take_shapes(rules, values, expected)
        call.expected = expected
    if left:
        make_outputs(self, &call, given, queue, owned)
        # What made them may have run any Python code, and that have set other overrides.
        if values != NULL:
            _take_shapes(rules, values, expected)
    check = check and rules.is_checked.load()
    if check:
        finding = check_tensors(call, slots, &device)
    else:
        finding = take_addresses(call, slots)
    if finding.what:
        refuse_tensor(self, &call, finding)
    if workspace is not None:
        owned = [] if owned is None else owned
        memory = read_workspace(&call, workspace, queue, check, &device, &workspace_bytes, owned)
    computes_nothing = values.computes_nothing() if values != NULL else self.computes_nothing
    if not computes_nothing:
        current = execute_on_device(self, slots, values, memory, workspace_bytes, queue, device)
        if current > 0:
            refuse_device(&call, device, current - 1)
    return _outputs(rules, given)


cdef int _take_shapes(TensorRules* rules, OverrideValues* values, Strided* expected) noexcept:
    cdef int slot
    for slot in range(<int>rules.operands.size()):
        expected[slot] = Strided(
            values.dim(slot).data(), values.stride(slot).data(), <int>values.dim(slot).size())
    return 0


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
        return address(stream, "stream") if PyLong_CheckExact(stream) else stream_address(stream)
    if first < 0:
        return stream_of_framework(call, given)
    return current_stream(exchange_api(<object>given[first]), &call.tensors[first])


cdef object _outputs(const TensorRules* rules, PyObject** given):
    cdef int index, count = <int>rules.outputs.size()
    cdef tuple outputs
    if count == 1:
        return <object>given[rules.outputs[0]]
    if count == 0:
        return None
    outputs = PyTuple_New(count)
    for index in range(count):
        item = <object>given[rules.outputs[index]]
        Py_INCREF(item)
        PyTuple_SET_ITEM(outputs, index, item)
    return outputs
