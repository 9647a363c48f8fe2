"""In which order a chain's links run, which may run at once, and where inner tensors lie.

All of it from numbers: links by their place in the file, and which of them reads whose outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError as NoOrderError
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush

ALIGNMENT = 256  # bytes; what launch records prove of a workspace


class CycleError(Exception):
    """Links that wait for each other: each for the one before, the first for the last."""

    def __init__(self, links: Sequence[int]) -> None:
        super().__init__()
        self.links = links


@dataclass(frozen=True, slots=True)
class Order:
    """An order in which links can run.

    Attributes
    ----------
    links
        Old number of each, those first that nobody has to wait for.
    after
        Of each of `links`, the places of those it must wait for; not those that these wait for.
    before
        Of each of `links`, a bit for each place that runs before it, however far.
    lanes
        Of each of `links`, its share of the workspace. Links of one lane never run at once.
    """

    links: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]
    lanes: tuple[int, ...]


def find_order(needs: Sequence[set[int]]) -> Order:
    """Return an order for links of which each reads what those in its set write.

    As in the file where that is possible.

    Raises
    ------
    CycleError
        There is none.
    """
    try:
        TopologicalSorter(dict(enumerate(needs))).prepare()
    except NoOrderError as error:
        raise CycleError(error.args[1]) from None
    links = _sort(needs)
    place = {link: at for at, link in enumerate(links)}
    after: list[tuple[int, ...]] = []
    before: list[int] = []
    lanes: list[int] = []
    last: list[int] = []  # of each lane
    for at, link in enumerate(links):
        direct = sorted(place[other] for other in needs[link])
        beyond = 0
        for other in direct:
            beyond |= before[other]
        after.append(tuple(other for other in direct if not beyond >> other & 1))
        before.append(beyond | sum(1 << other for other in direct))
        lane = next((n for n, end in enumerate(last) if before[at] >> end & 1), len(last))
        last[lane : lane + 1] = [at]
        lanes.append(lane)
    return Order(links, tuple(after), tuple(before), tuple(lanes))


def _sort(needs: Sequence[set[int]]) -> tuple[int, ...]:
    missing = [len(one) for one in needs]
    readers: Mapping[int, list[int]] = {link: [] for link in range(len(needs))}
    for link, one in enumerate(needs):
        for other in one:
            readers[other].append(link)
    ready = [link for link, count in enumerate(missing) if not count]
    heapify(ready)
    links = []
    while ready:
        links.append(heappop(ready))
        for reader in readers[links[-1]]:
            missing[reader] -= 1
            if not missing[reader]:
                heappush(ready, reader)
    return tuple(links)


@dataclass(frozen=True, slots=True)
class Inner:
    """A tensor in the workspace: its bytes, the place of who writes it, those of who reads it."""

    size: int
    writer: int
    readers: tuple[int, ...]


def lay_out(tensors: Sequence[Inner], before: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the offset of each tensor, and the bytes of all.

    Two share memory only if whoever uses the one has run before the other is written. The largest
    come first, each at the lowest offset that is free for as long as it is needed.
    """
    offsets = [0] * len(tensors)
    placed: list[int] = []
    for index in sorted(range(len(tensors)), key=lambda index: (-tensors[index].size, index)):
        taken = sorted(
            (offsets[other], _rounded(tensors[other].size))
            for other in placed
            if not _are_apart(tensors[index], tensors[other], before)
        )
        offset = 0
        for start, size in taken:
            if offset + tensors[index].size <= start:
                break
            offset = max(offset, start + size)
        offsets[index] = offset
        placed.append(index)
    ends = (offset + _rounded(one.size) for offset, one in zip(offsets, tensors, strict=True))
    return tuple(offsets), max(ends, default=0)


def _are_apart(one: Inner, other: Inner, before: Sequence[int]) -> bool:
    return _is_over(one, other, before) or _is_over(other, one, before)


def _is_over(one: Inner, other: Inner, before: Sequence[int]) -> bool:
    """Whether all who use the one have run when the other is written."""
    return all(before[other.writer] >> user & 1 for user in (one.writer, *one.readers))


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
