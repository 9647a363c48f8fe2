# cython: language_level=3, freethreading_compatible=True, auto_pickle=False
"""What `bind` of a module returns: a call that is given only what changes.

It holds the slots that are launched, what each was given as, and a copy of each tensor's layout.
What is set is read and checked then. What operands say together (whether they overlap, whether they
are on one device) the first call after a change checks, so that two of them may be exchanged. Every
other call goes straight to the launch.
"""
from sys import intern

from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.arguments cimport address, store_scalar
from cudnn_bindgen.runtime.dlpack cimport DLPackExchangeAPI, DLTensor
from cudnn_bindgen.runtime.exchange cimport (
    current_stream, exchange_api, read_exchanged, read_other,
)
from cudnn_bindgen.runtime.graph cimport execute_on_device
from cudnn_bindgen.runtime.operands cimport (
    check_workspace, make_output, outputs_of, read_stream, stream_of_framework, take_shapes,
    workspace_address,
)
from cudnn_bindgen.runtime.override_values cimport OverrideValues
from cudnn_bindgen.runtime.overrides cimport values_of
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport (
    GIVEN_ADDRESS, NOT_YET_READ, UNKNOWN_DEVICE, Finding, Given, Span, Strided, TensorCall,
    TensorRules, check_operand, check_together, refuse_device, refuse_tensor,
)


