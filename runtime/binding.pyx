# cython: language_level=3, freethreading_compatible=True
"""What a module does for its graph beside the call itself; alone, all of it.

A generated module makes a Binding of its data and adds what only a compiler can: fixed signatures,
an entry for Cython, a stub. `cudnn_bindgen.load` makes one of a plan file: it has a module's face
and reads the arguments of each call by the graph's names.
"""
import os
from collections.abc import Mapping
from itertools import islice
from sys import intern

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memcpy

from cudnn_bindgen.runtime.arguments cimport address, flag, int64, store_scalar
from cudnn_bindgen.runtime.bound_call cimport make_class, make_call
from cudnn_bindgen.runtime.family cimport member_of_key, member_of_operands, register_family
from cudnn_bindgen.runtime.graph cimport (
    check_abi, close_graph, execute_overridden, graph_launch_nodes, graph_launch_path,
    graph_launch_stats, handle_to, is_graph_open, overridden_workspace_size, policy_number,
    register_graph, replace_plans, set_graph_policy,
)
from cudnn_bindgen.runtime.overrides cimport (
    override_slot, override_symbols, register_overrides, set_record_capacity, values_of,
)
from cudnn_bindgen.runtime.registered cimport Graph
from cudnn_bindgen.runtime.tensor_checks cimport MOST_OPERANDS
from cudnn_bindgen.runtime.tensors cimport register_tensors, run_tensors, set_tensor_checks

from cudnn_bindgen.module_data import Member, unpack
from cudnn_bindgen.runtime.arguments import SCALARS
from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe
from cudnn_bindgen.runtime.overrides import Overrides

cdef extern from "Python.h":
    bint Py_IsInitialized()
    ctypedef struct PyTupleObject:
        PyObject** ob_item
    ctypedef PyObject* (*PyCFunction)(PyObject*, PyObject*)
    ctypedef struct PyMethodDef:
        const char* ml_name
        PyCFunction ml_meth
        int ml_flags
        const char* ml_doc
    enum: METH_FASTCALL, METH_KEYWORDS
    object PyCFunction_New(PyMethodDef*, object)

cdef enum:
    MOST_ARGUMENTS = MOST_OPERANDS + 8

# Stands for an argument that has no default.
cdef object _REQUIRED = object()

# Called as C functions are: no tuple and no dict is made of the arguments.
cdef PyMethodDef _EXECUTE = PyMethodDef(
    "execute", <PyCFunction><void*>_execute, METH_FASTCALL | METH_KEYWORDS,
    "Enqueue the graph on `stream`, as `execute` of a module does.")
cdef PyMethodDef _RUN = PyMethodDef(
    "run", <PyCFunction><void*>_run, METH_FASTCALL | METH_KEYWORDS,
    "Enqueue the graph on tensors, as `run` of a module does.")


