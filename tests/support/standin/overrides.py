"""Execute-time overrides of shapes and strides, for tests: plans that take them, lists in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Declared", "Overridable", "OverrideCalls"]

_PRIME = 65521


@dataclass(frozen=True)
class Declared:
    """The geometry that an operand was built with, and what an override must leave of it."""

    dim: Sequence[int]
    stride: Sequence[int]
    fixed: Sequence[int] = ()
    """Axes whose dim must stay, as a head count must."""
    steady: Sequence[int] = ()
    """Axes whose dim must not come to 1 or leave it, as the query's length must not."""


Override = tuple[Sequence[int], Sequence[int]]
"""Dims and strides of one operand."""


@dataclass(frozen=True)
class Overridable:
    """What makes a plan take overrides; each must name one of `declared`.

    The effective geometry, overridden or declared, decides on all that the plan does: `count` (how
    many elements of each array are read and written), `digest` (a number that every output has in
    it, and every kernel parameter block), the grid, and under overrides the workspace.
    """

    declared: Mapping[int, Declared]
    sized_by: tuple[int, int] | None = None
    """Uid and axis of the dim that is the count. None: the plan's own count."""
    growth: int = 0
    """Bytes of workspace for each element under overrides. 0: the plan's own workspace."""
    count: int = field(default=1, kw_only=True)
    workspace: int = field(default=0, kw_only=True)
    """As in `plan_text`; read only by the methods below."""

    def members(self) -> dict[str, Any]:
        """Return what a plan's text says about it."""
        members: dict[str, Any] = {
            "declared": [
                [uid, list(one.dim), list(one.stride), list(one.fixed), list(one.steady)]
                for uid, one in self.declared.items()
            ],
            "growth": self.growth,
        }
        if self.sized_by is not None:
            members["sized"] = list(self.sized_by)
        return members

    def count_of(self, overrides: Mapping[int, Override]) -> int:
        """Return how many elements of each array a call reads and writes."""
        if self.sized_by is None:
            return self.count
        uid, axis = self.sized_by
        return self._effective(overrides)[uid][0][axis]

    def digest_of(self, overrides: Mapping[int, Override]) -> int:
        """Return the number that stands for all dims and strides: `expected_outputs` takes it."""
        digest = 0
        for position, (dim, stride) in enumerate(self._effective(overrides).values()):
            for axis, (extent, step) in enumerate(zip(dim, stride, strict=True)):
                digest += (position + 1) * ((2 * axis + 1) * extent + (2 * axis + 2) * step)
        return digest % _PRIME

    def workspace_of(self, overrides: Mapping[int, Override]) -> int:
        """Return the bytes of workspace that a call needs and overwrites.

        A smaller count may need more: nobody may take the plan's own size for the largest.
        """
        if not overrides or not self.growth:
            return self.workspace
        return self.growth * self.count_of(overrides) + 32 * (self.digest_of(overrides) % 5)

    def _effective(self, overrides: Mapping[int, Override]) -> dict[int, Override]:
        declared = {uid: (one.dim, one.stride) for uid, one in self.declared.items()}
        return declared | dict(overrides)


class OverrideCalls:
    """What `Standin` offers to tests of overrides."""

    cudnn: ctypes.CDLL

    def make_lists(self, lists: Sequence[Sequence[int]]) -> int:
        """Return the address of a new std::vector<std::vector<int64_t>>."""
        items = [item for one in lists for item in one]
        make = self.cudnn.standin_make_lists
        make.restype = ctypes.c_void_p
        address = make(
            (ctypes.c_int64 * len(items))(*items),
            (ctypes.c_size_t * len(lists))(*map(len, lists)),
            ctypes.c_size_t(len(lists)),
        )
        return int(address)

    def set_list_item(self, address: int, index: int, axis: int, value: int) -> None:
        place = (ctypes.c_size_t(index), ctypes.c_size_t(axis))
        self.cudnn.standin_set_list_item(ctypes.c_void_p(address), *place, ctypes.c_int64(value))

    def free_lists(self, address: int) -> None:
        self.cudnn.standin_free_lists(ctypes.c_void_p(address))

    @contextmanager
    def lists(self, lists: Sequence[Sequence[int]]) -> Iterator[int]:
        """Keep lists for the block."""
        address = self.make_lists(lists)
        try:
            yield address
        finally:
            self.free_lists(address)
