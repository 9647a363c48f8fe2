"""Which dialect a file speaks, found from its content, and the way to its document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects import int_list, log, plan, python_plan, refused, structure
from cudnn_bindgen.codegen.read.dialects.document import Document
from cudnn_bindgen.codegen.read.options import ReadOptions

# A graph that a file holds, or why that one cannot be read.
Reading = Document | GraphFormatError


class Dialect(Protocol):
    """What each file of this folder offers."""

    NAME: str

    def recognise(self, data: bytes) -> bool:
        """Whether `data` looks like this dialect; cheap, and never raises."""

    def read(self, data: bytes, options: ReadOptions) -> Sequence[Reading]:
        """Decode the graphs of `data`, at least one, or raise GraphFormatError."""


# In order of recognition; a new dialect is one file and one entry.
DIALECTS: tuple[Dialect, ...] = (plan, python_plan, log, structure, int_list, refused)


def read_documents(data: bytes, options: ReadOptions) -> Sequence[Reading]:
    """Decode `data` by the first dialect that recognises it.

    Raises
    ------
    GraphFormatError
        The content holds no graph at all. One of several graphs that cannot be read is an element
        of the result.
    """
    dialect = next(dialect for dialect in DIALECTS if dialect.recognise(data))
    try:
        return dialect.read(data, options)
    except GraphFormatError as error:
        error.dialect = error.dialect or dialect.NAME
        raise
