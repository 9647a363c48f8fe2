# cython: language_level=3, freethreading_compatible=True
"""A generated module's `Overrides`: Python numbers in, the lists that cuDNN reads out.

Everything is checked here, so that a call has nothing left to check. Values that are refused leave
those from before in place.
"""
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.graph cimport graph_of
from cudnn_bindgen.runtime.launch cimport describe_values
from cudnn_bindgen.runtime.override_values cimport (
    ABOVE_DECLARED, NEGATIVE_DIM, NEGATIVE_STRIDE, DeclaredShape, OverrideSymbol, OverrideTable,
    OverrideValues, Refused, SymbolStep, SymbolUse,
)
from cudnn_bindgen.runtime.registered cimport Graph

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1

import operator
import os
from itertools import islice

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe

# Records of each stream that graphs with overrides keep, unless set_launch_policy says otherwise.
RECORDS_ENVIRONMENT = "CUDNN_BINDGEN_RECORDS"
DEFAULT_RECORDS = 64
MAX_RECORDS = 4096

cdef enum:
    MAX_SYMBOLS = 64             # codegen/model/limits.py

# Keeps alive what graphs point to.
_registered = []


cdef int register_overrides(
    void* graph, tuple shapes, tuple symbols, bint is_unbounded
) except -1:
    """Say what a graph's overrides may be, after register_graph.

    `shapes`: (name, axes, bits of an element) of each operand, in slot order. `symbols`: (name,
    is_packed, uses), a use being (slot, axis, ((operation, number), ...)).
    """
    cdef Graph* self = <Graph*>graph
    cdef OverrideTable* table = new OverrideTable()
    cdef DeclaredShape shape
    for operand, (_, _, bits) in zip(<tuple>self.operand_data, shapes):
        shape.uid = operand.uid
        shape.bits = bits
        shape.is_output = operand.role == "output"
        shape.dim = operand.dim
        shape.stride = operand.stride
        table.shapes.push_back(shape)
    for _, is_packed, uses in symbols:
        table.symbols.push_back(_symbol(is_packed, uses))
    table.is_unbounded = is_unbounded
    table.graph = graph
    table.finish()
    names = tuple([symbol[0] for symbol in symbols])
    _registered.append((shapes, names))
    self.override_shapes = <void*>shapes
    self.override_names = <void*>names
    self.overrides = table
    records = os.environ.get(RECORDS_ENVIRONMENT) or DEFAULT_RECORDS
    if isinstance(records, str) and records.isdecimal():
        records = int(records)
    self.record_capacity.store(_capacity(records, RECORDS_ENVIRONMENT))
    return 0


cdef OverrideSymbol _symbol(bint is_packed, tuple uses) except *:
    cdef OverrideSymbol symbol
    cdef SymbolUse use
    cdef SymbolStep step
    symbol.is_packed = is_packed
    for slot, axis, steps in uses:
        use.slot = slot
        use.axis = axis
        use.steps.clear()
        for operation, number in steps:
            step.operation = ord(operation)
            step.number = number
            use.steps.push_back(step)
        symbol.uses.push_back(use)
    return symbol


cdef int set_record_capacity(void* graph, object records) except -1:
    """Keep launch records for so many different overrides on each stream."""
    (<Graph*>graph).record_capacity.store(_capacity(records, "records"))
    return 0


cdef int _capacity(object records, str where) except -1:
    try:
        number = operator.index(records)
    except TypeError:
        number = 0
    if not 1 <= number <= MAX_RECORDS:
        raise OperandError(where, f"1 to {MAX_RECORDS}", describe(records))
    return number


cdef class Overrides:
    """Dims and strides for a call, in place of the declared ones. For one thread at a time.

    Axes stand in the graph's order, sizes are in elements. A stride left out follows from the dims
    inside of it where it is declared so, and is the declared one otherwise. After an error all is
    as before.
    """
    # A module has a class of its own with a setter for each operand; its `_binding` says the graph.
    cdef OverrideValues* values

    def __cinit__(self):
        binding = getattr(type(self), "_binding", None)
        if binding is None:
            raise TypeError("Overrides are those of a module: its own class makes them")
        self.values = new OverrideValues((<Graph*>graph_of(binding)).overrides[0])

    def __init__(self):
        """Override nothing; refuses arguments, which __cinit__ alone would ignore."""

    def __dealloc__(self):
        del self.values

    def override(self, operand, dim, stride=None):
        """Override an operand.

        Args:
            operand: its name or uid.
            dim: the size of each axis, in elements.
            stride: of each axis, in elements, or None; None for all.

        Raises:
            OperandError: a size is negative, too large or no int, or some are missing.
        """
        cdef Graph* graph = _graph_of(self.values)
        shapes, operands = <tuple>graph.override_shapes, <tuple>graph.operand_data
        if isinstance(operand, (str, int)) and not isinstance(operand, bool):
            for slot in range(len(shapes)):
                if operand in (shapes[slot][0], operands[slot].uid):
                    _override_slot(self.values, slot, dim, stride)
                    return
        known = ", ".join([
            f"{shape[0]} ({operands[slot].uid})" for slot, shape in enumerate(shapes)])
        raise OperandError("operand", f"one of {known}", describe(operand))

    def reset(self):
        """Override nothing any more."""
        self.values.reset()

    def copy(self):
        """Return others with the same values."""
        cdef Overrides other = <Overrides?>type(self)()
        del other.values
        other.values = new OverrideValues(self.values[0])
        return other

    def __eq__(self, other):
        if not isinstance(other, Overrides) or not _is_of(
                <Overrides>other, <void*>_graph_of(self.values)):
            return NotImplemented
        return self.values[0] == (<Overrides>other).values[0]

    def __hash__(self):
        return hash(self.values.hash())

    def __repr__(self):
        return f"Overrides({describe_values(_graph_of(self.values), self.values)})"


