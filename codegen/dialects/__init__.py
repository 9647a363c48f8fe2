"""Which dialect a file speaks, found from its content, and the way to its document."""

from __future__ import annotations

from typing import Protocol

from cudnn_bindgen.codegen.dialects import plan, refused, structure
from cudnn_bindgen.codegen.dialects.document import Document


class Dialect(Protocol):
    """What each file of this folder offers."""

    def recognise(self, data: bytes) -> bool:
        """Whether `data` looks like this dialect; cheap, and never raises."""

    def read(self, data: bytes) -> Document:
        """Decode `data`, or raise GraphFormatError."""


# In order of recognition; a new dialect is one file and one entry.
DIALECTS: tuple[Dialect, ...] = (plan, structure, refused)


def read_document(data: bytes) -> Document:
    """Decode `data` by the first dialect that recognises it.

    Raises
    ------
    GraphFormatError
        The content is no graph, a broken one, or one that cannot be bound.
    """
    dialect = next(dialect for dialect in DIALECTS if dialect.recognise(data))
    return dialect.read(data)