cdef class BoundCall:
    """A call of a graph with all that it takes; calling it launches it and returns the outputs.

    Its attributes are what `run` takes, by name: operands, scalars, `workspace` and `stream`.
    Setting one checks it; an error leaves what was bound before. It holds what is bound. For one
    thread at a time.
    """
    cdef Graph* graph                # NULL: not made by bind()
    cdef OverrideValues* values      # of `overrides`; NULL: as declared
    cdef object binding, overrides   # kept alive: the plans, a copy of the caller's
    cdef dict places                 # name → place: its slot, or after them
    cdef list bound                  # by place, what was given
    cdef list owned                  # by place, what reading that took and must live as long
    cdef vector[PyObject*] items     # those of `bound`
    cdef object outputs              # what a call returns
    cdef vector[int] scalar_kinds
    cdef vector[uint64_t] scalars    # by slot, the bits of scalars
    cdef vector[void*] slots
    # Of each operand, then of the workspace.
    cdef vector[DLTensor] tensors
    cdef vector[Given] given
    cdef vector[vector[int64_t]] sizes  # what `tensors` point to
    cdef vector[const DLPackExchangeAPI*] apis
    cdef vector[Span] spans
    cdef vector[Strided] expected
    cdef TensorCall call
    cdef void* workspace             # NULL: the runtime's
    cdef int64_t workspace_bytes     # -1: not known
    cdef void* stream
    cdef bint is_stream_fixed        # else each call asks for it
    cdef bint is_checked
    cdef bint computes_nothing
    cdef bint has_changed            # since the operands were last checked together
    cdef int first                   # operand whose framework says what stream is current, or -1
    cdef int device                  # of the tensors; -1: not known
    cdef object __weakref__

    def __cinit__(self):
        self.has_changed = True

    def __init__(self):
        raise TypeError("a bound call is made by bind() of its module")

    def __call__(self, *, stream=None):
        """Launch, once on another stream if one is given."""
        cdef void* queue
        cdef int current
        while self.has_changed:
            self.check_again()
        if stream is not None:
            queue = read_stream(stream)
        elif self.is_stream_fixed:
            queue = self.stream
        else:
            queue = self.ask_stream()
        if not self.computes_nothing:
            current = execute_on_device(
                self.graph, self.slots.data(), self.values, self.workspace, self.workspace_bytes,
                queue, self.device)
            if current > 0:
                refuse_device(&self.call, self.device, current - 1)
        return self.outputs

    def __setattr__(self, str name, value):
        place = None if self.graph == NULL else self.places.get(name)
        if place is None:
            raise _no_attribute(self, name)
        self.set(name, place, value)

    def __getattr__(self, str name):
        raise _no_attribute(self, name)

    def __repr__(self):
        if self.graph == NULL:
            return object.__repr__(self)
        return f"<cudnn_bindgen bound call of {(<tuple>self.graph.owner)[0]}>"

    cdef int set(self, str name, int place, object value) except -1:
        if place < self.graph.operands:
            self.set_operand(name, place, value)
        elif place < self.graph.slots:
            store_scalar(
                self.scalar_kinds[place - self.graph.operands], value, name, &self.scalars[place])
            self.hold(place, value, None)
        elif place == self.graph.slots:
            self.set_workspace(value)
        else:
            self.stream = NULL if value is None else read_stream(value)
            self.is_stream_fixed = value is not None
            self.hold(place, value, None)
        return 0

    cdef int set_operand(self, str name, int slot, object item) except -1:
        """Bind an operand; None makes an output."""
        cdef TensorRules* rules = <TensorRules*>self.graph.tensors
        cdef list owned = []
        cdef Span span = Span(0, 0)
        if item is None and rules.operands[slot].is_output:
            item = make_output(self.graph, &self.call, slot, self.first_tensor())
        cdef DLTensor tensor
        cdef const DLPackExchangeAPI* api = NULL
        cdef Given how = self.read(item, name, &tensor, &api, owned)
        cdef DLTensor before = self.tensors[slot]
        cdef Given given_before = self.given[slot]
        self.tensors[slot] = tensor
        self.given[slot] = how
        cdef Finding finding = check_operand(
            self.call, slot, self.is_checked and rules.is_checked.load(), &span)
        if finding.what:
            try:
                refuse_tensor(self.graph, &self.call, finding)
            finally:
                self.tensors[slot] = before
                self.given[slot] = given_before
        self.spans[slot] = span
        self.slots[slot] = self.call.address_of(slot)
        self.apis[slot] = api
        self.keep_sizes(slot)
        self.hold(slot, item, owned)
        return 0

    cdef int set_workspace(self, object item) except -1:
        cdef int place = self.graph.operands
        cdef DLTensor tensor
        cdef const DLPackExchangeAPI* api = NULL
        cdef Given how = NOT_YET_READ
        cdef void* memory = NULL
        cdef list owned = []
        memset(&tensor, 0, sizeof(tensor))
        if item is not None:
            how = self.read(item, "workspace", &tensor, &api, owned)
            memory = workspace_address(&tensor)
        self.tensors[place] = tensor
        self.given[place] = how
        self.workspace = memory
        self.keep_sizes(place)
        self.hold(self.graph.slots, item, owned)
        return 0

    cdef int take_overrides(self, object overrides) except -1:
        """Use a copy: whoever changes theirs would change what was checked."""
        cdef OverrideValues* values
        if values_of(self.graph, overrides) == NULL:
            return 0
        self.overrides = overrides.copy()
        values = <OverrideValues*>values_of(self.graph, self.overrides)
        if not values.uids.empty():
            self.values = values
            self.expected.resize(self.graph.operands)
            take_shapes(<TensorRules*>self.graph.tensors, values, self.expected.data())
            self.call.expected = self.expected.data()
            self.computes_nothing = values.computes_nothing()
        return 0

    cdef Given read(
        self, object item, str name, DLTensor* tensor, const DLPackExchangeAPI** api, list owned
    ) except *:
        """Read what is given for an operand or the workspace; `api` becomes its type's, if any."""
        memset(tensor, 0, sizeof(DLTensor))
        if PyLong_CheckExact(item):
            tensor.data = address(item, name)
            return GIVEN_ADDRESS
        api[0] = exchange_api(item)
        if api[0] != NULL:
            return read_exchanged(api[0], item, name, tensor, owned)
        # Its producer may order its work before that stream's.
        return read_other(
            item, name, self.stream if self.is_stream_fixed else self.ask_stream(), tensor, owned)

    cdef void keep_sizes(self, int place) noexcept:
        """Copy dims and strides: a tensor may change its own."""
        cdef DLTensor* tensor = &self.tensors[place]
        cdef vector[int64_t]* kept = &self.sizes[place]
        cdef size_t rank = max(0, tensor.ndim)
        kept.resize(2 * rank)
        if rank > 0:
            memcpy(kept.data(), tensor.shape, rank * sizeof(int64_t))
            memcpy(kept.data() + rank, tensor.strides, rank * sizeof(int64_t))
        tensor.shape = kept.data()
        tensor.strides = kept.data() + rank

    cdef int hold(self, int place, object item, list owned) except -1:
        # Last of all: what is let go may run any Python code.
        self.has_changed = True
        self.items[place] = <PyObject*>item
        _before, _owned_before = self.bound[place], self.owned[place]
        self.bound[place] = item
        self.owned[place] = owned
        return 0

    cdef object first_tensor(self):
        """What makes outputs."""
        cdef int slot
        for slot in range(self.graph.operands):
            if self.bound[slot] is not None and not PyLong_CheckExact(self.bound[slot]):
                return self.bound[slot]
        return None

    cdef void find_first(self) noexcept:
        cdef int slot
        self.first = -1
        for slot in range(self.graph.operands):
            if self.apis[slot] != NULL:
                self.first = slot
                return

    cdef void* ask_stream(self) except? NULL:
        """The stream that the operands' framework works on now."""
        if self.first >= 0:
            return current_stream(self.apis[self.first], &self.tensors[self.first])
        return stream_of_framework(&self.call, self.items.data())

    cdef int check_again(self) except -1:
        """Check the operands together, and find what depends on all of them."""
        if self.graph == NULL:
            raise TypeError("a bound call is made by bind() of its module")
        cdef TensorRules* rules = <TensorRules*>self.graph.tensors
        cdef int workspace = self.graph.operands
        cdef int device = UNKNOWN_DEVICE
        cdef int64_t size = -1
        cdef Finding finding
        if self.is_checked and rules.is_checked.load():
            finding = check_together(self.call, self.spans.data(), &device)
            if finding.what:
                refuse_tensor(self.graph, &self.call, finding)
            if self.given[workspace] not in (GIVEN_ADDRESS, NOT_YET_READ):
                size = check_workspace(
                    &self.call, &self.tensors[workspace], self.given[workspace], &device)
        outputs = outputs_of(rules, self.items.data())
        self.find_first()
        self.workspace_bytes = size
        self.device = device
        self.has_changed = False
        self.outputs = outputs  # last: what is let go may set an operand
        return 0


