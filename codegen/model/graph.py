"""The model: one validated, immutable cuDNN graph, in cuDNN's words.

`read/graph.py` builds it; everything downstream may rely on the invariants stated here.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.data_types import BITS, INTEGERS
from cudnn_bindgen.codegen.model.kernel_plan import KernelPlan
from cudnn_bindgen.codegen.model.operation_graph import OperationGraph

# Names the frontend gives: tensor_3 by its Python front, 0::Y or sdpa::O after node and port.
_MADE_UP = re.compile(r"(tensor_\d+|.*::\w*)?", re.ASCII | re.DOTALL)


def is_made_up(name: str) -> bool:
    """Whether the frontend, not the user, chose `name`."""
    return _MADE_UP.fullmatch(name) is not None


def dotted(cudnn_version: int) -> str:
    """Return a version of cuDNN as people write it: 91900 is 9.19.0."""
    return f"{cudnn_version // 10000}.{cudnn_version // 100 % 100}.{cudnn_version % 100}"


def under(cudnn_version: int) -> str:
    """Return what a plan runs under: of a version of 0, which plans of kernels have, any."""
    return f"cuDNN {dotted(cudnn_version)}" if cudnn_version else "any cuDNN"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value passed from host memory: its data type and exact bits.

    Invariant: `data_type` is one of SCALAR_TYPES and ``len(data)`` is its width in bytes,
    little-endian, as it lies in memory on every host cuDNN supports.
    """

    data_type: str
    data: bytes

    @property
    def value(self) -> int | float:
        """The value as a Python number; a double holds every one of the types exactly."""
        if self.data_type in INTEGERS:
            return int.from_bytes(self.data, "little", signed=True)
        if self.data_type == "BFLOAT16":
            return float(struct.unpack("<f", b"\0\0" + self.data)[0])
        code = {"HALF": "<e", "FLOAT": "<f", "DOUBLE": "<d"}[self.data_type]
        return float(struct.unpack(code, self.data)[0])


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the graph.

    Invariants: no dim is negative; `uid` and all strides fit int64; `alignment` is a power of two,
    in bytes; `ragged_offset_uid` names a tensor of the same graph; `value` is set on scalars only,
    and `constant`, the value that is compiled into the kernels, on scalars without a `value`.
    Of a tensor that is not virtual also: `dim` is not empty, ``len(dim) == len(stride)``,
    `data_type` is a key of BITS, and of SCALAR_TYPES if it is passed by value.
    """

    uid: int
    name: str
    data_type: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    is_virtual: bool = False
    is_pass_by_value: bool = False
    value: Scalar | None = None
    constant: Scalar | None = None
    reordering_type: str = "NONE"
    alignment: int = 16
    ragged_offset_uid: int | None = None
    ragged_offset_multiplier: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements; 0 when any dim is 0."""
        return math.prod(self.dim)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element, at least 1 (packed 1- and 4-bit types)."""
        return max(1, BITS[self.data_type] // 8)


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `inputs` and `outputs` are (port, uid) pairs in argument order.

    `optional` holds the optional inputs; `extra` the uids of tensors that the node carries
    besides its ports (``peer_stats``). Invariant: every uid is a tensor of the graph.
    """

    tag: str
    name: str
    inputs: tuple[tuple[str, int], ...]
    optional: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    extra: tuple[tuple[str, int], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ports(self) -> tuple[tuple[str, int], ...]:
        """All (port, uid) pairs: inputs, optional inputs, carried tensors, outputs."""
        return self.inputs + self.optional + self.extra + self.outputs


@dataclass(frozen=True, slots=True)
class WorkspacePart:
    """A tensor that lives in the frontend's part of the workspace (``workspace_modifications``).

    `operation` is 0 (copy `values` from the host before each launch), 1 (set
    ``int(values[0])`` bytes to zero before each launch) or 2 (address only). `offset` is in
    bytes from the start of the workspace.
    """

    uid: int
    operation: int
    offset: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replacement:
    """``address(target) = address(source) + offset`` bytes (``variant_pack_replacements``)."""

    source: int
    target: int
    offset: int


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """What a plan file says beyond the structure.

    Invariants: every uid of `variant_pack_uids` is a tensor of the graph, a key of `constants`, a
    workspace part or a replacement's target; all tuples are sorted by uid.
    """

    text: str
    cudnn_version: int
    sm: int
    sm_count: int  # 0: the file does not say
    engine: str
    variant_pack_uids: tuple[int, ...]
    constants: tuple[tuple[int, Scalar], ...]
    workspace_parts: tuple[WorkspacePart, ...]
    replacements: tuple[Replacement, ...]
    aligned_operands: tuple[tuple[int, int], ...]
    frontend_workspace_size: int
    behavior_notes: tuple[str, ...]
    # None: the text has none of it.
    operation_graph: OperationGraph | None = field(default=None, compare=False, repr=False)
    # How the plan was chosen, for evidence.py to read; None if the file does not say, empty if it
    # says what is no text. No part of what the plan is.
    evidence: str | None = field(default=None, compare=False)
    # In place of cuDNN's text, which is empty then; `cudnn_version` is 0.
    kernels: KernelPlan | None = None

    @property
    def bound_uids(self) -> set[int]:
        """What someone gives an address for: in the pack itself, or as a replacement's source."""
        return {*self.variant_pack_uids, *(item.source for item in self.replacements)}


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole graph.

    Invariants: tensors are sorted by uid, uids are unique and not -1; nodes keep the file's order
    and have no cycle; no tensor is the output of two nodes; some output is not virtual. `warnings`
    say what is odd about it nevertheless. `source` is its structure as the file has it, in the form
    that write_structure.py gives it: a plan depends on nulls that are filled in here. `unsaid` is
    what no dump says of the graph, as unsaid.py found it in the plan: index of a node, or -1, what
    it is, and how. It is empty without a plan.
    """

    dialect: str
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    context: Mapping[str, Any]
    plan: PlanInfo | None = None
    unsaid: tuple[tuple[int, str, Any], ...] = ()
    warnings: tuple[GraphFormatError, ...] = field(default=(), compare=False)
    source: bytes = field(default=b"", compare=False, repr=False)

    @property
    def is_override_shape_enabled(self) -> bool:
        """Whether execute-time shape overrides are allowed."""
        return bool(self.context.get("is_override_shape_enabled", False))

    @property
    def has_kernels(self) -> bool:
        """Whether its plan is kernels of one of the frontend's own engines."""
        return self.plan is not None and self.plan.kernels is not None

    @property
    def is_ragged(self) -> bool:
        """Whether some tensor has ragged offsets."""
        return any(tensor.ragged_offset_uid is not None for tensor in self.tensors)
