# cython: language_level=3, freethreading_compatible=True
"""What a module does for its graph beside the call itself; alone, all of it.

A generated module makes a Binding of its data and adds what only a compiler can: fixed signatures,
an entry for Cython, a stub. `cudnn_bindgen.load` makes one of a plan file: it has a module's face
and reads the arguments of each call by the graph's names.
"""
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memcpy

from cudnn_bindgen.runtime.arguments cimport (
    address, arguments_by_uid, flag, int64, makes_missing, plan_source, store_scalar,
)
from cudnn_bindgen.runtime.bound_call cimport make_class, make_call
from cudnn_bindgen.runtime.chain cimport register_chain
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
from cudnn_bindgen.runtime.signature cimport MOST_ARGUMENTS, Signature
from cudnn_bindgen.runtime.tensor_checks cimport MOST_OPERANDS
from cudnn_bindgen.runtime.tensors cimport (
    check_tensors_of, register_tensors, run_tensors, set_tensor_checks,
)

from cudnn_bindgen.module_data import Member, unpack
from cudnn_bindgen.runtime.arguments import SCALARS
from cudnn_bindgen.runtime.errors import (
    OperandError, OperandTypeError, PlanMismatchError, describe,
)
from cudnn_bindgen.runtime.overrides import Overrides
from cudnn_bindgen.runtime.signature import REQUIRED

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

cdef Signature _NO_ARGUMENTS = Signature(())

# Called as C functions are: no tuple and no dict is made of the arguments.
cdef PyMethodDef _EXECUTE = PyMethodDef(
    "execute", <PyCFunction><void*>_execute, METH_FASTCALL | METH_KEYWORDS, NULL)
cdef PyMethodDef _RUN = PyMethodDef(
    "run", <PyCFunction><void*>_run, METH_FASTCALL | METH_KEYWORDS, NULL)