cdef class _Attribute:
    """What a bound call holds at a place, for reading."""

    cdef int place
    cdef dict places
    cdef readonly str __doc__

    def __get__(self, BoundCall call, kind):
        return self if call is None or call.bound is None else call.bound[self.place]


cdef object make_class(str module, tuple names):
    """The class of a module's bound calls: `names` of operands and scalars, in slot order."""
    cdef dict places = {}
    cdef _Attribute attribute
    face = {"__slots__": (), "__module__": module, "__doc__": BoundCall.__doc__}
    for name in (*names, "workspace", "stream"):
        attribute = _Attribute()
        attribute.place = places[intern(name)] = len(places)
        attribute.places = places
        attribute.__doc__ = f"`{name}` of run()"
        face[name] = attribute
    return type("BoundCall", (BoundCall,), face)


cdef object make_call(
    object kind, object binding, void* graph, vector[int] scalar_kinds, tuple values,
    object workspace, object stream, bint check, object overrides
):
    """Bind a call of `kind` to `values`, in slot order; each output that is None is made."""
    cdef BoundCall self = BoundCall.__new__(kind)
    cdef int slots = (<Graph*>graph).slots, operands = (<Graph*>graph).operands, slot
    cdef list names
    self.graph = <Graph*>graph
    self.binding = binding
    self.places = (<_Attribute>kind.stream).places
    self.bound = [None] * (slots + 2)
    self.owned = [None] * (slots + 2)
    self.items.assign(slots + 2, <PyObject*>None)
    self.scalar_kinds = scalar_kinds
    self.scalars.resize(slots)
    self.slots.resize(slots)
    for slot in range(operands, slots):
        self.slots[slot] = &self.scalars[slot]
    self.tensors.resize(operands + 1)
    self.given.assign(operands + 1, NOT_YET_READ)
    self.sizes.resize(operands + 1)
    self.apis.resize(operands + 1)
    self.spans.resize(operands + 1)
    self.call.rules = <TensorRules*>self.graph.tensors
    self.call.expected = NULL
    self.call.tensors = self.tensors.data()
    self.call.given = self.given.data()
    self.is_checked = check
    self.first = -1
    self.computes_nothing = self.graph.computes_nothing
    self.take_overrides(overrides)
    names = list(self.places)
    self.set("stream", slots + 1, stream)
    # Those that know the current stream come first, as others may ask for it.
    for is_other in (False, True):
        for slot in range(slots):
            value = values[slot]
            if value is None and slot < operands and self.call.rules.operands[slot].is_output:
                continue
            if (PyLong_CheckExact(value) or exchange_api(value) != NULL) != is_other:
                self.set(names[slot], slot, value)
        self.find_first()
    for slot in range(operands):
        if values[slot] is None:
            self.set(names[slot], slot, None)
    self.set("workspace", slots, workspace)
    self.check_again()
    return self


cdef object _no_attribute(BoundCall call, str name):
    """The error for a name that `run` does not have."""
    if call.graph == NULL:
        return TypeError("a bound call is made by bind() of its module")
    from difflib import get_close_matches  # only now: a module is imported sooner without
    owner = (<tuple>call.graph.owner)[0]
    near = get_close_matches(name, call.places, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(call.places)}"
    return AttributeError(f"{owner}: a bound call has no attribute {name!r}: {hint}")
