"""Graph files in the hands of tests that change what a graph is, or how it is numbered."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.read.dialects.decode import decode_json, decode_ubjson
from cudnn_bindgen.codegen.read.graph import read_graph
from support.documents import DATA, Document, to_json
from support.hostile_encoding import encode_ubjson

CASES = DATA / "cases"
CAP = CASES / "score_mod" / "sm_cap30.plan"
NONE = CASES / "score_mod" / "sm_none.plan"
OPERAND = CASES / "score_mod_operand" / "flex_1.32.plan"
TWO = CASES / "compile_time_constant" / "cc_2.plan"
THREE = CASES / "compile_time_constant" / "cc_3.plan"


def decode(path: Path) -> Document:
    """Return a file's object; what cuDNN wrote in it is decoded, too."""
    data = path.read_bytes()
    raw: Document = decode_json(data) if data[:1] == b"{" and path.suffix == ".json" else {}
    raw = raw or decode_ubjson(data)
    if "cudnn_backend_data" in raw:
        raw["cudnn_backend_data"] = json.loads(raw["cudnn_backend_data"])
    return raw


def encode(raw: Document) -> bytes:
    """Return the file that an object of `decode` is written as."""
    if "cudnn_backend_data" not in raw:
        return to_json(raw)
    return encode_ubjson(raw | {"cudnn_backend_data": json.dumps(raw["cudnn_backend_data"])})


def structure_of(raw: Document) -> bytes:
    """Return the structure file of a plan."""
    kept = ("context", "cudnn_backend_version", "cudnn_frontend_version", "gid", "json_version")
    return to_json({name: raw[name] for name in (*kept, "nodes", "tensors")})


def edited(path: Path, edit: Callable[[Document], object]) -> bytes:
    """Return a file with a change."""
    raw = decode(path)
    edit(raw)
    return encode(raw)


def operations(raw: Document) -> Document:
    """Return what cuDNN's text says of the graph."""
    found: Document = raw["cudnn_backend_data"]["operationGraph"]
    return found


def key(data: bytes) -> str:
    """Return the fingerprint of a file."""
    return fingerprint(read_graph(data))


def numbered_anew(raw: Document, change: Callable[[int], int]) -> Document:
    """Give every tensor that callers do not bind another uid, wherever it stands."""
    bound = {argument.uid for argument in bind(read_graph(encode(raw))).arguments}

    def new(uid: Any) -> Any:
        return uid if uid in bound or not isinstance(uid, int) else change(uid)

    def new_text(name: Any) -> Any:
        is_name = isinstance(name, str) and name.lstrip("-").isdecimal()
        return str(new(int(name))) if is_name else name

    again = copy.deepcopy(raw)
    carried = [item for node in again["nodes"] for item in node.get("peer_stats", [])]
    for item in [*again["tensors"], *carried]:
        item["uid"] = new(item["uid"])
        item["ragged_offset_uid"] = new(item.get("ragged_offset_uid"))
    for node in again["nodes"]:
        for side in ("inputs", "outputs"):
            node[side] = {port: new(uid) for port, uid in (node[side] or {}).items()}
    for field in ("pass_by_values", "workspace_modifications", "aligned_operands"):
        if field in again:
            again[field] = {new_text(uid): value for uid, value in again[field].items()}
    if "variant_pack_uids" in again:
        again["variant_pack_uids"] = [new(uid) for uid in again["variant_pack_uids"]]
        again["variant_pack_replacements"] = [
            [new(source), [new(target), offset]]
            for source, (target, offset) in again["variant_pack_replacements"]
        ]
        _number_text(again["cudnn_backend_data"].get("operationGraph", {}), new, new_text)
    return again


def _number_text(graph: Document, new: Any, new_text: Any) -> None:
    for item in graph.get("tensors", []):
        item["name"] = new_text(item["name"])
        _number_text({"tensors": item.get("isRagged", [])}, new, new_text)
    for node in graph.get("nodes", []):
        for name, value in node.items():
            if name in ("subgraphInputUid", "subgraphOutputUid"):
                node[name] = new(value)
            elif name == "softmax":
                _number_text({"nodes": [value]}, new, new_text)
            elif name == "subgraph":
                _number_text(value, new, new_text)
            else:
                node[name] = new_text(value)
