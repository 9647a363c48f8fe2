"""JSON and UBJSON of what no honest writer writes: a key twice, NaN, surrogates, any depth.

For honest objects both give what nlohmann-json gives, byte for byte (test_fuzz.py).
"""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from typing import Any

from support.hostile_values import RAW, TWIN

_RAW_JSON = re.compile(rf'"{RAW}([^"]*)"')
_TWIN_JSON = re.compile(rf'{TWIN}\d*(?=")')


def nested(depth: int, is_object: bool = False) -> str:
    """Return a value of that many levels, which no encoder has to walk."""
    return RAW + ("{'a':" * depth + "0" + "}" * depth if is_object else "[" * depth + "]" * depth)


def encode_json(value: Any) -> bytes:
    """Encode as ``repr(graph)`` does, without blanks."""
    text = json.dumps(value, separators=(",", ":"), default=str)
    if RAW in text:
        text = _RAW_JSON.sub(lambda match: match[1].replace("'", '"'), text)
    if TWIN in text:
        text = _TWIN_JSON.sub("", text)
    return text.encode("utf-8", "surrogatepass")


def encode_ubjson(value: Any) -> bytes:
    """Encode as ``graph.serialize()`` does: big-endian, containers without counts or types."""
    pieces: list[bytes] = []
    _write(value, pieces)
    return b"".join(pieces)


def _write(value: Any, pieces: list[bytes]) -> None:
    if isinstance(value, dict):
        pieces.append(b"{")
        for key, item in value.items():
            _write_text(str(key).partition(TWIN)[0], pieces)
            _write(item, pieces)
        pieces.append(b"}")
    elif isinstance(value, (list, tuple)):
        pieces.append(b"[")
        for item in value:
            _write(item, pieces)
        pieces.append(b"]")
    elif isinstance(value, str):
        if value.startswith(RAW):
            _write_raw(value.removeprefix(RAW), pieces)
        else:
            pieces.append(b"S")
            _write_text(value, pieces)
    elif value is None:
        pieces.append(b"Z")
    elif isinstance(value, bool):
        pieces.append(b"T" if value else b"F")
    elif isinstance(value, float):
        pieces.append(b"D" + struct.pack(">d", value))
    elif isinstance(value, Decimal):
        _write_raw(str(value), pieces)
    else:
        pieces.append(integer(value))


def integer(value: int) -> bytes:
    """Encode in the shortest form, as nlohmann does; beyond int64 as text (high precision)."""
    if -128 <= value < 128:
        return b"i" + struct.pack(">b", value)
    if 0 <= value < 256:
        return b"U" + struct.pack(">B", value)
    for marker, code, bits in ((b"I", ">h", 16), (b"l", ">i", 32), (b"L", ">q", 64)):
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return marker + struct.pack(code, value)
    text = str(value).encode()
    return b"H" + integer(len(text)) + text


def _write_text(text: str, pieces: list[bytes]) -> None:
    data = text.encode("utf-8", "surrogatepass")
    pieces += (integer(len(data)), data)


def _write_raw(text: str, pieces: list[bytes]) -> None:
    if text[:1] in ("[", "{"):
        pieces.append(text.replace("'a':", "i\x01a").replace("0", "Z").encode())
    else:
        pieces += (b"H", integer(len(text)), text.encode())
