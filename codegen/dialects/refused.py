"""Files that are a cuDNN graph to their owner but cannot be bound: why, and what to do instead."""

from __future__ import annotations

from cudnn_bindgen.codegen.dialects.document import Document
from cudnn_bindgen.codegen.errors import GraphFormatError

_PYTHON_PLAN = b"CUDNN_FE_PYPLAN\0"


def recognise(data: bytes) -> bool:
    """Whatever no other dialect took: this one always answers with a reason."""
    return True


def read(data: bytes) -> Document:
    """Say what the file is."""
    if not data.strip():
        raise GraphFormatError("expected a graph file, got an empty one")
    if data.startswith(_PYTHON_PLAN):
        raise GraphFormatError(
            "expected a backend plan, got the plan of a Python engine",
            hint="its kernels are Python code; build the graph with a cuDNN backend engine",
        )
    if b'{"context"' in data:
        raise GraphFormatError(
            "expected one graph, got text with graphs in it, such as a frontend log",
            hint='save one line that begins with {"context" as a file of its own',
        )
    if data.lstrip()[:1] == b"[":
        raise GraphFormatError(
            "expected an object, got a list",
            hint="if it is a plan as a list of ints, write bytes(list) to a file",
        )
    raise GraphFormatError(
        f"expected a graph file, got {data[:16]!r}...",
        hint="a graph file is written by repr(graph) or graph.serialize()",
    )