cdef class Binding:
    """A graph, a chain of graphs or a family of them, with its plans: all that a module has."""

    def __init__(self, str name, int abi, data):
        """`data`: a module_data.ModuleData, or what `pack` made of it; `abi`: check_abi's."""
        check_abi(abi)
        if isinstance(data, bytes):
            data = unpack(data)
        self.__name__ = name
        self.FINGERPRINT = data.fingerprint
        self.data = data.graphs
        self.chain = data.chain
        for index, graph in enumerate(data.graphs):
            owner = name
            if data.names:
                pairs = zip(data.names, graph.key, strict=True)
                owner = f"{name}[{', '.join([f'{one}={number}' for one, number in pairs])}]"
            elif data.chain is not None:
                owner = f"{name}[{data.chain.links[index].name}]"
            self.graphs.push_back(_register(owner, graph))
        self.called = self.graphs
        if data.chain is not None:
            self.called.assign(1, _register(name, data.chain.face))
            register_chain(self.called[0], self.graphs.data(), data.chain)
        takes = () if data.names or self._only().overrides is None else ("overrides",)
        self.keys = Signature(data.names or takes, (None,) * len(takes))
        if data.names:
            self.family = register_family(
                data.names, [graph.key for graph in data.graphs], self.graphs.data(), data.places)
        self._read_signatures(data.graphs[0] if data.names else self._only(), data.names, takes)
        self.handle = handle_to(self.family if data.names else self.called[0])

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
        given = [REQUIRED if one.default is None else one.default for one in graph.operands]
        none = (None,) * len(takes)
        self.executes = Signature(
            (*self.arguments, "workspace_ptr", "stream", *takes), (*given, 0, 0, *none),
            graph=graph)
        self.runs = Signature(
            (*[name for name, _, _ in graph.layouts], *self.arguments[len(operands):],
             *key, "workspace", "stream", "check", *takes),
            (*[None if one.role == "output" else REQUIRED for one in operands],
             *given[len(operands):], *[None for _ in key], None, None, True, *none),
            len(operands), graph)
        self._execute = PyCFunction_New(&_EXECUTE, self)
        self._run = PyCFunction_New(&_RUN, self)

    @property
    def execute(self):
        """Enqueue the graph on device addresses and return at once.

        Dims and strides count elements.

        Args:
            arguments: the device address of each operand, the value of each scalar, as OPERANDS.
            workspace_ptr: `workspace_size()` bytes, aligned to 128; 0: the runtime's own.
            stream: a cudaStream_t; 0: the legacy default stream.
            overrides: dims and strides of this call; None: the declared ones.

        Raises:
            OperandError: an argument is null, misaligned, of a wrong type or out of range.
            PlanNotLoadedError, PlanMismatchError: no plan is for this GPU and cuDNN.
            StreamError: the plan launches a kernel outside of this stream.
            WorkspaceError: the stream is captured, and the runtime has no workspace for it yet.
            CudnnError, DriverError: a call of cuDNN or of the driver failed.
        """
        self._only()
        return self._execute

    @property
    def run(self):
        """Enqueue the graph on tensors, each of them checked, and return the outputs.

        Dims and strides count elements.

        Args:
            operands: a tensor of each, or its device address, trusted; outputs may be left out.
            scalars: a number or a host tensor of one element, by name.
            workspace: a tensor of `workspace_size()` bytes, or its address; None: the runtime's.
            stream: a cudaStream_t or a framework's stream; None: the framework's current one.
            check: False: look at null addresses and alignment alone.
            overrides: dims and strides of this call; None: the declared ones.

        Returns:
            The output, or a tuple of several. The framework of the first tensor makes what is
            left out.

        Raises:
            OperandError: a tensor has a wrong device, data type, layout or alignment, or shares
                memory with an output; and all that `execute` raises.
        """
        self._only()
        return self._run

    @property
    def OPERANDS(self):
        """Arguments of `execute`: uid, role, type, dims, strides (elements), alignment (bytes)."""
        return self._only().operands

    @property
    def GRAPH(self):
        """Where the graph came from: file, dialect, nodes; SM, SM count, cuDNN, engine of plans."""
        graph = self._only()
        return graph.describe() if self.chain is None else self.chain.describe(self.data)

    @property
    def KEY(self):
        """Names of the numbers that choose a graph of the family."""
        return self.keys.names

    @property
    def MEMBERS(self):
        """By key, what FINGERPRINT, OPERANDS and GRAPH are of that graph."""
        return {
            graph.key: Member(graph.fingerprint, graph.operands, graph.describe())
            for graph in self.data
        }

    @property
    def WORKSPACE_SIZE(self):
        """Bytes of workspace that any call on the current device needs at most; loads the plans."""
        # Not in the file: cuDNN says how much a plan needs once the plan is on a device.
        return max([overridden_workspace_size(graph, NULL) for graph in self.called])

    @property
    def Overrides(self):
        """The class of dims and strides for a call, in place of the declared ones."""
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
        """Check what `run` takes, and return it as a call that is launched as it stands.

        Args:
            operands: a tensor of each, or its device address; outputs that are left out are made.
            scalars: a number or a host tensor of one element, by name.
            workspace: a tensor of `workspace_size()` bytes, or its address; None: the runtime's.
            stream: a cudaStream_t or a framework's stream; None: at each call the current one.
            check: False: look at null addresses and alignment alone.
            overrides: dims and strides of the calls, copied; None: the declared ones.

        Returns:
            A BoundCall: set what changes (`call.q = tensor`), then call it; for one thread at a
            time.

        Raises:
            OperandError: as `run` does; what tensors share is looked at by the next call.
        """
        cdef tuple values = self.runs.read("bind", operands, named)
        cdef PyObject** items = (<PyTupleObject*>values).ob_item
        cdef Py_ssize_t rest = len(self.arguments) + (len(self.data[0].key))
        cdef void* graph = self.called[0]
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
        """Call `execute` with arguments by uid: slower, the same result.

        Args:
            arguments: by uid, device addresses and values of scalars; defaults may be left out.
            workspace_ptr: `workspace_size()` bytes, aligned to 128; 0: the runtime's own.
            stream: a cudaStream_t; 0: the legacy default stream.
            overrides: dims and strides of this call; None: the declared ones.

        Raises:
            OperandError: a uid is missing or unknown; and all that `execute` raises.
        """
        cdef tuple values = arguments_by_uid(arguments, self._only().operands)
        self.enqueue_items((<PyTupleObject*>values).ob_item, workspace_ptr, stream, overrides)

    def execute_slots(self, addresses, count, workspace_ptr=0, stream=0, overrides=None):
        """Call `execute` with a C array of pointers in slot order.

        Args:
            addresses: where the array stands: device addresses of operands; of scalars, pointers to
                the value in host memory, or null for the default.
            count: the number of OPERANDS.
            workspace_ptr: `workspace_size()` bytes, aligned to 128; 0: the runtime's own.
            stream: a cudaStream_t; 0: the legacy default stream.
            overrides: dims and strides of this call; None: the declared ones.

        Raises:
            OperandError: another count, a null array, a scalar without value; and all that
                `execute` raises.
        """
        cdef tuple operands = self._only().operands
        cdef Graph* graph = <Graph*>self.called[0]
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
        cdef Graph* graph = <Graph*>self.called[0]
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
        cdef Graph* graph = <Graph*>self.called[0]
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
        """Return the bytes of workspace of a call on the current device; load the plan.

        Args:
            key: which graph of the family.
            overrides: those of the call. Before cuDNN 9.23 they do not count: nobody can tell.

        Raises:
            PlanNotLoadedError, PlanMismatchError: no plan is for this GPU and cuDNN.
        """
        cdef tuple values
        if self.family == NULL and self.keys.names:
            values = self.keys.read("workspace_size", key, named)
            return overridden_workspace_size(
                self.called[0], values_of(<Graph*>self.called[0], values[0]))
        return overridden_workspace_size(self._graph_of("workspace_size", key, named), NULL)

    def launch_path(self, *key, **named):
        """Return how the last call was launched: "direct" or "record".

        Args:
            key: which graph of the family.
        """
        return graph_launch_path(self._graph_of("launch_path", key, named))

    def launch_nodes(self, *key, **named):
        """Return what a call launches on this device, and whose address each patched word is.

        Args:
            key: which graph of the family.

        Raises:
            BindingError: the launch cannot be recorded.
        """
        return graph_launch_nodes(self._graph_of("launch_nodes", key, named))

    cdef void* _graph_of(self, str method, tuple key, dict named) except NULL:
        if self.family == NULL:
            _NO_ARGUMENTS.read(method, key, named)
            return self.called[0]
        return member_of_key(self.family, self.keys.read(method, key, named))

    def launch_stats(self):
        """Return how many calls took each launch path, and why a record was refused, if one was."""
        every = [graph_launch_stats(graph) for graph in self.called]
        if len(every) == 1:
            return every[0]
        total = {name: sum([one[name] for one in every]) for name in every[0] if name != "reason"}
        recorded = total["record_unchanged"] + total["record_patched"]
        total["hit_rate"] = recorded / max(1, recorded + total["direct"])
        total["reason"] = next((one["reason"] for one in every if one["reason"]), "")
        return total

    def check_described(self, described):
        """Refuse what `run` would refuse, of tensors without memory: for compilers, which trace.

        Args:
            described: of each operand DLDataType, DLDevice, dims, strides; None: not looked at.

        Raises:
            OperandError: a tensor has a wrong device, data type or layout.
        """
        self._only()
        check_tensors_of(self.called[0], described)

    def set_checks(self, enabled):
        """Turn the checks of `run` on or off, for all its calls.

        Args:
            enabled: False: all calls are made as with `check=False`.
        """
        cdef bint is_checked = flag(enabled, "enabled")
        for graph in self.called:
            set_tensor_checks(graph, is_checked)

    def set_launch_policy(self, policy, records=None):
        """Choose how calls are launched.

        Args:
            policy: "auto" (by a launch record, once that is proven), "direct" or "record".
            records: for how many different overrides a stream keeps one, 1 to 4096; at first 64.
        """
        policy_number(policy, "policy")  # where either is wrong, neither is set
        if records is not None:
            if self.family != NULL or not self.keys.names:
                raise OperandTypeError(
                    "records", "None, as the graph takes no overrides", describe(records))
            set_record_capacity(self.called[0], records)
        for graph in self.called:
            set_graph_policy(graph, policy)

    def load_plan(self, plan=None, on_missing="refuse"):
        """Load plans in place of those that are loaded, or closed; wait for running calls.

        Args:
            plan: a plan file or bundle, as bytes or path; None: the plans that came along.
            on_missing: a device that no plan is for: "refuse" raises PlanMissingError at a call,
                "plan" lets NVIDIA's frontend make one there, which is kept on disk.

        Raises:
            PlanMismatchError: the file's plan is of another graph.
            GraphFormatError, OSError: the file cannot be read.
        """
        is_made = makes_missing(on_missing)
        if plan is not None:
            try:
                from cudnn_bindgen.codegen.bind.plan_file import read_plans
            except ImportError as error:
                from cudnn_bindgen.extras import missing
                raise missing(error, "load_plan() of a file") from None
            plan = plan_source(plan)
            plans = tuple(read_plans(plan, is_made))
            for index in self._indexes_of(plans):
                self._replace(index, plans, plan if is_made else None)
            return None
        is_empty = not any([graph.plans for graph in self.data])
        for index, graph in enumerate(self.data):
            if graph.plans or is_made or is_empty:
                self._replace(index, graph.plans, graph.structure if is_made else None)

    cdef list _indexes_of(self, tuple plans):
        known = [graph.fingerprint for graph in self.data]
        if len(known) == 1:
            return [0]
        if not plans:
            from cudnn_bindgen.runtime import member_errors
            raise member_errors.no_plan_error()
        if plans[0].fingerprint not in known:
            from cudnn_bindgen.runtime import member_errors
            raise member_errors.unknown_graph_error(plans[0].fingerprint, known)
        # A chain may have a graph twice.
        return [index for index, one in enumerate(known) if one == plans[0].fingerprint]

    cdef int _replace(self, int index, tuple plans, object source) except -1:
        """Replace plans; `source`: what others are made of where they are missing, or None."""
        make_missing = None
        is_any_size = any([kind == "ragged" for _, kind, _ in self.data[index].layouts])
        if is_any_size and any([parts.kernels is not None for parts in plans]):
            raise PlanMismatchError(
                self.__name__, "packed operands", "as large as declared", "of any size")
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
        """Wait for running calls to finish, then unload the plans on every device."""
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
        return self.data[0] if self.chain is None else self.chain.face

    def __repr__(self):
        return f"<cudnn_bindgen binding {self.__name__}, graph {self.FINGERPRINT}>"


cdef bytes _execute_doc = Binding.execute.__doc__.encode()
cdef bytes _run_doc = Binding.run.__doc__.encode()
_EXECUTE.ml_doc, _RUN.ml_doc = _execute_doc, _run_doc


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
