"""What is a cuDNN graph to its owner but cannot be bound, or none: why, and what to do instead."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects import python_ir
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.text import shorten

NAME = "unknown"

_GRAPH_FILE = "a graph file is written by repr(graph) or graph.serialize()"

# How a file begins, what it is then, and what its owner can do.
_SIGNATURES = (
    (
        rb"\x80[\x02-\x05]",
        "pickle",
        "expected a graph file, got a pickle, which could run any code when it is read",
        "load it where you trust it, and write the bytes of the plan to a file",
    ),
    (
        rb"\xff\xfe|\xfe\xff",
        "UTF-16 text",
        "expected UTF-8 text, got UTF-16",
        "save the file as UTF-8",
    ),
    (
        rb"(?s:.*)\{\\+\"context\\+\"",
        "escaped log",
        "expected a graph file, got one with graphs inside of JSON strings",
        'unescape it, so that a line has {"context" in it',
    ),
    (
        rb"PK\x03\x04|\x1f\x8b|\xfd7zXZ|\x28\xb5\x2f\xfd",
        "archive",
        "expected a graph file, got a compressed one",
        "unpack it first",
    ),
)


def recognise(data: bytes) -> bool:
    """Whatever no other dialect took: this one always answers with a reason."""
    return True


def read(data: bytes, options: ReadOptions) -> NoReturn:
    """Say what the file is."""
    if not data.strip():
        raise GraphFormatError("expected a graph file, got an empty one", hint=_GRAPH_FILE)
    for signature, dialect, problem, hint in _SIGNATURES:
        if re.match(signature, data):
            error = GraphFormatError(problem, hint=hint)
            error.dialect = dialect
            raise error
    raise GraphFormatError(f"expected a graph file, got {data[:16]!r}...", hint=_GRAPH_FILE)


def refuse_version(raw: dict[str, Any], known: str) -> GraphFormatError:
    """Return why a decoded object that is of none of the `known` versions cannot be read."""
    version = raw.get("json_version")
    if version is not None:
        return GraphFormatError(
            f"expected {known}, got {shorten(repr(version))}",
            path="$.json_version",
            hint="a newer cudnn-bindgen may read it, and --allow-newer tries to with this one"
            if is_newer(version)
            else "dump the graph again with nvidia-cudnn-frontend 1.27 or newer",
        )
    nodes = raw.get("nodes")
    # The frontend's own dumps have a tag at each node, its Python part writes a type.
    if isinstance(nodes, list) and any(isinstance(node, dict) and "tag" in node for node in nodes):
        return GraphFormatError(
            f"expected {known}, got a graph of frontend 1.5 or older",
            path="$.json_version",
            hint="dump the graph again with nvidia-cudnn-frontend 1.27 or newer",
        )
    if "nodes" in raw:
        return python_ir.UnloweredError(raw, known)
    return GraphFormatError('expected a field "json_version", got none', path="$", hint=_GRAPH_FILE)


def is_newer(version: object) -> bool:
    """Whether a `json_version` that is not known is a later one than those that are."""
    match = re.fullmatch(r"(\d{1,4})(\.\d{1,4})*", version) if isinstance(version, str) else None
    return match is not None and int(match[1]) >= 2
