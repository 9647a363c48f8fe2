"""What codegen tells the runtime of a module's graphs: one `ModuleData`.

``Binding → ModuleData → pack → text of a module → unpack → runtime``. `load()` hands it over as
it is. Plain tuples of numbers, texts and bytes; nothing here knows a file format.
"""

from __future__ import annotations

import binascii
import marshal
import zlib
from collections import namedtuple

# What type checkers take for true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NamedTuple
else:

    class _Fields(type):
        """typing.NamedTuple again: a module's import would take twice as long with `typing`."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body["__annotations__"])
            defaults = [body.pop(field) for field in fields if field in body]
            return type(name, (namedtuple(name, fields, defaults=defaults),), body)

    class NamedTuple(metaclass=_Fields):
        """Base of the classes below."""


# What the emitted code and its data were written against; the runtime refuses another number.
RUNTIME_ABI = 4


class Operand(NamedTuple):
    """One argument of ``execute``, in argument order, which is slot order.

    Attributes
    ----------
    uid
        cuDNN's unique id of the tensor.
    argument
        Parameter name: ``q_ptr`` for an address, ``epsilon`` for a scalar.
    name
        The tensor's name in the graph file, as it stands there.
    role
        ``"input"``, ``"output"`` or ``"scalar"`` (passed by value).
    data_type
        cuDNN's name of the element type: ``BFLOAT16``, ``FLOAT``, ``INT64`` ...
    dim, stride
        In elements, in the graph's axis order.
    alignment
        What the address must be a multiple of, in bytes; 1 for a scalar.
    default
        A scalar's default; None if it is required.
    """

    uid: int
    argument: str
    name: str
    role: str
    data_type: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    alignment: int
    default: float | int | None = None


class TensorMap(NamedTuple):
    """What ``cuTensorMapEncodeTiled`` is called with before a kernel is launched.

    Attributes
    ----------
    data_type, interleave, swizzle, l2_promotion, fill
        The driver's numbers (cuda.h).
    dims, box, element_strides
        In elements, the innermost first.
    strides
        In bytes, of all axes but the innermost.
    source, offset
        The address is that of the operand of this uid, or of the workspace if None, plus `offset`
        bytes.
    """

    data_type: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int
    swizzle: int
    l2_promotion: int
    fill: int
    source: int | None
    offset: int


class KernelLaunch(NamedTuple):
    """One launch of a kernel.

    Attributes
    ----------
    binary, kernel
        Index into `KernelPlan.binaries`, and the kernel's name there.
    grid, block
        In blocks and threads: x, y, z.
    shared
        Bytes of dynamic shared memory.
    attributes
        ``(id, value)``: CUlaunchAttribute and the bytes that its value has.
    parameters
        The bytes of each, with what follows missing.
    addresses
        ``(parameter, place, source, offset)``: from byte `place` on there are the 8 bytes of the
        address of the operand of uid `source`, or of the workspace if None, plus `offset`.
    tensor_maps
        ``(parameter, place, index)``: the 128 bytes of a tensor map of `KernelPlan.tensor_maps`.
    """

    binary: int
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    attributes: tuple[tuple[int, bytes], ...]
    parameters: tuple[bytes, ...]
    addresses: tuple[tuple[int, int, int | None, int], ...]
    tensor_maps: tuple[tuple[int, int, int], ...]


class KernelPlan(NamedTuple):
    """A plan of one of the frontend's own engines: the kernels that it launches, one by one.

    Attributes
    ----------
    binaries
        Device code, in a form that ``cuLibraryLoadData`` takes.
    tensor_maps
        Those of all launches.
    launches
        In order, on one stream.
    workspace_size
        Bytes.
    """

    binaries: tuple[bytes, ...]
    tensor_maps: tuple[TensorMap, ...]
    launches: tuple[KernelLaunch, ...]
    workspace_size: int


class PlanParts(NamedTuple):
    """One plan as the runtime takes it: cuDNN's own text and what the frontend adds around it.

    Attributes
    ----------
    fingerprint
        Of the graph the plan was built for.
    cudnn_version, sm, sm_count
        What it was built with: 91900 is 9.19.0, 90 is SM 9.0; a count of 0 is not known. A version
        of 0 is none: the plan has `kernels`, and any cuDNN may be loaded.
    engine
        Engine and knobs, for people.
    uids
        The arguments it binds, ascending.
    constants
        ``(uid, bits)``: scalars that lowering added, little-endian.
    workspace_parts
        ``(uid, operation, offset, values)``: 0 copies `values` (float32) to the offset before each
        launch, 1 sets ``int(values[0])`` bytes to zero, 2 is an address only.
    replacements
        ``(source, target, offset)``: the target's address is the source's plus `offset` bytes.
    dropped
        Arguments that only feed replacements; cuDNN itself does not take them.
    workspace_size
        Bytes that the parts above take, before cuDNN's own workspace.
    text
        cuDNN's serialized execution plan; empty if there are `kernels`.
    alignments
        ``(uid, bytes)``: what the plan asks of arguments' addresses, where it says so.
    kernels
        In place of cuDNN's plan; None for cuDNN's.
    """

    fingerprint: str
    cudnn_version: int
    sm: int
    sm_count: int
    engine: str
    uids: tuple[int, ...]
    constants: tuple[tuple[int, bytes], ...]
    workspace_parts: tuple[tuple[int, int, int, tuple[float, ...]], ...]
    replacements: tuple[tuple[int, int, int], ...]
    dropped: tuple[int, ...]
    workspace_size: int
    text: bytes
    alignments: tuple[tuple[int, int], ...] = ()
    kernels: KernelPlan | None = None


class OverrideData(NamedTuple):
    """What a graph's overrides may be.

    Attributes
    ----------
    shapes
        Of each operand that is an address, in slot order: name, axes, bits of an element.
    symbols
        Name; whether strides follow; of each dim that follows it slot, axis and steps.
    is_unbounded
        Whether dims may be larger than declared.
    """

    shapes: tuple[tuple[str, tuple[str, ...], int], ...]
    symbols: tuple[tuple[str, bool, tuple[tuple[int, int, tuple[tuple[str, int], ...]], ...]], ...]
    is_unbounded: bool


class GraphData(NamedTuple):
    """One graph.

    Attributes
    ----------
    key
        The numbers that choose it in a family; none for a graph alone.
    fingerprint
        The graph's identity.
    source, dialect, nodes
        Base name and dialect of its file, and the tags of its nodes.
    operands
        In slot order, scalars last.
    layouts
        Of each operand that is an address: parameter of ``run``, what is fixed about its layout,
        the axis that is not.
    shared
        Slots of an output and of an operand that it may replace in its memory.
    overrides
        None for a graph that takes none.
    plans
        Those that came with it.
    structure
        What a plan can be made of.
    """

    key: tuple[int, ...]
    fingerprint: str
    source: str
    dialect: str
    nodes: tuple[str, ...]
    operands: tuple[Operand, ...]
    layouts: tuple[tuple[str, str, int], ...]
    shared: tuple[tuple[int, int], ...]
    overrides: OverrideData | None
    plans: tuple[PlanParts, ...]
    structure: bytes

    def describe(self) -> dict[str, object]:
        """Return what a module says of the graph: GRAPH."""
        described: dict[str, object] = {
            "source": self.source,
            "dialect": self.dialect,
            "nodes": self.nodes,
            "is_override_shape_enabled": self.overrides is not None,
        }
        if self.plans:
            described["plans"] = tuple(
                (plan.sm, plan.sm_count, plan.cudnn_version, plan.engine) for plan in self.plans
            )
        return described


class LinkData(NamedTuple):
    """How a graph of a chain takes part in it.

    Attributes
    ----------
    name
        What it is called in the chain.
    places
        Of each of its slots, ``(slot, offset)``: the address is that of the chain's slot, or of the
        workspace if -1, plus `offset` bytes. A scalar is that of the chain's slot.
    after
        Which links must have run, by place; not those that these wait for.
    lane
        Its share of the workspace: links that may run at once have different ones.
    """

    name: str
    places: tuple[tuple[int, int], ...]
    after: tuple[int, ...]
    lane: int


class ChainData(NamedTuple):
    """What makes one of a module's graphs.

    Attributes
    ----------
    face
        What callers see, as if it were one graph; without plans.
    links
        In the order in which they run, which is that of `ModuleData.graphs`.
    inner_size
        Bytes at the beginning of the workspace for tensors between links.
    wires
        Input and output that are one tensor, by the names of link and tensor.
    """

    face: GraphData
    links: tuple[LinkData, ...]
    inner_size: int
    wires: tuple[tuple[str, str], ...]

    def describe(self, graphs: tuple[GraphData, ...]) -> dict[str, object]:
        """Return what a module says of the chain of `graphs`: GRAPH."""
        names = (link.name for link in self.links)
        links = zip(names, graphs, strict=True)
        return {
            **self.face.describe(),
            "links": {name: graph.describe() for name, graph in links},
            "wires": dict(self.wires),
        }


class ModuleData(NamedTuple):
    """All graphs of a module.

    Attributes
    ----------
    fingerprint
        Of the graph, of the family or of the chain.
    names
        What the numbers of a family's key are called; none for one graph.
    places
        Of each number of the key, slot and axis of the dims that are it.
    graphs
        In the order of their keys, or of a chain's links.
    chain
        None for graphs that are none.
    """

    fingerprint: str
    names: tuple[str, ...]
    places: tuple[tuple[tuple[int, int], ...], ...]
    graphs: tuple[GraphData, ...]
    chain: ChainData | None = None


class Member(NamedTuple):
    """One graph of a module for several.

    Attributes
    ----------
    fingerprint, operands, graph
        What FINGERPRINT, OPERANDS and GRAPH are of a module for this graph alone.
    """

    fingerprint: str
    operands: tuple[Operand, ...]
    graph: Mapping[str, object]

    @property
    def source(self) -> object:
        """Base name of the graph file."""
        return self.graph["source"]


def pack(data: ModuleData) -> bytes:
    """Return `data` as ASCII for `unpack`; the same data may be other text with another zlib."""
    # Version 0 has no references and no interned texts: both depend on more than the value.
    # Modules that are no chain have no word of it.
    plain = _plain(data if data.chain else data[:4])
    return binascii.b2a_base64(zlib.compress(marshal.dumps(plain, 0), 9), newline=False)


def unpack(packed: bytes) -> ModuleData:
    """Return what was packed."""
    fingerprint, names, places, graphs, *chain = marshal.loads(  # noqa: S302
        zlib.decompress(binascii.a2b_base64(packed))
    )
    made = tuple(_graph(*graph) for graph in graphs)
    return ModuleData(fingerprint, names, places, made, _chain(*chain[0]) if chain else None)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _chain(*fields: Any) -> ChainData:
    chain = ChainData(*fields)
    links = tuple(LinkData(*link) for link in chain.links)
    return chain._replace(face=_graph(*chain.face), links=links)


def _graph(*fields: Any) -> GraphData:
    graph = GraphData(*fields)
    return graph._replace(
        operands=tuple(Operand(*operand) for operand in graph.operands),
        overrides=graph.overrides and OverrideData(*graph.overrides),
        plans=tuple(_plan(*plan) for plan in graph.plans),
    )


def _plan(*fields: Any) -> PlanParts:
    parts = PlanParts(*fields)
    if parts.kernels is None:
        return parts
    binaries, maps, launches, workspace_size = parts.kernels
    return parts._replace(
        kernels=KernelPlan(
            binaries,
            tuple(TensorMap(*each) for each in maps),
            tuple(KernelLaunch(*launch) for launch in launches),
            workspace_size,
        )
    )
