"""The shapes that graph documents have on disk, for msgspec to check: names and types, no meaning.

Fields that a later frontend may add are ignored; fields that this project needs are required, so
that a missing one is an error with its JSON path.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.limits import Bytes, Int64, Rank, Size
from cudnn_bindgen.codegen.model.scalar import ScalarDocument
from cudnn_bindgen.codegen.model.unsaid import OnlyInPlan


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
    # A plan depends on it, no binding does: read/graph.py leaves it out of `Graph.context`.
    sm_count: int | None = None


class StructureDocument(msgspec.Struct, frozen=True):
    """Structure of a graph, version 2.0."""

    context: ContextDocument
    nodes: list[NodeDocument]
    tensors: list[TensorDocument]
    only_in_plan: OnlyInPlan = OnlyInPlan()


class PlanDocument(msgspec.Struct, frozen=True):
    """What ``graph.serialize()`` adds to the structure."""

    variant_pack_uids: list[Int64]
    fe_workspace_size: Bytes
    cudnn_backend_data: str = ""
    # What `cudnn-bindgen plan` writes in its place for an engine of the frontend's own.
    kernel_plan: str | None = None
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