cdef void* values_of(void* graph, object overrides) except? NULL:
    """What a call takes for the Overrides of its graph, or for None."""
    if overrides is None:
        return NULL
    if not isinstance(overrides, Overrides) or not _is_of(<Overrides>overrides, graph):
        raise OperandTypeError(
            "overrides", f"an Overrides of {(<tuple>(<Graph*>graph).owner)[0]}, or None",
            describe(overrides))
    return (<Overrides>overrides).values


cdef bint _is_of(Overrides overrides, void* graph) noexcept:
    return overrides.values.table().graph == graph


cdef int override_slot(object overrides, int slot, object dim, object stride) except -1:
    """Override an operand's dims, and its strides where they are not None.

    Raises OperandError, which names operand and axis; all is as before then.
    """
    return _override_slot((<Overrides?>overrides).values, slot, dim, stride)


cdef int _override_slot(
    OverrideValues* values, int slot, object dim, object stride
) except -1:
    cdef vector[int64_t] dims, strides
    cdef vector[char] given
    name, axes, _ = (<tuple>_graph_of(values).override_shapes)[slot]
    _fill(&dims, NULL, dim, name, axes, "dims")
    if stride is None:
        stride = (None,) * len(axes)
    _fill(&strides, &given, stride, name, axes, "strides")
    return _check(values, values.set(slot, dims.data(), strides.data(), given.data()), "")


cdef int override_symbols(object overrides, tuple numbers) except -1:
    """Give numbers to the symbols, in their order; None leaves one alone. Raises OperandError."""
    cdef OverrideValues* values = (<Overrides?>overrides).values
    cdef int64_t[MAX_SYMBOLS] taken
    cdef char[MAX_SYMBOLS] given
    cdef int index, overflow
    for index in range(len(numbers)):
        number = numbers[index]
        given[index] = number is not None
        if number is None:
            continue
        if PyLong_CheckExact(number):
            taken[index] = PyLong_AsLongLongAndOverflow(number, &overflow)
            if not overflow:
                continue
        taken[index] = _number(number, (<tuple>_graph_of(values).override_names)[index])
    cdef Refused refused = values.set_symbols(taken, given)
    if refused.why == 0:
        return 0
    names = <tuple>_graph_of(values).override_names
    said = ", ".join([
        f"{name}={taken[index]}" for index, name in enumerate(names) if given[index]])
    return _check(values, refused, said)


cdef Graph* _graph_of(const OverrideValues* values) noexcept:
    return <Graph*>values.table().graph


cdef int _fill(
    vector[int64_t]* numbers, vector[char]* given, object items, str name, tuple axes, str what
) except -1:
    try:
        # One too many shows that there are more, of what may not end.
        items = tuple(islice(iter(items), len(axes) + 1))
    except TypeError as error:
        raise OperandTypeError(name, f"a sequence of {what}", describe(items)) from error
    if len(items) != len(axes):
        got = str(len(items)) if len(items) < len(axes) else "more"
        raise OperandError(name, f"{len(axes)} {what} ({', '.join(axes)})", got)
    for axis, item in zip(axes, items):
        if given != NULL:
            given.push_back(item is not None)
        is_left_out = given != NULL and item is None
        numbers.push_back(0 if is_left_out else _number(item, f"{name}.{axis}"))


cdef int64_t _number(object item, object where) except? -1:
    if isinstance(item, bool):
        raise OperandTypeError(where, "an int", describe(item))
    try:
        number = operator.index(item)
    except TypeError as error:
        raise OperandTypeError(where, "an int", describe(item)) from error
    if not -2**63 <= number < 2**63:
        raise OperandError(where, "a number of 64 bits", describe(number))
    return number


cdef int _check(OverrideValues* values, Refused refused, str said) except -1:
    if refused.why == 0:
        return 0
    name, axes, _ = (<tuple>_graph_of(values).override_shapes)[refused.slot]
    declared = values.table().shapes[refused.slot].dim[refused.axis]
    expected = {
        NEGATIVE_DIM: "a dim that is not negative",
        NEGATIVE_STRIDE: "a stride that is not negative",
        ABOVE_DECLARED: f"at most {declared}, as declared",
    }.get(refused.why, "a size that 64 bits hold")
    got = f"{refused.value} from {said}" if said else str(refused.value)
    raise OperandError(f"{name}.{axes[refused.axis]}", expected, got)
