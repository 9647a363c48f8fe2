"""Structure of a graph, version 1.0 (frontend 1.6 to 1.26), in the shape of version 2.

There `tensors` is an object, keyed by the tensor's name (to 1.18) or, where its uid was assigned,
by that uid as text (from 1.19 on); a port holds such a name, or a uid as a number. Tensors of one
key overwrite each other, so that a dump may have lost some. What shows a loss is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model import ports
from cudnn_bindgen.codegen.model.limits import Int64
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.codegen.read.dialects.document import (
    ContextDocument,
    NodeDocument,
    StructureDocument,
    TensorDocument,
)
from cudnn_bindgen.codegen.read.dialects.values_v1 import newer_scalar
from cudnn_bindgen.codegen.text import member, shorten

DUMP_AGAIN = "dump the graph again with nvidia-cudnn-frontend 1.27 or newer"

Reference = Int64 | str

# `cudnn_frontend_version` of the first that keys tensors by uid, and that writes ragged offsets.
_KEYS_BY_UID = 11900
_RAGGED_OFFSETS = 12000


class _Tensor(TensorDocument, frozen=True, kw_only=True):
    uid: Int64 = 0
    uid_assigned: bool = False
    ragged_offset_name: str | None = None


class _Node(msgspec.Struct, frozen=True):
    tag: str
    inputs: dict[str, Reference] | None = None  # a node with none has null
    outputs: dict[str, Reference] | None = None
    name: str | None = ""
    padding_mask: Any = None
    peer_stats: list[_Tensor] = []


class _Structure(msgspec.Struct, frozen=True):
    context: ContextDocument
    nodes: list[_Node]
    tensors: dict[str, _Tensor]
    cudnn_frontend_version: int = 12600


class _Uids(msgspec.Struct, frozen=True):
    """The uid of each tensor by its key, and the key of each that had a uid."""

    by_key: dict[str, int]
    keys: dict[int, str]


class Converted(msgspec.Struct, frozen=True):
    """A structure in the shape of version 2, and what a Document says beside it."""

    structure: StructureDocument
    uids: frozenset[int]  # of all tensors, those that nodes carry included
    frontend_version: int
    raw_nodes: list[dict[str, Any]]
    tensor_paths: list[str]
    warnings: tuple[GraphFormatError, ...]


def read_structure(raw: dict[str, Any]) -> Converted:
    """Convert a decoded object.

    A tensor whose uid was not assigned gets the next free one from 1 on, in the order of ports: a
    number that cuDNN never saw, so the plan of such a graph must be made from this structure.
    """
    document = check({**raw, "tensors": raw.get("tensors") or {}}, _Structure)
    references = list(_references(document))
    keys = _find_keys(document, references)
    _check_order(document)
    by_key = _assign_uids(document, keys)
    uids = _Uids(by_key, _keys_by_uid(document))
    converted = [
        _convert(document.tensors[key], uid, _path(key), document, uids)
        for key, uid in by_key.items()
    ]
    raw_nodes = list(map(dict, raw["nodes"]))
    peers = _convert_peers(document, raw_nodes, uids)
    return Converted(
        structure=StructureDocument(
            context=document.context,
            nodes=[
                NodeDocument(
                    tag=node.tag,
                    name=node.name,
                    inputs={port: by_key[keys[key]] for port, key in (node.inputs or {}).items()},
                    outputs={port: by_key[keys[key]] for port, key in (node.outputs or {}).items()},
                )
                for node in document.nodes
            ],
            tensors=converted,
        ),
        uids=frozenset(by_key.values()) | peers,
        frontend_version=document.cudnn_frontend_version,
        raw_nodes=raw_nodes,
        tensor_paths=[_path(key) for key in by_key],
        warnings=tuple(_warnings(document, references)),
    )


def _references(document: _Structure) -> Iterator[tuple[str, Reference]]:
    """Yield each port's path and what it holds, in the order of arguments."""
    for index, node in enumerate(document.nodes):
        inputs, outputs = node.inputs or {}, node.outputs or {}
        required, optional = ports.order_inputs(node.tag, inputs)
        for port in required + optional:
            yield member(f"$.nodes[{index}].inputs", port), inputs[port]
        for port in ports.order_outputs(node.tag, outputs):
            yield member(f"$.nodes[{index}].outputs", port), outputs[port]


def _keys_by_uid(document: _Structure) -> dict[int, str]:
    return {item.uid: key for key, item in document.tensors.items() if item.uid_assigned}


def _find_keys(
    document: _Structure, references: list[tuple[str, Reference]]
) -> dict[Reference, str]:
    """Find the tensor that each port means, or say that the dump lost it."""
    by_uid = _keys_by_uid(document)
    keys: dict[Reference, str] = {}
    for path, reference in references:
        key = by_uid.get(reference) if isinstance(reference, int) else reference
        item = document.tensors.get(key) if key is not None else None
        if key is None or item is None or not _is_meant(reference, item, document):
            raise _lost(f"the key of a tensor, got {shorten(repr(reference))}", path)
        keys[reference] = key
    return keys


