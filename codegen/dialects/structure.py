"""Structure of a graph, version 2.0: ``repr(graph)`` with frontend 1.27 or newer."""

from __future__ import annotations

from typing import Any

from cudnn_bindgen.codegen.dialects.decode import check, decode_json
from cudnn_bindgen.codegen.dialects.document import Document, PlanDocument, StructureDocument
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.text import shorten

NAME = "structure"


def recognise(data: bytes) -> bool:
    """JSON text: an object, which UBJSON's would-be key length tells from a plan file."""
    head = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:2]
    return head[:1] == b"{" and head[1:2] in b' \t\r\n"}'


def read(data: bytes) -> Document:
    """Decode JSON text."""
    return read_object(decode_json(data.lstrip(b"\xef\xbb\xbf")), NAME)


def read_object(raw: Any, dialect: str) -> Document:
    """Check a decoded object, whatever encoding it came in."""
    if not isinstance(raw, dict):
        raise GraphFormatError(f"expected an object, got {type(raw).__name__}", path="$")
    _check_version(raw)
    for key in ("nodes", "tensors"):
        if key not in raw and "cudnn_backend_data" in raw:
            raise GraphFormatError(
                f'expected a field "{key}", got a plan without its structure',
                path="$",
                hint="serialize the graph with its structure (serialize_structure=true)",
            )
    structure = check(raw, StructureDocument)
    plan = check(raw, PlanDocument) if "cudnn_backend_data" in raw else None
    return Document(dialect="plan" if plan else dialect, structure=structure, plan=plan, raw=raw)


def _check_version(raw: dict[str, Any]) -> None:
    version = raw.get("json_version")
    if version == "2.0":
        return
    if version == "1.0":
        raise GraphFormatError(
            'expected "2.0", got "1.0", the format of frontend 1.26 and older',
            path="$.json_version",
            hint="dump the graph again with nvidia-cudnn-frontend 1.27 or newer",
        )
    if version is None and "nodes" in raw:
        raise GraphFormatError(
            'expected "2.0", got a graph that was printed before it was lowered',
            path="$.json_version",
            hint="call graph.validate() before printing the graph, for attention "
            "graph.build_operation_graph(); or write graph.serialize() of a built graph",
        )
    if version is None:
        raise GraphFormatError(
            'expected a field "json_version", got none',
            path="$",
            hint="a graph file is written by repr(graph) or graph.serialize()",
        )
    raise GraphFormatError(
        f'expected "2.0", got {shorten(repr(version))}',
        path="$.json_version",
        hint="a newer cudnn-bindgen may read it",
    )
