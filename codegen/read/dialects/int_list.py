"""A plan file as text: ``print(graph.serialize())`` gives a list of ints, or a bytes literal."""

from __future__ import annotations

import ast
import contextlib
import re

import msgspec

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects import plan
from cudnn_bindgen.codegen.read.dialects.decode import check_bytes, decode_json_as, placed
from cudnn_bindgen.codegen.read.dialects.document import Document
from cudnn_bindgen.codegen.read.options import ReadOptions

NAME = "plan as text"

# What repr() of bytes never writes: Python warns of such an escape, or of none.
_ODD_ESCAPE = re.compile(rb"\\(?![nrt'\"]|x[0-9a-f]{2})")

_WHAT = "a plan as a list of ints"


def recognise(data: bytes) -> bool:
    """Tell a list, or a bytes literal as Python prints it."""
    return data.lstrip()[:1] == b"[" or data.lstrip()[:2] in (b"b'", b'b"')


def read(data: bytes, options: ReadOptions) -> list[Document]:
    """Turn the text into bytes, then read those."""
    check_bytes(len(data), _WHAT)
    content = _list(data) if data.lstrip()[:1] == b"[" else _literal(data)
    if not plan.recognise(content):
        raise GraphFormatError(
            f"expected the bytes of a plan file, got {content[:16]!r}...",
            path="$",
            hint="print(list(graph.serialize())) gives such a list",
        )
    return plan.read(content, options)


def _list(data: bytes) -> bytes:
    try:
        values: list[int] = decode_json_as(data, _WHAT, list[int])
    except msgspec.ValidationError as error:
        problem = placed(str(error))
        problem.hint = "a list of graphs is no graph file: write each graph into one of its own"
        raise problem from None
    try:
        return bytes(values)
    except (ValueError, OverflowError):
        index = next(i for i, value in enumerate(values) if not 0 <= value < 256)
        raise GraphFormatError(
            "expected a byte, 0 to 255, got another number",
            path=f"$[{index}]",
            hint="print(list(graph.serialize())) gives such a list",
        ) from None


def _literal(data: bytes) -> bytes:
    text = data.strip()
    value = None
    if _is_printed(text[2:-1], text[1:2]) and text[-1:] == text[1:2]:
        with contextlib.suppress(ValueError, SyntaxError):
            value = ast.literal_eval(text.decode("ascii"))
    if not isinstance(value, bytes):
        raise GraphFormatError(
            "expected a plan as a bytes literal, got a broken one",
            hint="write the bytes themselves: open(file, 'wb').write(bytes(graph.serialize()))",
        )
    return value


def _is_printed(body: bytes, quote: bytes) -> bool:
    """Whether it is one literal as repr() writes it: anything else costs the parser a lot."""
    bare = body.replace(b"\\\\", b"")
    return not _ODD_ESCAPE.search(bare) and quote not in bare.replace(b"\\" + quote, b"")