def _is_meant(reference: Reference, item: _Tensor, document: _Structure) -> bool:
    """Whether `item` is what a port refers to, not another tensor that has the same key."""
    if isinstance(reference, int):
        return True  # found by its uid
    keyed_by_uid = item.uid_assigned and document.cudnn_frontend_version >= _KEYS_BY_UID
    return item.name == reference and not keyed_by_uid


def _check_order(document: _Structure) -> None:
    """Refuse a node that reads what it or a later one writes: two tensors had one name.

    Nodes stand in the order in which they were built.
    """
    written = {
        reference: index
        for index, node in enumerate(document.nodes)
        for reference in (node.outputs or {}).values()
    }
    for index, node in enumerate(document.nodes):
        for port, reference in (node.inputs or {}).items():
            if written.get(reference, -1) >= index:
                raise _lost(
                    f"an input from an earlier node, got {shorten(repr(reference))}, which "
                    f"$.nodes[{written[reference]}] writes",
                    member(f"$.nodes[{index}].inputs", port),
                )


def _assign_uids(document: _Structure, keys: Mapping[Reference, str]) -> dict[str, int]:
    """Give each tensor a uid, by key: its own, or one that no other has."""
    free = _free_uids(document)
    uids: dict[str, int] = {}
    # Ports first: their order is the graph's, that of keys changes with names.
    for key in [*keys.values(), *sorted(document.tensors)]:
        if key not in uids:
            item = document.tensors[key]
            uids[key] = item.uid if item.uid_assigned else next(free)
    return uids


def _free_uids(document: _Structure) -> Iterator[int]:
    peers = [peer for node in document.nodes for peer in node.peer_stats]
    everything = [*document.tensors.values(), *peers]
    taken = {item.uid for item in everything if item.uid_assigned}
    return (uid for uid in range(1, 2**62) if uid not in taken)


def _convert_peers(
    document: _Structure, raw_nodes: list[dict[str, Any]], uids: _Uids
) -> frozenset[int]:
    """Give the tensors that nodes carry uids beyond those of all others; return these uids."""
    used = set(uids.by_key.values())
    carried = []
    free = (uid for uid in _free_uids(document) if uid not in used)
    for index, node in enumerate(document.nodes):
        if not node.peer_stats:
            continue
        peers = []
        for position, peer in enumerate(node.peer_stats):
            uid = peer.uid if peer.uid_assigned else next(free)
            carried.append(uid)
            path = f"$.nodes[{index}].peer_stats[{position}]"
            peers.append(msgspec.to_builtins(_convert(peer, uid, path, document, uids)))
        raw_nodes[index]["peer_stats"] = peers
    return frozenset(carried)


def _convert(
    item: _Tensor, uid: int, path: str, document: _Structure, uids: _Uids
) -> TensorDocument:
    fields = {name: getattr(item, name) for name in TensorDocument.__struct_fields__}
    fields["uid"] = uid
    if item.pass_by_value:
        fields["pass_by_value"] = newer_scalar(item.pass_by_value, document.cudnn_frontend_version)
    if item.ragged_offset_uid is not None or item.ragged_offset_name:
        fields["ragged_offset_uid"] = _find_offset(item, path, document, uids)
    return TensorDocument(**fields)


def _find_offset(item: _Tensor, path: str, document: _Structure, uids: _Uids) -> int:
    """Find the ragged offset by its uid or, as long as that is 0, by its name.

    It has to be a tensor of some port as well: offsets themselves are not in the dump.
    """
    name = item.ragged_offset_name or ""
    key = uids.keys.get(item.ragged_offset_uid or 0)
    if not item.ragged_offset_uid and (key is None or document.tensors[key].name != name):
        # Nobody set it to 0: it is not assigned.
        other = document.tensors.get(name)
        key = name if other and other.name == name and not other.uid_assigned else None
    if key is None:
        what = name or str(item.ragged_offset_uid)
        raise _lost(f"a ragged offset, got {shorten(repr(what))}", f"{path}.ragged_offset_uid")
    return uids.by_key[key]


def _warnings(
    document: _Structure, references: list[tuple[str, Reference]]
) -> Iterator[GraphFormatError]:
    """Yield what may have been lost without a trace."""
    written = {key for node in document.nodes for key in (node.outputs or {}).values()}
    first: dict[Reference, str] = {}
    for path, reference in references:
        earlier = first.setdefault(reference, path)
        if earlier != path and isinstance(reference, str) and reference not in written:
            yield GraphFormatError(
                f"expected one tensor of each name, got {shorten(repr(reference))} at {earlier} "
                "too: of two tensors with that name the dump would have lost one",
                path=path,
                hint=f"if it is not the same tensor, {DUMP_AGAIN}",
            )
    for index, node in enumerate(document.nodes):
        if node.padding_mask is True and document.cudnn_frontend_version < _RAGGED_OFFSETS:
            yield GraphFormatError(
                "expected ragged offsets if the graph has any, got a dump of frontend 1.19 or "
                "older, which leaves them out",
                path=f"$.nodes[{index}]",
                hint=f"if it has some, {DUMP_AGAIN}",
            )


def _lost(expected: str, path: str) -> GraphFormatError:
    return GraphFormatError(
        f"expected {expected}: the dump lost a tensor", path=path, hint=DUMP_AGAIN
    )


def _path(key: str) -> str:
    return member("$.tensors", key)
