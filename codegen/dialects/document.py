"""The shapes that graph documents have on disk, for msgspec to check: names and types, no meaning.

Fields that a later frontend may add are ignored; fields that this project needs are required, so
that a missing one is an error with its JSON path.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import GraphFormatError

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# Bytes of workspace, and from one address to another: no GPU has addresses for more. Whoever adds
# some of them to others, to cuDNN's own share or to an address, stays below int64.
Bytes = Annotated[int, Meta(ge=0, le=2**48)]
# cuDNN has 8 axes; the product of thousands takes minutes.
Rank = Meta(max_length=64)


class ScalarDocument(msgspec.Struct, frozen=True):
    """A pass-by-value: hex bits for float types, a number for doubles and integers.

    Null stands for a double that JSON has no number for.
    """

    index: Annotated[int, Meta(ge=0, le=5)]
    value: str | int | float | None


class TensorDocument(msgspec.Struct, frozen=True):
    """One tensor as ``Tensor_attributes`` is serialized."""

    uid: Int64
    dim: Annotated[list[Size], Rank]
    stride: Annotated[list[Int64], Rank]
    data_type: str | None
    is_virtual: bool = False
    is_pass_by_value: bool = False
    pass_by_value: ScalarDocument | None = None
    reordering_type: str | None = "NONE"
    name: str | None = ""
    ragged_offset_uid: Int64 | None = None
    ragged_offset_multiplier: Int64 | None = None
    alignment: Annotated[int, Meta(ge=1, le=2**20)] = 16


class NodeDocument(msgspec.Struct, frozen=True):
    """One node; its attributes are read from the raw object beside it."""

    tag: str
    inputs: dict[str, Int64] | None = None  # a node with none may have null
    outputs: dict[str, Int64] | None = None
    name: str | None = ""


class ContextDocument(msgspec.Struct, frozen=True):
    """Graph-wide settings."""

    io_data_type: str | None = None
    intermediate_data_type: str | None = None
    compute_data_type: str | None = None
    is_dynamic_shape_enabled: bool = False
    is_override_shape_enabled: bool = False
    # A plan depends on it, no binding does: read.py leaves it out of `Graph.context`.
    sm_count: int | None = None


# Index of a node, or -1; what only a plan says of it; and how.
Unsaid = tuple[int, str, Any]


class OnlyInPlan(msgspec.Struct, frozen=True):
    """What a plan says of its structure, which a module keeps beside it (write_structure.py).

    `constants` of compile time have a type and bits.
    """

    constants: dict[str, tuple[str, str]] = {}
    unsaid: list[Unsaid] = []


class StructureDocument(msgspec.Struct, frozen=True):
    """Structure of a graph, version 2.0."""

    context: ContextDocument
    nodes: list[NodeDocument]
    tensors: list[TensorDocument]
    only_in_plan: OnlyInPlan = OnlyInPlan()


class PlanDocument(msgspec.Struct, frozen=True):
    """What ``graph.serialize()`` adds to the structure."""

    cudnn_backend_data: str
    variant_pack_uids: list[Int64]
    fe_workspace_size: Bytes
    pass_by_values: dict[str, ScalarDocument] = {}
    workspace_modifications: dict[
        # The numbers are hex strings, the bits of a float, as all floats of the frontend.
        str, tuple[Annotated[int, Meta(ge=0, le=2)], Bytes, list[str | float]]
    ] = {}
    variant_pack_replacements: list[tuple[Int64, tuple[Int64, Bytes]]] = []
    # Absent in plans serialized before frontend 1.30.
    aligned_operands: dict[str, tuple[Annotated[int, Meta(ge=0, le=2**20)], int]] = {}
    behavior_notes: list[list[str | None]] = []
    # What `cudnn-bindgen plan` adds. Nothing is read from it that a binding needs, so that whatever
    # stands there is no reason to refuse a plan.
    cudnn_bindgen: Any = None


class Document(msgspec.Struct, frozen=True):
    """One graph, decoded, in the shape of structure v2 whatever dialect it came in.

    `raw_nodes` are the whole objects behind ``structure.nodes``; `tensor_paths` says where in the
    file each of ``structure.tensors`` stands, `line` where the graph does (0: the file is the
    graph). `loses_offsets`: the dialect leaves ragged offsets out. `warnings` are refusals that the
    user's options turned off.
    """

    dialect: str
    structure: StructureDocument
    plan: PlanDocument | None
    raw_nodes: list[dict[str, Any]]
    tensor_paths: list[str]
    line: int = 0
    loses_offsets: bool = False
    warnings: tuple[GraphFormatError, ...] = ()
