"""Decoding shared by the dialects: bytes → Python objects → checked documents.

Every failure becomes a GraphFormatError; nothing a file holds may raise anything else, take more
than a second, or more than 200 MB.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, TypeVar

import msgspec
import ubjson

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects.ubjson_scan import MAX_DEPTH, check_sizes
from cudnn_bindgen.codegen.text import shorten

T = TypeVar("T")

# The largest real files have 0.1 MB and some hundred values.
MAX_BYTES = 8 * 2**20
MAX_VALUES = 500_000

# What msgspec says of numbers before it looks for what they are.
_CLEARER = {
    "Integer value out of range": "expected an integer of at most 64 bits, got a larger one",
    "Number out of range": "expected a number that a double can hold, got a larger one",
}
_TRAILING = "trailing characters"

_AT = re.compile(r"^(?P<problem>.*) - at (?:`key` in )?`(?P<path>[^`]*)`$", re.DOTALL)
_BYTE = re.compile(r"^(?:JSON is malformed: )?(?P<problem>.*) \(byte (?P<byte>\d+)\)$", re.DOTALL)


def decode_json(data: bytes, what: str = "a graph file") -> Any:
    """Decode JSON text in which no object has a key twice."""
    check_bytes(len(data), what)
    check_values(data, what)
    try:
        document = decode_json_as(data, what, Any)
    except msgspec.ValidationError as error:  # a number beyond all floats
        raise placed(str(error)) from None
    _check_depth(document, what)
    # msgspec keeps the last value of a key that comes twice, and other readers the first one.
    json.loads(data, object_pairs_hook=_check_keys)
    return document


def decode_json_as(data: bytes, what: str, shape: Any) -> Any:
    """Decode JSON text to `shape`, skipping what it has no place for.

    Raises msgspec.ValidationError for text that is JSON but not `shape`.
    """
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise _broken_json(data, what, str(error)) from None
    except RecursionError:
        raise GraphFormatError(f"expected {what}, got JSON nested too deep") from None


def encode_ubjson(value: dict[str, Any]) -> bytes:
    """Return a plan file as the frontend writes it: an object without a count of its members."""
    return bytes(ubjson.dumpb(value))


def decode_ubjson(data: bytes) -> Any:
    """Decode UBJSON as nlohmann-json writes it (big-endian)."""
    check_bytes(len(data), "a plan file")
    check_sizes(data)
    try:
        return ubjson.loadb(data, no_bytes=True, object_pairs_hook=_object)
    except ubjson.DecoderException as error:
        raise GraphFormatError(
            f"expected a plan file, got broken UBJSON: {error.args[0]}",
            hint="is the file truncated? write it again from graph.serialize()",
        ) from None
    except (RecursionError, MemoryError, OverflowError, ArithmeticError, UnicodeError):
        raise GraphFormatError("expected a plan file, got UBJSON that cannot be real") from None


def check_bytes(size: int, what: str) -> None:
    """Refuse what is too large to be a graph."""
    if size > MAX_BYTES:
        raise too_large(what, f"{size} bytes", str(MAX_BYTES))


def check_values(text: bytes | str, what: str) -> None:
    """Refuse JSON text whose objects would take too much memory."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    values = sum(map(data.count, (b",", b"{", b"[")))
    if values > MAX_VALUES:
        raise too_large(what, f"{values} values", str(MAX_VALUES))


def too_large(what: str, size: str, limit: str) -> GraphFormatError:
    """Return the error for a file beyond a limit."""
    return GraphFormatError(
        f"expected {what} with at most {limit}, got {size}",
        hint="no graph is that large; is it the right file?",
    )


def check(document: Any, shape: type[T], path: str = "$") -> T:
    """Convert a decoded object that stands at `path` to `shape`; the error names the JSON path.

    Whoever decoded it bounded its depth.
    """
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        raise placed(str(error), path) from None


def placed(message: str, path: str = "$") -> GraphFormatError:
    """Return the error for what msgspec says about an object that stands at `path`."""
    match = _AT.match(message)
    problem, below = (match["problem"], match["path"]) if match else (message, "$")
    path += below.removeprefix("$")
    problem = _CLEARER.get(problem, problem[:1].lower() + problem[1:])
    missing = re.fullmatch(r"object missing required field `(\w+)`", problem)
    if missing:
        return GraphFormatError(f'expected a field "{missing[1]}", got none', path=path)
    unknown = re.fullmatch(r"object contains unknown field `(.*)`", problem, re.DOTALL)
    if unknown:
        return GraphFormatError(
            f'expected no field but those that are known, got "{shorten(unknown[1])}"',
            path=path,
            hint="a newer cudnn-bindgen may know it",
        )
    return GraphFormatError(problem.replace("`", ""), path=path)


def _check_depth(document: Any, what: str) -> None:
    """Refuse what would exhaust the stack of whoever walks it recursively."""
    level, depth = [document], 0
    while level:
        if depth > MAX_DEPTH:
            raise GraphFormatError(f"expected {what}, got JSON nested too deep")
        level = [
            child
            for value in level
            if isinstance(value, (dict, list))
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        depth += 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_keys(pairs)
    return dict(pairs)


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise GraphFormatError(
            f'expected each key of an object once, got "{shorten(twice)}" twice', path="$"
        )


def _broken_json(data: bytes, what: str, problem: str) -> GraphFormatError:
    match = _BYTE.match(problem)
    offset = len(data)
    if match:
        problem, offset = match["problem"], int(match["byte"])
        # msgspec counts these from 1, all others from 0.
        offset -= problem.lower() == _TRAILING
    line = data.count(b"\n", 0, offset) + 1
    column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
    return GraphFormatError(
        f"expected {what}, got broken JSON: {problem.lower()} at line {line}, column {column}",
        hint="is the file complete? write it again from repr(graph) or graph.serialize()",
    )