cdef class Binding:
    """A graph, or a family of them, with its plans.

    Attributes
    ----------
    FINGERPRINT
        The identity of the graph, or of the family.
    OPERANDS, GRAPH
        Of one graph: the arguments of `execute` (module_data.Operand), and where it came from.
    execute, run
        Of one graph: what they are in a module.
    KEY, MEMBERS
        Of a family: the names of its key's numbers, and key → module_data.Member.
    """

    def __init__(self, str name, int abi, data):
        """`data`: a module_data.ModuleData, or what `pack` made of it; `abi`: check_abi's."""
        check_abi(abi)
        if isinstance(data, bytes):
            data = unpack(data)
        self.__name__ = name
        self.FINGERPRINT = data.fingerprint
        self.data = data.graphs
        for graph in data.graphs:
            owner = name
            if data.names:
                pairs = zip(data.names, graph.key, strict=True)
                owner = f"{name}[{', '.join([f'{one}={number}' for one, number in pairs])}]"
            self.graphs.push_back(_register(owner, graph))
        takes = () if data.names or data.graphs[0].overrides is None else ("overrides",)
        self.keys = Signature(data.names or takes, (None,) * len(takes))
        if data.names:
            self.family = register_family(
                data.names, [graph.key for graph in data.graphs], self.graphs.data(), data.places)
        self._read_signatures(data.graphs[0], data.names, takes)
        self.handle = handle_to(self.family if data.names else self.graphs[0])

    def __dealloc__(self):
        # Who forgets a graph frees its plans; the interpreter's own end leaves them to the driver.
        if Py_IsInitialized():
            for graph in self.graphs:
                close_graph(graph)

    cdef int _read_signatures(self, object graph, tuple key, tuple takes) except -1:
        scalars = [one for one in graph.operands if one.role == "scalar"]
        operands = graph.operands[:len(graph.operands) - len(scalars)]
        self.arguments = tuple([one.argument for one in graph.operands])
        for one in scalars:
            self.scalar_kinds.push_back(SCALARS.index(one.data_type))
        given = [_REQUIRED if one.default is None else one.default for one in graph.operands]
        none = (None,) * len(takes)
        self.executes = Signature(
            (*self.arguments, "workspace_ptr", "stream", *takes), (*given, 0, 0, *none))
        self.runs = Signature(
            (*[name for name, _, _ in graph.layouts], *self.arguments[len(operands):],
             *key, "workspace", "stream", "check", *takes),
            (*[None if one.role == "output" else _REQUIRED for one in operands],
             *given[len(operands):], *[None for _ in key], None, None, True, *none),
            len(operands))
        self._execute = PyCFunction_New(&_EXECUTE, self)
        self._run = PyCFunction_New(&_RUN, self)

    @property
    def execute(self):
        self._only()
        return self._execute

    @property
    def run(self):
        self._only()
        return self._run

    @property
    def OPERANDS(self):
        return self._only().operands

    @property
    def GRAPH(self):
        return self._only().describe()

    @property
    def KEY(self):
        return self.keys.names

    @property
    def MEMBERS(self):
        return {
            graph.key: Member(graph.fingerprint, graph.operands, graph.describe())
            for graph in self.data
        }

    @property
    def WORKSPACE_SIZE(self):
        """Bytes of workspace that each call needs at most; loads the plans."""
        # Not in the file: cuDNN says how much a plan needs once the plan is on a device.
        return max([overridden_workspace_size(graph, NULL) for graph in self.graphs])

    @property
    def Overrides(self):
        """The class of shapes and strides for a call, in place of the declared ones."""
        if self.overrides_class is None:
            graph = self._only()
            if graph.overrides is None:
                raise AttributeError(f"{self.__name__} takes no overrides")
            self.overrides_class = _make_overrides_class(self, graph)
        return self.overrides_class

    @property
    def BoundCall(self):
        """The class of what `bind` returns."""
        if self.bound_class is None:
            self.bound_class = make_class(self.__name__, self.runs.names[:len(self.arguments)])
        return self.bound_class

    def bind(self, *operands, **named):
        """Bind a call to what `run` would be given; call what is returned as often as you like.

        Each operand, scalar, the workspace and the stream is an attribute of it, by its name in
        `run`. What is set is checked then; a call reads nothing again. Outputs that are left out
        are made once. With a stream of None each call asks the framework for its current one.
        """
        cdef tuple values = self.runs.read("bind", operands, named)
        cdef PyObject** items = (<PyTupleObject*>values).ob_item
        cdef Py_ssize_t rest = len(self.arguments) + (len(self.data[0].key))
        cdef void* graph = self.graphs[0]
        if self.family != NULL:
            graph = member_of_operands(
                self.family, items + len(self.arguments), items, values[rest + 1])
        return make_call(
            self.BoundCall, self, graph, self.scalar_kinds, values, values[rest],
            values[rest + 1], flag(values[rest + 2], "check"),
            values[rest + 3] if len(values) > rest + 3 else None)

    def attribute(self, name):
        """What a module has beside its names: its `__getattr__`."""
        if name in ("WORKSPACE_SIZE", "BoundCall"):
            return getattr(self, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def execute_uids(self, arguments, workspace_ptr=0, stream=0, overrides=None):
        """`execute` with a dict from uid to address, or to value for a scalar."""
        cdef tuple values = _arguments_by_uid(arguments, self._only().operands)
        self.enqueue_items((<PyTupleObject*>values).ob_item, workspace_ptr, stream, overrides)

    def execute_slots(self, addresses, count, workspace_ptr=0, stream=0, overrides=None):
        """`execute` with a C array of `count` pointers in slot order, which stands at an address.

        Those of operands are device addresses. Those of scalars point to the value in host memory,
        or are null for its default. `count` is the number of OPERANDS.
        """
        cdef tuple operands = self._only().operands
        cdef Graph* graph = <Graph*>self.graphs[0]
        cdef void* slots[MOST_OPERANDS]
        cdef uint64_t scalars[MOST_OPERANDS]
        cdef void* array = address(addresses, "addresses")
        cdef int slot
        if int64(count, "count") != graph.slots:
            raise OperandError("count", f"{graph.slots}, one for each of OPERANDS", describe(count))
        if array == NULL or <uintptr_t>array % sizeof(void*):
            raise OperandError(
                "addresses", "the address of an array of pointers", hex(<uintptr_t>array))
        memcpy(slots, array, graph.slots * sizeof(void*))
        for slot in range(graph.operands, graph.slots):
            if slots[slot] != NULL:
                continue
            if operands[slot].default is None:
                raise OperandError(
                    <str>self.arguments[slot], "a pointer to its value, as it has no default", "0")
            slots[slot] = &scalars[slot]
            store_scalar(
                self.scalar_kinds[slot - graph.operands], operands[slot].default,
                <str>self.arguments[slot], slots[slot])
        execute_overridden(
            graph, slots, values_of(graph, overrides), address(workspace_ptr, "workspace_ptr"),
            address(stream, "stream"))

    cdef int enqueue_items(
        self, PyObject** items, object workspace, object stream, object overrides
    ) except -1:
        """`execute` with the arguments in slot order."""
        cdef Graph* graph = <Graph*>self.graphs[0]
        cdef void* slots[MOST_OPERANDS]
        cdef uint64_t scalars[MOST_OPERANDS]
        cdef int slot
        for slot in range(graph.operands):
            slots[slot] = address(<object>items[slot], <str>self.arguments[slot])
        self._read_scalars(graph, items, slots, scalars)
        return execute_overridden(
            graph, slots, values_of(graph, overrides), address(workspace, "workspace_ptr"),
            address(stream, "stream"))

    cdef object run_items(
        self, PyObject** items, object workspace, object stream, bint check, object overrides
    ):
        """`run` with the operands and scalars in slot order."""
        cdef Graph* graph = <Graph*>self.graphs[0]
        cdef void* slots[MOST_OPERANDS]
        cdef PyObject* operands[MOST_OPERANDS]
        cdef uint64_t scalars[MOST_OPERANDS]
        cdef int slot
        self._read_scalars(graph, items, slots, scalars)
        for slot in range(graph.operands):  # run_tensors puts there what it makes
            operands[slot] = items[slot]
        return run_tensors(
            graph, operands, slots, workspace, stream, check, values_of(graph, overrides))

    cdef int _read_scalars(
        self, Graph* graph, PyObject** items, void** slots, uint64_t* scalars
    ) except -1:
        cdef int slot
        for slot in range(graph.operands, graph.slots):
            slots[slot] = &scalars[slot]
            store_scalar(
                self.scalar_kinds[slot - graph.operands], <object>items[slot],
                <str>self.arguments[slot], slots[slot])
        return 0

    def workspace_size(self, *key, **named):
        """Bytes of workspace that a call on the current device needs; loads the plan.

        With `overrides`: what a call with them needs. Before cuDNN 9.23 nobody can tell what they
        change: the plan's own size.
        """
        cdef tuple values
        if self.family == NULL and self.keys.names:
            values = self.keys.read("workspace_size", key, named)
            return overridden_workspace_size(
                self.graphs[0], values_of(<Graph*>self.graphs[0], values[0]))
        return overridden_workspace_size(self._graph_of("workspace_size", key, named), NULL)

    def launch_path(self, *key, **named):
        """How the last call was launched: "direct" or "record"."""
        return graph_launch_path(self._graph_of("launch_path", key, named))

    def launch_nodes(self, *key, **named):
        """What one call launches on the current device, and whose address each patched word is."""
        return graph_launch_nodes(self._graph_of("launch_nodes", key, named))

    cdef void* _graph_of(self, str method, tuple key, dict named) except NULL:
        if self.family == NULL:
            _NO_ARGUMENTS.read(method, key, named)
            return self.graphs[0]
        return member_of_key(self.family, self.keys.read(method, key, named))

    def launch_stats(self):
        """Counts of calls by launch path, and why a record was refused, if one was."""
        every = [graph_launch_stats(graph) for graph in self.graphs]
        if len(every) == 1:
            return every[0]
        total = {name: sum([one[name] for one in every]) for name in every[0] if name != "reason"}
        recorded = total["record_unchanged"] + total["record_patched"]
        total["hit_rate"] = recorded / max(1, recorded + total["direct"])
        total["reason"] = next((one["reason"] for one in every if one["reason"]), "")
        return total

    def set_checks(self, enabled):
        """Turn the checks of `run` on or off, for all calls."""
        cdef bint is_checked = flag(enabled, "enabled")
        for graph in self.graphs:
            set_tensor_checks(graph, is_checked)

    def set_launch_policy(self, policy, records=None):
        """Choose how calls are launched: "auto" (records once proven), "direct" or "record".

        `records`, for a graph that takes overrides, is for how many different overrides a stream
        keeps a record; 64 until set.
        """
        policy_number(policy, "policy")  # where either is wrong, neither is set
        if records is not None:
            if self.family != NULL or not self.keys.names:
                raise OperandTypeError(
                    "records", "None, as the graph takes no overrides", describe(records))
            set_record_capacity(self.graphs[0], records)
        for graph in self.graphs:
            set_graph_policy(graph, policy)

    def load_plan(self, plan=None, on_missing="refuse"):
        """Load the plans that came along, or those of a file (bytes or path); opens what is closed.

        Of a family, a file's plans are for the one graph that they are of. A device that no plan
        is for raises PlanMissingError, or with `on_missing="plan"` gets one that NVIDIA's frontend
        makes there and that is kept on disk.
        """
        is_made = _makes_missing(on_missing)
        if plan is not None:
            try:
                from cudnn_bindgen.codegen.bind.plan_file import read_plans
            except ImportError as error:
                from cudnn_bindgen.extras import missing
                raise missing(error, "load_plan() of a file") from None
            plan = _plan_source(plan)
            plans = tuple(read_plans(plan, is_made))
            index = self._index_of(plans)
            return self._replace(index, plans, plan if is_made else None)
        is_empty = not any([graph.plans for graph in self.data])
        for index, graph in enumerate(self.data):
            if graph.plans or is_made or is_empty:
                self._replace(index, graph.plans, graph.structure if is_made else None)

    cdef int _index_of(self, tuple plans) except -1:
        known = [graph.fingerprint for graph in self.data]
        if len(known) == 1:
            return 0
        if not plans:
            from cudnn_bindgen.runtime import member_errors
            raise member_errors.no_plan_error()
        if plans[0].fingerprint not in known:
            from cudnn_bindgen.runtime import member_errors
            raise member_errors.unknown_graph_error(plans[0].fingerprint, known)
        return known.index(plans[0].fingerprint)

    cdef int _replace(self, int index, tuple plans, object source) except -1:
        """Replace plans; `source`: what others are made of where they are missing, or None."""
        make_missing = None
        if source is not None:
            try:
                from cudnn_bindgen.frontend.planning.missing import plan_maker
            except ImportError as error:
                from cudnn_bindgen.extras import missing
                raise missing(error, 'load_plan(on_missing="plan")') from None
            uids = [operand.uid for operand in self.data[index].operands]
            make_missing = plan_maker(source, uids)
        return replace_plans(self.graphs[index], plans, make_missing)

    def close(self):
        """Wait for running calls to finish, then release the plans on every device."""
        failure = None
        for graph in self.graphs:
            try:
                close_graph(graph)
            except Exception as error:  # the others are closed first
                failure = failure or error
        if failure is not None:
            raise failure

    @property
    def is_open(self):
        """Whether plans are loaded, of each graph."""
        return all([is_graph_open(graph) for graph in self.graphs])

    cdef object _only(self):
        if self.family != NULL:
            raise AttributeError(
                f"{self.__name__}: a family's operands and calls are its members' and its module's")
        return self.data[0]

    def __repr__(self):
        return f"<cudnn_bindgen binding {self.__name__}, graph {self.FINGERPRINT}>"


cdef void* _register(str owner, object graph) except NULL:
    cdef void* made = register_graph(
        owner, graph.fingerprint, graph.source, graph.operands, graph.plans)
    register_tensors(made, graph.layouts, graph.shared)
    if graph.overrides is not None:
        shapes, symbols, is_unbounded = graph.overrides
        register_overrides(made, shapes, symbols, is_unbounded)
    return made


cdef object _execute(Binding self, PyObject** given, Py_ssize_t count, PyObject* names):
    cdef PyObject* values[MOST_ARGUMENTS]
    cdef Py_ssize_t rest = len(self.arguments)
    self.executes.fill("execute", given, count, names, values)
    overrides = <object>values[rest + 2] if self.executes.count > rest + 2 else None
    self.enqueue_items(values, <object>values[rest], <object>values[rest + 1], overrides)


cdef object _run(Binding self, PyObject** given, Py_ssize_t count, PyObject* names):
    cdef PyObject* values[MOST_ARGUMENTS]
    cdef Py_ssize_t rest = len(self.arguments)
    self.runs.fill("run", given, count, names, values)
    overrides = <object>values[rest + 3] if self.runs.count > rest + 3 else None
    return self.run_items(
        values, <object>values[rest], <object>values[rest + 1],
        flag(<object>values[rest + 2], "check"), overrides)


cdef class Signature:
    """Names and defaults of a method's arguments: reads a call as Python would."""

    def __init__(self, names, defaults=(), positional=None):
        """`defaults` are those of the last names; `positional`: how many need no name."""
        # Interned, as the names in a call are: they are mostly the same objects.
        self.names = tuple([intern(name) for name in names])
        self.defaults = (_REQUIRED,) * (len(names) - len(defaults)) + tuple(defaults)
        self.count = len(names)
        self.positional = len(names) if positional is None else positional

    cdef int fill(
        self, str method, PyObject** given, Py_ssize_t count, PyObject* names, PyObject** values
    ) except -1:
        """Put the arguments of a call in order, borrowed: `count` by position, then those by name.

        TypeError where they are not those of the method.
        """
        cdef Py_ssize_t index, number
        if count > self.positional:
            raise TypeError(
                f"{method}() takes {self.positional} positional arguments but {count} were "
                "given")
        for index in range(count):
            values[index] = given[index]
        for index in range(count, self.count):
            values[index] = NULL
        if names != NULL:
            for index in range(len(<tuple>names)):
                number = self.find((<PyTupleObject*>names).ob_item[index])
                if number < 0:
                    raise TypeError(
                        f"{method}() got an unexpected keyword argument "
                        f"{(<tuple>names)[index]!r}")
                if values[number] != NULL:
                    raise TypeError(
                        f"{method}() got multiple values for argument "
                        f"{(<tuple>names)[index]!r}")
                values[number] = given[count + index]
        for index in range(count, self.count):
            if values[index] == NULL:
                values[index] = (<PyTupleObject*>self.defaults).ob_item[index]
                if values[index] == <PyObject*>_REQUIRED:
                    self.refuse_missing(method, values)
        return 0

    cdef Py_ssize_t find(self, PyObject* name) except -2:
        """The place of a name, or -1."""
        cdef Py_ssize_t index
        for index in range(self.count):
            if (<PyTupleObject*>self.names).ob_item[index] == name:
                return index
        for index in range(self.count):
            if self.names[index] == <object>name:
                return index
        return -1

    cdef int refuse_missing(self, str method, PyObject** values) except -1:
        missing = [
            repr(self.names[index]) for index in range(self.count)
            if values[index] == <PyObject*>_REQUIRED or (
                values[index] == NULL and self.defaults[index] is _REQUIRED)
        ]
        raise TypeError(
            f"{method}() missing {len(missing)} required argument"
            f"{'s' if len(missing) > 1 else ''}: {', '.join(missing)}")

    cdef tuple read(self, str method, tuple given, dict named):
        """The arguments of a call of `method` in order."""
        cdef PyObject* values[MOST_ARGUMENTS]
        cdef tuple every = given + tuple(named.values())
        cdef tuple names = tuple(named)
        self.fill(method, (<PyTupleObject*>every).ob_item, len(given), <PyObject*>names, values)
        return tuple([<object>values[index] for index in range(self.count)])


cdef Signature _NO_ARGUMENTS = Signature(())


cdef object _make_overrides_class(Binding binding, object graph):
    """The class of a module, whose setters have the graph's names."""
    face = {"__slots__": (), "_binding": binding, "__doc__": Overrides.__doc__}
    for slot, (name, axes, _) in enumerate(graph.overrides.shapes):
        face[f"set_{name}"] = _setter(slot, f"set_{name}", axes)
    names = tuple([symbol[0] for symbol in graph.overrides.symbols])
    if names:
        face["set"] = _symbol_setter(names)
    return type("Overrides", (Overrides,), face)


def _setter(int slot, str method, tuple axes):
    cdef Signature signature = Signature(
        (*axes, *[f"stride_{axis}" for axis in axes]), (None,) * len(axes), len(axes))

    def set_operand(self, *dims, **strides):
        values = signature.read(method, dims, strides)
        override_slot(self, slot, values[:len(axes)], values[len(axes):])

    return set_operand


def _symbol_setter(tuple names):
    cdef Signature signature = Signature(names, (None,) * len(names), 0)

    def set_symbols(self, *given, **named):
        override_symbols(self, signature.read("set", given, named))

    return set_symbols


cdef tuple _arguments_by_uid(object arguments, tuple operands):
    """The arguments of `execute` in order, from a mapping keyed by uid."""
    if not isinstance(arguments, Mapping):
        raise OperandTypeError(
            "arguments", "a mapping from uids to addresses and values", describe(arguments))
    values = []
    for operand in operands:
        value = arguments.get(operand.uid, operand.default)
        if value is None:
            given = [describe(uid) for uid in islice(arguments, len(operands) + 1)]
            raise OperandError(
                operand.argument, f"an entry for uid {operand.uid}", f"uids {', '.join(given)}")
        values.append(value)
    uids = [operand.uid for operand in operands]
    unknown = [uid for uid in arguments if uid not in uids]
    if unknown:
        raise OperandError(
            "arguments", f"uids among {', '.join(map(str, uids))}", f"uid {describe(unknown[0])}")
    return tuple(values)


cdef bint _makes_missing(object on_missing) except -1:
    """Whether a plan is made where there is none: what `load_plan` was told."""
    if not isinstance(on_missing, str) or on_missing not in ("refuse", "plan"):
        raise OperandError("on_missing", '"refuse" or "plan"', describe(on_missing))
    return on_missing == "plan"


cdef object _plan_source(object plan):
    """What `load_plan` was given: a file's content, or its path as text."""
    if isinstance(plan, (bytes, bytearray, memoryview)):
        return bytes(plan)
    expected = "bytes of a plan file, or its path"
    try:
        path = os.fsencode(plan)
    except TypeError as error:
        raise OperandTypeError("plan", expected, describe(plan)) from error
    except UnicodeEncodeError as error:
        raise OperandError("plan", expected, describe(plan)) from error
    if b"\0" in path:
        raise OperandError("plan", expected, describe(plan))
    return os.fsdecode(path)
