"""Small graph documents in code, shaped as the frontend writes them, and where real ones lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import ubjson

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.model.data_types import SCALAR_TYPES
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelPlan
from cudnn_bindgen.codegen.read.graph import read_graph

Document = dict[str, Any]

# How a message ends unless it has a remedy of its own.
WRITE_AGAIN = "(the file is damaged or was edited: write it again from the graph)"

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
STRUCTURES = sorted((DATA / "structure-v2").glob("*.json"))
PLANS = sorted((DATA / "plans").glob("*/*.plan"))
# Their shapes were never inferred, so no binding can be made of them.
HALF_INFERRED = ("dropout", "slice_concat")
READABLE = [*PLANS, *(path for path in STRUCTURES if path.stem not in HALF_INFERRED)]


def with_remedy(message: str) -> str:
    """Return a message as it is printed: with its own remedy, or the one for damaged files."""
    return message if message.endswith(")") else f"{message} {WRITE_AGAIN}"


def file_id(path: Path) -> str:
    """Name a file of tests/data in a test's name."""
    return f"{path.parent.name}/{path.name}"


def tensor(uid: int, name: str = "", **fields: Any) -> Document:
    """A 2 x 4 tensor that the caller binds."""
    return {
        "uid": uid,
        "name": name,
        "data_type": "BFLOAT16",
        "dim": [2, 4],
        "stride": [4, 1],
        "is_virtual": False,
        "is_pass_by_value": False,
        "pass_by_value": None,
        "reordering_type": "NONE",
    } | fields


def tensors(*uids: int) -> list[Document]:
    """One of those for each uid."""
    return [tensor(uid) for uid in uids]


def scalar(uid: int, name: str = "", value: Any = None, **fields: Any) -> Document:
    """A scalar; `value` is the file's ``{"index": ..., "value": ...}`` or None."""
    index = value.get("index") if isinstance(value, dict) else None
    data_type = SCALAR_TYPES[index] if index in range(6) else "FLOAT"
    one = {"dim": [1, 1], "stride": [1, 1], "data_type": data_type}
    return tensor(uid, name, is_pass_by_value=True, pass_by_value=value, **one | fields)


def node(tag: str, inputs: dict[str, int], outputs: dict[str, int], **fields: Any) -> Document:
    """One node."""
    return {"tag": tag, "name": "", "inputs": inputs, "outputs": outputs} | fields


def document(nodes: list[Document], tensors: list[Document], **fields: Any) -> Document:
    """A structure file."""
    return {
        "context": {
            "compute_data_type": "FLOAT",
            "intermediate_data_type": "FLOAT",
            "io_data_type": "BFLOAT16",
            "is_dynamic_shape_enabled": False,
            "is_override_shape_enabled": False,
            "sm_count": -1,
        },
        "cudnn_backend_version": "9.28.0",
        "cudnn_frontend_version": 13200,
        "gid": 1,
        "json_version": "2.0",
        "nodes": nodes,
        "tensors": tensors,
    } | fields


def add_graph(**names: str) -> Document:
    """``y = a + b``: uids 1, 2 and 3, by default with names that the frontend made up."""
    return document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, mode="ADD", axis=None)],
        [
            tensor(1, names.get("a", "tensor_1")),
            tensor(2, names.get("b", "tensor_2")),
            tensor(3, names.get("y", "::OUT_0")),
        ],
    )


def chain(length: int) -> Document:
    """Layers of a network, a node after the other: product, sum and rectifier in turn.

    Each product has weights of its own; all sums add the same bias.
    """
    rows, columns, bias = ([1, size, 512] for size in (1024, 512, 1))
    nodes, items = [], [tensor(1, "x", dim=rows), tensor(2, "bias", dim=bias)]
    for index in range(length):
        layer, place = divmod(index, 3)
        before, after = 1 if index == 0 else 2 + index, 3 + index
        if place == 0:
            weight = tensor(1000 + layer, f"weight_{layer}", dim=columns)
            items.append(weight)
            nodes.append(node("MATMUL", {"A": before, "B": weight["uid"]}, {"C": after}))
        elif place == 1:
            inputs = {"IN_0": before, "IN_1": 2}
            nodes.append(node("POINTWISE", inputs, {"OUT_0": after}, mode="ADD"))
        else:
            nodes.append(node("POINTWISE", {"IN_0": before}, {"OUT_0": after}, mode="RELU_FWD"))
        is_last = index == length - 1
        types = {} if is_last else {"is_virtual": True, "data_type": "FLOAT"}
        items.append(tensor(after, "y" if is_last else "", dim=rows, **types))
    for item in items:
        item["stride"] = [item["dim"][1] * item["dim"][2], item["dim"][2], 1]
    return document(nodes, items)


def plan_document(structure: Document, **fields: Any) -> Document:
    """A plan file of `structure` that binds all of its tensors that are not virtual."""
    backend = {"cudnnVersion": 91900, "GPUProfile": {"deviceVer": 900}, "engine": {"engineId": 2}}
    return (
        structure
        | {
            "cudnn_backend_data": json.dumps(backend),
            "variant_pack_uids": [t["uid"] for t in structure["tensors"] if not t["is_virtual"]],
            "pass_by_values": {},
            "workspace_modifications": {},
            "variant_pack_replacements": [],
            "aligned_operands": {},
            "fe_workspace_size": 0,
            "behavior_notes": [],
        }
        | fields
    )


def to_json(raw: Document) -> bytes:
    """Encode a structure file."""
    return json.dumps(raw).encode()


def to_ubjson(raw: Document) -> bytes:
    """Encode a plan file."""
    encoded: bytes = ubjson.dumpb(raw)
    return encoded


def packed_kernels(plan: KernelPlan) -> bytes:
    """A plan file of kernels for attention whose tokens are packed; its output has uid 11."""
    file = DATA / "plans" / "cudnn-9.19-sm90" / "sdpa_thd.json"
    text = msgspec.json.encode(plan).decode()
    bound = {"variant_pack_uids": [*range(1, 13)], "fe_workspace_size": 0}
    return to_ubjson(json.loads(file.read_text()) | bound | {KEY: text})


def python_plan(head: Document | None = None, code: bytes = b"\x7fELF code") -> bytes:
    """A file as `graph.serialize()` writes it of a Python engine's plan."""
    kernel = {"offset": 0, "size": len(code), "environment": {"sm_count": "132"}}
    whole = {
        "format": 1,
        "frontend_version": "1.32.0",
        "graph": {},
        "plan": {"engine_id": 20517, "engine_name": "sdpa_sm90", "knobs": [[{"name": "TILE"}, 64]]},
        "kernels": [kernel],
    } | (head or {})
    text = json.dumps(whole).encode()
    return b"CUDNN_FE_PYPLAN\0" + struct.pack("<Q", len(text)) + text + code


def bind_document(raw: Document) -> Binding:
    """Read and bind a document in the encoding that its kind of file has."""
    return bind(read_graph(to_ubjson(raw) if "cudnn_backend_data" in raw else to_json(raw)))


def argument_names(binding: Binding) -> list[str]:
    """Return the parameters of `execute`."""
    return [argument.argument for argument in binding.arguments]
