"""Mutations that know only bytes: of any file, broken or not, and of the lengths inside UBJSON."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

_TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"null", b"true", b"\0", b"\xff", b"\n"),
    *(b"[$Z#l", b"[$T#i\x7f", b"[$U#", b"{$i#", b"[#", b"{#L", b"[$[#", b"[$C#i\x05", b"[$S#i\x02"),
    *(b"N", b"Z", b"S", b"H", b"L\x7f" + b"\xff" * 7, b"l\x7f\xff\xff\xff", b"I\xff\xff", b"i\x80"),
    *(b'"json_version":"1.0",', b'{"context":{}}', b"SU\x04null", b"\\ud800", b"\xed\xa0\x80"),
    *(b"\xef\xbb\xbf", b"1e400", b"-1", b"18446744073709551616", b"CUDNN_FE_PYPLAN\0"),
    *(b"HU\x041e99", b"HU\x04sNaN", b"D\x7f\xf0" + b"\0" * 6, b"D\xff" * 8),
)
_LENGTH = re.compile(rb"[SH#$iUIlL{\[]", re.DOTALL)
_DIGITS = re.compile(rb"-?\d+(\.\d+)?")
_WHOLE = (b"", b"\xef\xbb\xbf", b" \n", b"\0", b"\xff\xfe", b"INFO: ", b"x")


def _flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(_TOKENS) if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 9))


def _overwrite(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    token = rng.choice(_TOKENS)
    data[at : at + len(token)] = token


def _cut(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, 30, 300))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.choice((1, 2, 8, 100))] * rng.choice((1, 2, 50))


def _length(data: bytearray, rng: random.Random) -> None:
    """Put another number where a length or an integer of UBJSON may stand."""
    found = [match.start() for match in _LENGTH.finditer(data, 0, 20_000)]
    if found:
        at = rng.choice(found) + 1
        code = rng.choice((">b", ">B", ">h", ">i", ">q"))
        limit = 8 * struct.calcsize(code) - 1
        number = rng.choice((0, 1, 2, 100, (1 << limit) - 1, len(data), len(data) - at))
        data[at : at + struct.calcsize(code)] = struct.pack(code, number & ((1 << limit) - 1))


def _claim(data: bytearray, rng: random.Random) -> None:
    """Let arrays of UBJSON, side by side or in each other, claim items of few bytes or none."""
    found = [match.end() for match in re.finditer(rb"\[", data[:20_000])]
    if found:
        at = rng.choice(found)
        claim = b"[$" + rng.choice((b"Z", b"T", b"F", b"N", b"i", b"[", b"{", b"S")) + b"#l"
        count = rng.choice((0, 1, 100, len(data) - at, 2**31 - 1))
        data[at:at] = (claim + struct.pack(">i", count)) * rng.choice((1, 2, 2000))


def _number(data: bytearray, rng: random.Random) -> None:
    """Put another number where digits stand."""
    start = rng.randrange(len(data))
    match = _DIGITS.search(data, start)
    if match:
        data[match.start() : match.end()] = rng.choice(
            (
                b"-1",
                b"0",
                b"1",
                b"4294967296",
                b"9223372036854775808",
                b"1e400",
                b"0.5",
                b"1E3",
                b"",
            )
        )


_EDITS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(
        _flip,
        _set,
        _truncate,
        _insert,
        _insert,
        _overwrite,
        _cut,
        _repeat,
        _length,
        _length,
        _number,
        _claim,
    ),
)


def mutate_bytes(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Return `data` with a few bytes changed, or spliced with `other`."""
    if rng.random() < 0.1 and data and other:
        return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]
    if rng.random() < 0.05:
        return rng.choice(_WHOLE) + data + rng.choice(_WHOLE)
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not result:
            break
        rng.choice(_EDITS)(result, rng)
    return bytes(result)
