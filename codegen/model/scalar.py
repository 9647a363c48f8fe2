"""Pass-by-values: from the forms a file has for them to exact bits."""

from __future__ import annotations

import math
import re
import struct
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.data_types import BITS, INTEGERS, SCALAR_TYPES
from cudnn_bindgen.codegen.model.graph import Scalar
from cudnn_bindgen.codegen.text import shorten

_FLOATS = ("HALF", "FLOAT", "BFLOAT16")
_LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_NAMED = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


class ScalarDocument(msgspec.Struct, frozen=True):
    """A pass-by-value: hex bits for float types, a number for doubles and integers.

    Null stands for a double that JSON has no number for.
    """

    index: Annotated[int, Meta(ge=0, le=5)]
    value: str | int | float | None


def read_scalar(document: ScalarDocument, path: str) -> Scalar:
    """Read one ``{index, value}``.

    FLOAT is a hex string, big end first; HALF and BFLOAT16 are written as the FLOAT that has their
    value (cudnn_frontend_utils.h, adl_serializer).
    """
    data_type, value = SCALAR_TYPES[document.index], document.value
    if value is None:
        raise GraphFormatError(
            f"expected the value of a {data_type}, got null, which stands for NaN and infinities",
            path=f"{path}.value",
            hint="JSON has none of them: pass the scalar as a FLOAT, or write graph.serialize()",
        )
    problem = _problem(data_type, value)
    if problem:
        raise GraphFormatError(problem, path=f"{path}.value")
    if data_type in _FLOATS:
        return Scalar(data_type, _narrow(int(str(value), 16), data_type))
    if data_type == "DOUBLE":
        return Scalar(data_type, struct.pack("<d", value))
    return Scalar(data_type, int(value).to_bytes(BITS[data_type] // 8, "little", signed=True))


def read_constant(value: str | int | float | None, data_type: str, path: str) -> Scalar:
    """Read a constant of compile time as cuDNN's text of a plan has it.

    It is a number, or the name of one that JSON has none for.
    """
    number = _NAMED.get(value) if isinstance(value, str) else value
    if data_type in SCALAR_TYPES and number is not None:
        with suppress(OverflowError, ValueError, struct.error):
            return _pack(number, data_type)
    expected = f"a {data_type}" if data_type in SCALAR_TYPES else "a type of scalars"
    raise GraphFormatError(
        f"expected a number that {expected} can hold, got {shorten(repr(value))}",
        path=f"{path}.constValue",
    )


def _pack(number: float, data_type: str) -> Scalar:
    """Return a scalar of a number; raise OverflowError or ValueError if the type has none."""
    if data_type in INTEGERS:
        if number != int(number):
            raise ValueError
        data = int(number).to_bytes(BITS[data_type] // 8, "little", signed=True)
    elif data_type == "DOUBLE":
        data = struct.pack("<d", number)
    else:
        bits = int.from_bytes(struct.pack("<f", number), "little")
        data = _narrow(bits, data_type)
        if _widen(data, data_type) != bits:
            raise ValueError
    return Scalar(data_type, data)


def write_bits(value: Scalar) -> tuple[str, str]:
    """Return a value with its type, as its bits in hex, big end first: no number is lost in it."""
    return value.data_type, value.data[::-1].hex().upper()


def read_bits(written: tuple[str, str], path: str) -> Scalar:
    """Read what `write_bits` wrote."""
    data_type, digits = written
    size = len(_pack(0, data_type).data) if data_type in SCALAR_TYPES else 0
    if size == 0 or not re.fullmatch(f"[0-9A-F]{{{2 * size}}}", digits):
        raise GraphFormatError(
            f"expected a scalar's type and bits, got {shorten(repr(written))}", path=path
        )
    return Scalar(data_type, bytes.fromhex(digits)[::-1])


def read_float(value: str | float, path: str) -> float:
    """Read a FLOAT outside of a scalar: its bits as a hex string, or a plain number."""
    if isinstance(value, float):
        if math.isfinite(value) and abs(value) > _LARGEST:
            raise GraphFormatError(f"expected a FLOAT, got {value!r}", path=path)
        return value
    problem = _problem("FLOAT", value)
    if problem:
        raise GraphFormatError(problem, path=path)
    return float(struct.unpack("<f", int(value, 16).to_bytes(4, "little"))[0])


def _problem(data_type: str, value: str | int | float) -> str:
    got = shorten(repr(value))
    if data_type in _FLOATS:
        held = "" if data_type == "FLOAT" else f" that a {data_type} can hold"
        expected = f"expected 8 hex digits, the bits of a FLOAT{held}, got {got}"
        if not isinstance(value, str) or len(value) != 8:
            return expected
        if not set(value) <= set("0123456789abcdefABCDEF"):
            return expected
        bits = int(value, 16)
        return "" if _widen(_narrow(bits, data_type), data_type) == bits else expected
    if data_type == "DOUBLE":
        # A double of any size is written with a point or an exponent; an int is at most uint64.
        fits = isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 64)
        return "" if fits else f"expected a number, got {got}"
    limit = 1 << (BITS[data_type] - 1)
    if isinstance(value, int) and -limit <= value < limit:
        return ""
    return f"expected an {data_type}, got {got}"


def _narrow(bits: int, data_type: str) -> bytes:
    """Return the bytes of the scalar that has the value of the FLOAT with these bits."""
    if data_type == "FLOAT":
        return bits.to_bytes(4, "little")
    if data_type == "BFLOAT16":
        return (bits >> 16).to_bytes(2, "little")
    value = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    if value != value:  # NaN: keep sign and payload
        return (bits >> 16 & 0x8000 | 0x7C00 | bits >> 13 & 0x3FF).to_bytes(2, "little")
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", float("inf"))


def _widen(data: bytes, data_type: str) -> int:
    """Return the bits of the FLOAT that has a scalar's value."""
    bits = int.from_bytes(data, "little")
    if data_type == "FLOAT":
        return bits
    if data_type == "BFLOAT16":
        return bits << 16
    value = struct.unpack("<e", data)[0]
    if value != value:
        return (bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x3FF) << 13
    return int.from_bytes(struct.pack("<f", value), "little")
