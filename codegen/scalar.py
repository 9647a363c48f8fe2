"""Pass-by-values: from the forms a file has for them to exact bits."""

from __future__ import annotations

import struct

from cudnn_bindgen.codegen.dialects.document import ScalarDocument
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.graph import SCALAR_TYPES, Scalar
from cudnn_bindgen.codegen.text import shorten

_HEX_DIGITS = {"HALF": 4, "FLOAT": 8, "BFLOAT16": 4}
_INT_BYTES = {"INT64": 8, "INT32": 4}


def read_scalar(document: ScalarDocument, path: str) -> Scalar:
    """Read one ``{index, value}``; half, float and bfloat16 are hex bit strings, big end first."""
    data_type, value = SCALAR_TYPES[document.index], document.value
    problem = _problem(data_type, value)
    if problem:
        raise GraphFormatError(problem, path=f"{path}.value")
    if data_type in _HEX_DIGITS:
        return Scalar(data_type, bytes.fromhex(str(value))[::-1])
    if data_type == "DOUBLE":
        return Scalar(data_type, struct.pack("<d", value))
    return Scalar(data_type, int(value).to_bytes(_INT_BYTES[data_type], "little", signed=True))


def _problem(data_type: str, value: str | int | float) -> str:
    got = shorten(repr(value))
    if data_type in _HEX_DIGITS:
        digits = _HEX_DIGITS[data_type]
        expected = f"expected {digits} hex digits, the bits of a {data_type}, got {got}"
        if not isinstance(value, str) or len(value) != digits:
            return expected
        return "" if set(value) <= set("0123456789abcdefABCDEF") else expected
    if data_type == "DOUBLE":
        # A double of any size is written with a point or an exponent; an int is at most uint64.
        fits = isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 64)
        return "" if fits else f"expected a number, got {got}"
    limit = 1 << (8 * _INT_BYTES[data_type] - 1)
    if isinstance(value, int) and -limit <= value < limit:
        return ""
    return f"expected an {data_type}, got {got}"
