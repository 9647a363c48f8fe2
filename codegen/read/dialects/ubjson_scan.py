"""A look over UBJSON before it is decoded: sizes that the file can hold, bounded depth.

py-ubjson allocates what a count says before it reads the items; a file of 20 bytes may say 2**31.
It also makes an object of each value, which takes up to 50 bytes for one byte of file.
"""

from __future__ import annotations

import re

from cudnn_bindgen.codegen.errors import GraphFormatError

MAX_DEPTH = 100
# The largest real plans have 400.
MAX_VALUES = 200_000

# Bytes after the marker of a value without a length (UBJSON draft 12). Not among them is the no-op:
# nobody writes it, and a file may have millions.
_FIXED = {
    **dict.fromkeys(b"ZTF", 0),
    **dict.fromkeys(b"iUC", 1),
    **dict.fromkeys(b"I", 2),
    **dict.fromkeys(b"ld", 4),
    **dict.fromkeys(b"LD", 8),
}
_LENGTHS = {ord("i"): 1, ord("U"): 1, ord("I"): 2, ord("l"): 4, ord("L"): 8}
_ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END = b"[]{}"
_TYPE, _COUNT = b"$#"
_STRING, _NUMBER = b"SH"
# What nlohmann-json writes as a number in text: an integer beyond int64.
_INTEGER = re.compile(rb"-?[0-9]{1,20}")


def check_sizes(data: bytes) -> None:
    """Raise GraphFormatError unless every length and count fits into what is left of `data`."""
    _Scanner(data).scan()


class _Container:
    """An array or object being read: how many items are left, if it says, and their type."""

    __slots__ = ("is_object", "item_type", "left")

    def __init__(self, is_object: bool, left: int | None, item_type: int | None) -> None:
        self.is_object = is_object
        self.left = left
        self.item_type = item_type


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values = 0
        self._open: list[_Container] = []

    def scan(self) -> None:
        self._value(self._byte())
        while self._open:
            container = self._open[-1]
            if container.left == 0 or (container.left is None and self._ends(container)):
                self._open.pop()
                continue
            if container.left is not None:
                container.left -= 1
            if container.is_object:
                self._skip(self._length())
            self._value(self._byte() if container.item_type is None else container.item_type)

    def _value(self, marker: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._error(f"at most {MAX_VALUES} values", self._at)
        if marker in _FIXED:
            self._skip(_FIXED[marker])
        elif marker == _STRING:
            self._skip(self._length())
        elif marker == _NUMBER:
            self._number()
        elif marker in (_ARRAY, _OBJECT):
            self._begin(is_object=marker == _OBJECT)
        else:
            raise self._error(f"a marker, got {bytes([marker])!r}", self._at - 1)

    def _number(self) -> None:
        length = self._length()
        start = self._at
        self._skip(length)
        # Any other would become a Decimal that no float can hold: sNaN, 1e999.
        if not _INTEGER.fullmatch(self._data, start, self._at):
            raise self._error("an integer", start)

    def _begin(self, is_object: bool) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise self._error(f"at most {MAX_DEPTH} levels", self._at)
        item_type = left = None
        if self._peek() == _TYPE:
            self._skip(1)
            item_type = self._byte()
            if _FIXED.get(item_type) == 0:
                # Any number of items in no bytes; no writer of graphs has such a list.
                raise self._error("a type with a payload", self._at - 1)
            if self._peek() != _COUNT:
                raise self._error("a count after a type", self._at)
        if self._peek() == _COUNT:
            self._skip(1)
            left = self._length()
            if left > len(self._data) - self._at:
                raise self._error(f"no more items than bytes, got {left}", self._at)
        self._open.append(_Container(is_object, left, item_type))

    def _ends(self, container: _Container) -> bool:
        if self._peek() != (_OBJECT_END if container.is_object else _ARRAY_END):
            return False
        self._skip(1)
        return True

    def _length(self) -> int:
        marker = self._byte()
        if marker not in _LENGTHS:
            raise self._error(f"the type of a length, got {bytes([marker])!r}", self._at - 1)
        start = self._at
        self._skip(_LENGTHS[marker])
        signed = marker != ord("U")
        length = int.from_bytes(self._data[start : self._at], "big", signed=signed)
        if length < 0:
            raise self._error(f"a length, got {length}", start)
        return length

    def _skip(self, size: int) -> None:
        if size > len(self._data) - self._at:
            raise self._error(f"{size} more bytes, got {len(self._data) - self._at}", self._at)
        self._at += size

    def _byte(self) -> int:
        self._skip(1)
        return self._data[self._at - 1]

    def _peek(self) -> int | None:
        return self._data[self._at] if self._at < len(self._data) else None

    def _error(self, expected: str, at: int) -> GraphFormatError:
        return GraphFormatError(
            f"expected a plan file, got broken UBJSON: expected {expected} at byte {at}",
            hint="is the file truncated? write it again from graph.serialize()",
        )
