"""What a user allows of a graph file, and which graph of several is meant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a graph file.

    Attributes
    ----------
    index
        Which graph of a log, counted from 1; None if the file must hold one only.
    allow_newer
        Read a structure of a version that is newer than this tool as the newest one it knows.
    strict
        Refuse what otherwise only gives a warning.
    """

    index: int | None = None
    allow_newer: bool = False
    strict: bool = False


DEFAULT = ReadOptions()
