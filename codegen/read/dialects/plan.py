"""Plan file: ``graph.serialize()``, a UBJSON object that holds structure and plan."""

from __future__ import annotations

from cudnn_bindgen.codegen.read.dialects import structure
from cudnn_bindgen.codegen.read.dialects.decode import decode_ubjson
from cudnn_bindgen.codegen.read.dialects.document import Document
from cudnn_bindgen.codegen.read.options import ReadOptions

NAME = "plan"


def recognise(data: bytes) -> bool:
    """Tell a UBJSON object: ``{``, then a key's length or a container's type or count."""
    return data[:1] == b"{" and data[1:2] in (b"i", b"U", b"I", b"l", b"L", b"$", b"#")


def read(data: bytes, options: ReadOptions) -> list[Document]:
    """Decode UBJSON."""
    return [structure.read_object(decode_ubjson(data), options)]
