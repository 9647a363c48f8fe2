"""Decoding shared by the dialects: bytes → Python objects → checked documents.

Every failure becomes a GraphFormatError; nothing a file holds may raise anything else.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
import ubjson

from cudnn_bindgen.codegen.dialects.ubjson_scan import check_sizes
from cudnn_bindgen.codegen.errors import GraphFormatError

T = TypeVar("T")

_AT = re.compile(r"^(?P<problem>.*) - at `(?P<path>[^`]*)`$", re.DOTALL)


def decode_json(data: bytes) -> Any:
    """Decode JSON text."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GraphFormatError(f"expected a graph file, got broken JSON: {error}") from None
    except RecursionError:
        raise GraphFormatError("expected a graph file, got JSON nested too deep") from None


def decode_ubjson(data: bytes) -> Any:
    """Decode UBJSON as nlohmann-json writes it (big-endian)."""
    check_sizes(data)
    try:
        return ubjson.loadb(data, no_bytes=True)
    except ubjson.DecoderException as error:
        raise GraphFormatError(
            f"expected a plan file, got broken UBJSON: {error.args[0]}",
            hint="is the file truncated? write it again from graph.serialize()",
        ) from None
    except (RecursionError, MemoryError, OverflowError, ValueError, ArithmeticError):
        raise GraphFormatError("expected a plan file, got UBJSON that cannot be real") from None


def check(document: Any, shape: type[T]) -> T:
    """Convert a decoded object to `shape`; the error names the JSON path."""
    try:
        return msgspec.convert(document, shape, dec_hook=_number)
    except msgspec.ValidationError as error:
        raise _placed(str(error)) from None
    except RecursionError:
        raise GraphFormatError("expected a graph file, got a document nested too deep") from None


def located(document: Any, shape: type[T], path: str) -> T:
    """`check` a part of a document that stands at `path`."""
    try:
        return check(document, shape)
    except GraphFormatError as error:
        error.path = path + error.path.removeprefix("$")
        raise


def _number(expected: type, value: Any) -> Any:
    # UBJSON has a high-precision number, which py-ubjson gives as a Decimal.
    if isinstance(value, Decimal) and expected is float:
        return float(value)
    raise msgspec.ValidationError(f"Expected `{expected.__name__}`, got `{type(value).__name__}`")


def _placed(message: str) -> GraphFormatError:
    match = _AT.match(message)
    problem, path = (match["problem"], match["path"]) if match else (message, "$")
    problem = problem[:1].lower() + problem[1:]
    missing = re.fullmatch(r"object missing required field `(\w+)`", problem)
    if missing:
        return GraphFormatError(f'expected a field "{missing[1]}", got none', path=path)
    return GraphFormatError(problem.replace("`", ""), path=path)
