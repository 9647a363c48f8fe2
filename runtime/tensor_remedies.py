"""What to do to a tensor of another layout, in the words of PyTorch: found by trying."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

Sizes = tuple[int, ...]
_View = tuple[Sizes, Sizes]

# More axes than this and the pairs to try are too many to be of help.
_MOST_AXES = 6


def find_remedy(name: str, got: _View, matches: Callable[[Sizes, Sizes], bool]) -> str:
    """Return code that makes a fitting tensor of `name`, or "" if nothing simple does.

    Parameters
    ----------
    name
        The tensor's variable.
    got
        Its dims and strides.
    matches
        Whether a tensor of these dims and strides would be taken.
    """
    if len(got[0]) <= _MOST_AXES and 0 not in got[0]:
        for code, (dim, stride) in _candidates(got):
            if matches(dim, stride):
                return f"{name}{code}"
    return ""


def _candidates(view: _View) -> Iterator[tuple[str, _View]]:
    """Yield code and what it gives, the cheapest first: views, then copies."""
    rank = len(view[0])
    pairs = list(combinations(range(rank), 2))
    # The last two axes are what is transposed most often.
    pairs.sort(key=lambda pair: pair != (rank - 2, rank - 1))
    for pair in pairs:
        yield _transpose(pair, rank), _swap(view, pair)
    yield ".contiguous()", _contiguous(view)
    if rank == 4:
        yield (
            ".contiguous(memory_format=torch.channels_last)",
            _permute(_contiguous(_permute(view, (0, 2, 3, 1))), (0, 3, 1, 2)),
        )
    for pair in pairs:
        copied = _contiguous(_swap(view, pair))
        code = f"{_transpose(pair, rank)}.contiguous()"
        yield code, copied
        yield f"{code}{_transpose(pair, rank)}", _swap(copied, pair)


def _transpose(pair: tuple[int, int], rank: int) -> str:
    if rank == 2:
        return ".t()"
    return ".mT" if pair == (rank - 2, rank - 1) else f".transpose{pair}"


def _swap(view: _View, pair: tuple[int, int]) -> _View:
    order = list(range(len(view[0])))
    order[pair[0]], order[pair[1]] = pair[1], pair[0]
    return _permute(view, tuple(order))


def _permute(view: _View, order: Sizes) -> _View:
    dim, stride = view
    return tuple(dim[axis] for axis in order), tuple(stride[axis] for axis in order)


def _contiguous(view: _View) -> _View:
    strides = []
    following = 1
    for extent in reversed(view[0]):
        strides.append(following)
        following *= extent
    return view[0], tuple(reversed(strides))
