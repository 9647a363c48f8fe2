"""Which tensors share a byte, against a model that collects the bytes of each."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.layouts import LEAST, MOST, Layout, elements, load_probe, packed, permuted

Region = tuple[int, Layout, int]
"""Address, layout, bits of an element."""

BASE = 0x7F00_0000_0000


@pytest.fixture(scope="module")
def probe(builds: Any) -> ModuleType:
    return load_probe(builds)


def bytes_of(region: Region) -> set[int]:
    address, layout, bits = region
    first = [8 * address + offset * bits for _, offset in elements(layout)]
    return {byte for bit in first for byte in range(bit // 8, (bit + bits - 1) // 8 + 1)}


def axes_of(region: Region) -> list[tuple[int, int]]:
    return sorted(axis for axis in zip(*region[1], strict=True) if axis[0] != 1)


def model(a: Region, b: Region) -> str:
    if not bytes_of(a) & bytes_of(b):
        return "apart"
    is_same = a[0] == b[0] and a[2] == b[2] and axes_of(a) == axes_of(b)
    return "same" if is_same else "shared"


def has_ragged_bits(region: Region) -> bool:
    """Whether elements of less than a byte begin at different bits, further apart than 1."""
    _, layout, bits = region
    return any(
        step * bits % 8 and abs(step) != 1 for size, step in zip(*layout, strict=True) if size > 1
    )


def slice_of(layout: Layout, axis: int, first: int, last: int, step: int = 1) -> tuple[int, Layout]:
    """Return the offset and the layout of a slice."""
    dim, stride = list(layout[0]), list(layout[1])
    offset = first * stride[axis]
    dim[axis] = len(range(first, last, step))
    stride[axis] *= step
    return offset, (dim, stride)


def at(offset: int, layout: Layout, bits: int = 16) -> Region:
    return BASE + offset * bits // 8, layout, bits


QKV = packed(64, 4096, 3, 32, 128)
ROWS = packed(4096, 1000)
KV = packed(500, 2, 8, 16, 64)

CASES: dict[str, tuple[Region, Region, str]] = {
    "itself": (at(0, QKV), at(0, QKV), "same"),
    "itself in another order": (at(0, packed(4, 8)), at(0, permuted(packed(4, 8), 1, 0)), "same"),
    "itself with axes of one": (at(0, packed(4, 8)), at(0, ((4, 1, 8), (8, MOST, 1))), "same"),
    "itself in another shape": (at(0, packed(4, 8)), at(0, packed(32)), "shared"),
    "itself as bytes": (at(0, packed(4), 16), at(0, packed(4), 8), "shared"),
    "itself broadcast": (at(0, packed(4, 8)), at(0, ((4, 8), (0, 1))), "shared"),
    "one after the other": (at(0, packed(4, 8)), at(32, packed(4, 8)), "apart"),
    "last and first": (at(0, packed(4, 8)), at(31, packed(4, 8)), "shared"),
    "last byte of an element": ((BASE, packed(4), 32), (BASE + 15, packed(4), 8), "shared"),
    "byte after an element": ((BASE, packed(4), 32), (BASE + 16, packed(4), 8), "apart"),
    "scalars": (at(0, ((), ())), at(0, ((), ())), "same"),
    "scalars apart": (at(0, ((), ())), at(1, ((), ())), "apart"),
    "empty": (at(0, packed(4, 0)), at(0, packed(4, 0)), "apart"),
    "empty inside": (at(5, packed(4, 0)), at(0, packed(4, 8)), "apart"),
    "empty with absurd strides": (at(5, ((0, 9), (1, MOST))), at(0, packed(4, 8)), "apart"),
    "q and k": (at(*slice_of(QKV, 2, 0, 1)), at(*slice_of(QKV, 2, 1, 2)), "apart"),
    "q and v": (at(*slice_of(QKV, 2, 0, 1)), at(*slice_of(QKV, 2, 2, 3)), "apart"),
    "q and k with v": (at(*slice_of(QKV, 2, 0, 1)), at(*slice_of(QKV, 2, 1, 3)), "apart"),
    "k and k with v": (at(*slice_of(QKV, 2, 1, 2)), at(*slice_of(QKV, 2, 1, 3)), "shared"),
    "q and k, one element too far": (
        at(*slice_of(QKV, 2, 0, 1)),
        at(*slice_of(packed(64, 4096, 3, 4096), 3, 4095, 4097)),
        "shared",
    ),
    "heads": (at(*slice_of(QKV, 3, 0, 8)), at(*slice_of(QKV, 3, 8, 32)), "apart"),
    "every other head": (at(*slice_of(QKV, 3, 0, 32, 2)), at(*slice_of(QKV, 3, 1, 32, 2)), "apart"),
    "heads that both have": (
        at(*slice_of(QKV, 3, 0, 32, 2)),
        at(*slice_of(QKV, 3, 1, 32, 3)),
        "shared",
    ),
    "halves of rows": (at(*slice_of(ROWS, 1, 0, 500)), at(*slice_of(ROWS, 1, 500, 1000)), "apart"),
    "halves and one column": (
        at(*slice_of(ROWS, 1, 0, 501)),
        at(*slice_of(ROWS, 1, 500, 1000)),
        "shared",
    ),
    "K and V of a cache": (at(*slice_of(KV, 1, 0, 1)), at(*slice_of(KV, 1, 1, 2)), "apart"),
    "K and all of a cache": (at(*slice_of(KV, 1, 0, 1)), at(0, KV), "shared"),
    "backwards": (at(31, ((32,), (-1,))), at(0, packed(32)), "shared"),
    "backwards, below": (at(31, ((32,), (-1,))), at(32, packed(32)), "apart"),
    "backwards, odd and even": (at(30, ((16,), (-2,))), at(1, ((16,), (2,))), "apart"),
    "FP4 rows": (at(0, packed(4, 6), 4), at(24, packed(4, 6), 4), "apart"),
    "FP4 in one byte": (at(0, packed(5), 4), at(4, packed(5), 4), "shared"),
    "FP4 columns": (at(0, ((9, 4), (8, 1)), 4), at(4, ((9, 4), (8, 1)), 4), "apart"),
    "FP4 columns, one more": (at(0, ((9, 5), (8, 1)), 4), at(4, ((9, 4), (8, 1)), 4), "shared"),
    "FP4 rows that begin inside a byte": (
        at(0, ((4, 2), (5, 1)), 4),
        (BASE + 3, packed(1), 8),
        "shared",
    ),
    "between groups": (at(0, ((2, 3), (8, 2)), 8), at(6, packed(1), 8), "apart"),
    "larger than memory": (at(0, ((2, 2), (1, 2**60))), at(9, packed(2)), "shared"),
    "no int64 holds it": (at(0, ((MOST, 2), (LEAST, 1))), at(9, packed(2)), "shared"),
    "negative extent": (at(0, ((-5,), (1,))), at(9, packed(2)), "shared"),
    "65 axes": (at(0, packed(*[1] * 65)), at(9, packed(2)), "shared"),
    "top of memory": ((2**64 - 2, packed(1), 16), (0, packed(1), 16), "apart"),
    "beyond the top of memory": ((2**64 - 2, packed(9), 16), (2**64 - 1, packed(1), 8), "shared"),
    "below 0": ((2, ((9,), (-1,)), 16), (0, packed(1), 8), "shared"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_named_regions(probe: ModuleType, case: tuple[Region, Region, str]) -> None:
    a, b, expected = case
    assert probe.overlap(a, b) == expected
    assert probe.overlap(b, a) == expected


def test_a_search_that_takes_too_long_says_shared(probe: ModuleType) -> None:
    """No step of one is near a step of another: neither order nor multiples help."""
    steps = [1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081]
    a = at(0, ([90] * 5, [2 * step for step in steps]), 8)
    b = at(1, ([90] * 5, [2 * (step + 2) for step in steps]), 8)
    assert probe.overlap(a, b) == "shared"  # though one has even addresses only, the other odd


AXES = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 14)), max_size=4)
ADDRESSES = st.integers(64, 110)


@st.composite
def regions(draw: st.DrawFn) -> Region:
    axes = draw(AXES)
    layout = [size for size, _ in axes], [step for _, step in axes]
    return 1000 + draw(ADDRESSES), layout, draw(st.sampled_from([4, 8, 8, 16, 32]))


@given(regions(), regions())
@example((1000, ((4, 3), (2, 1)), 4), (1000, ((4, 3), (2, 1)), 4))
def test_regions_are_the_models(probe: ModuleType, a: Region, b: Region) -> None:
    expected = model(a, b)
    found = probe.overlap(a, b)
    if expected == "apart" and (has_ragged_bits(a) or has_ragged_bits(b)):
        assert found in ("apart", "shared")
    else:
        assert found == expected
    assert probe.overlap(b, a) == found
    assert probe.overlap(a, a) == ("same" if bytes_of(a) else "apart")
    if bytes_of(a):
        assert probe.span(a) == (min(bytes_of(a)), max(bytes_of(a)))


@st.composite
def views(draw: st.DrawFn, buffer: Layout) -> tuple[int, Layout]:
    """A slice of each axis, in any order, some of them backwards."""
    offset, layout = 0, buffer
    for axis, size in enumerate(buffer[0]):
        first = draw(st.integers(0, size - 1))
        last = draw(st.integers(first + 1, size))
        more, layout = slice_of(layout, axis, first, last, draw(st.sampled_from([1, 1, 2, 3])))
        offset += more
        if draw(st.booleans()):
            dim, stride = list(layout[0]), list(layout[1])
            offset += (dim[axis] - 1) * stride[axis]
            stride[axis] = -stride[axis]
            layout = dim, stride
    order = draw(st.permutations(range(len(buffer[0]))))
    return offset, permuted(layout, *order)


@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.sampled_from([8, 16]))
def test_views_of_one_buffer_are_the_models(
    probe: ModuleType, data: st.DataObject, dim: list[int], bits: int
) -> None:
    a, b = (at(*data.draw(views(packed(*dim))), bits) for _ in range(2))
    assert probe.overlap(a, b) == model(a, b)


ANY = st.integers(LEAST, MOST) | st.integers(-3, 9) | st.sampled_from([2**31, 2**57, 2**62])
WIDTHS = st.sampled_from([1, 4, 8, 64]) | st.integers(LEAST, MOST)


@st.composite
def any_regions(draw: st.DrawFn) -> Region:
    axes = draw(st.lists(st.tuples(ANY, ANY), max_size=4))
    layout = [size for size, _ in axes], [step for _, step in axes]
    return draw(st.integers(0, 2**64 - 1)), layout, draw(WIDTHS)


@given(any_regions(), any_regions(), st.booleans())
def test_no_number_is_too_large(
    probe: ModuleType, a: Region, b: Region, starts_alike: bool
) -> None:
    if starts_alike:
        b = a[0], b[1], b[2]
    found = probe.overlap(a, b)
    assert found == probe.overlap(b, a)
    if any(0 in sizes for sizes in (a[1][0], b[1][0])):
        assert found == "apart"
    elif starts_alike:
        assert found != "apart"
