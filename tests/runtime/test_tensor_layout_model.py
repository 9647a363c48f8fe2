"""Which tensors lie as declared, against a model that looks at where each element is."""

from __future__ import annotations

import math
from collections import Counter
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.layouts import LEAST, MOST, Layout, elements, load_probe

Axis = tuple[int, int]
"""Extent and stride."""


@pytest.fixture(scope="module")
def probe(builds: Any) -> ModuleType:
    return load_probe(builds)


def axes_of(layout: Layout) -> list[Axis]:
    return [axis for axis in zip(*layout, strict=True) if axis[0] != 1]


def layout_of(axes: list[Axis]) -> Layout:
    return [size for size, _ in axes], [step for _, step in axes]


def places(axes: list[Axis]) -> dict[int, tuple[int, ...]] | None:
    """Return coordinates by offset; None if two elements share a place."""
    found = [(offset, at) for at, offset in elements(layout_of(axes))]
    return dict(found) if len(dict(found)) == len(found) else None


def lies_as(declared: list[Axis], tensor: list[Axis]) -> bool:
    """Whether both hold the same elements, and no axis of one cuts across axes of the other."""
    broadcast = [Counter(axis for axis in axes if axis[1] == 0) for axes in (declared, tensor)]
    if broadcast[0] != broadcast[1]:
        return False
    here = places([axis for axis in declared if axis[1]])
    there = places([axis for axis in tensor if axis[1]])
    if here is None or there is None or here.keys() != there.keys():
        return False
    offsets = {at: offset for offset, at in there.items()}
    moves = set()  # (declared axis, tensor axis): a step along the latter moves along the former
    for at, offset in offsets.items():
        for axis in range(len(at)):
            to = offsets.get((*at[:axis], at[axis] + 1, *at[axis + 1 :]))
            if to is not None:
                moves |= {
                    (moved, axis)
                    for moved, (a, b) in enumerate(zip(here[offset], here[to], strict=True))
                    if a != b
                }
    declared_uses = Counter(moved for moved, _ in moves)
    tensor_uses = Counter(axis for _, axis in moves)
    return all(declared_uses[moved] == 1 or tensor_uses[axis] == 1 for moved, axis in moves)


def reach(axes: list[Axis]) -> int:
    return sum((size - 1) * step for size, step in axes)


def is_nested(axes: list[Axis]) -> bool:
    """Whether each axis steps over all that is further in."""
    inner = sorted((axis for axis in axes if axis[1]), key=lambda axis: axis[1])
    return all(inner[at][1] > reach(inner[:at]) for at in range(len(inner)))


def lies_as_free(axes: list[Axis], free: Axis, tensor: list[Axis]) -> bool:
    """Whether the tensor is `axes` and any number of tokens or pages."""
    if lies_as(axes, tensor):
        return True
    strides = [free[1]] if free[0] > 1 else range(reach(axes) + 1, reach(tensor) + 1)
    counts = range(2, math.prod(size for size, _ in tensor) + 1)
    return any(
        is_nested([*axes, (count, stride)]) and lies_as([*axes, (count, stride)], tensor)
        for count in counts
        if count * math.prod(size for size, _ in axes) == math.prod(size for size, _ in tensor)
        for stride in strides
    )


def model(kind: str, free: int, declared: Layout, tensor: Layout, pack: int) -> str:
    wanted, given_axes = axes_of(declared), axes_of(tensor)
    if 0 in declared[0] or 0 in tensor[0]:
        return "same" if 0 in declared[0] and 0 in tensor[0] else "other"
    if pack > 1:
        packs = [index for index, (_, step) in enumerate(given_axes) if step == 1]
        given_axes = [(size, step * pack) for size, step in given_axes]
        if packs:
            given_axes[packs[-1]] = (given_axes[packs[-1]][0] * pack, 1)
        else:
            given_axes.append((pack, 1))
    if wanted == given_axes:
        return "same"
    if kind in ("plain", "swapped"):
        order = list(zip(*declared, strict=True))
        if kind == "swapped":
            order[-2:] = order[-2:][::-1]
        order = [axis for axis in order if axis[0] != 1]
        if order == given_axes:
            return "same"
        if [size for size, _ in order] == [size for size, _ in given_axes]:
            return "other order"
        matches = lies_as(wanted, given_axes)
    elif kind == "dense":
        lie = places(given_axes)
        matches = lie is not None and sorted(lie) == [*range(len(lie))]
        matches = matches and len(lie or ()) >= math.prod(declared[0])
    else:
        left_out = {free, 0} if kind == "ragged" else {free}
        all_axes = [*zip(*declared, strict=True)]
        fixed = [axis for index, axis in enumerate(all_axes) if index not in left_out]
        matches = lies_as_free([axis for axis in fixed if axis[0] != 1], all_axes[free], given_axes)
    return "same" if matches else "other"


@st.composite
def declarations(draw: st.DrawFn, pack: int) -> list[Axis]:
    """Axes in any order of memory, packed, padded or broadcast."""
    running, found = 1, []
    for index in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from([1, 2, 2, 3, 4, 6]))
        if index == 0 and pack > 1:
            size *= pack
        padding = draw(st.sampled_from([0, 0, 0, 1, 2, running])) * pack
        stride = running + (padding if index else 0)
        if draw(st.integers(0, 12)) == 0:
            found.append((min(size, 3), 0))
            continue
        found.append((size, stride))
        running = max(running, stride * size)
        if running > 250:
            break
    return draw(st.permutations(found))


@st.composite
def tensors(draw: st.DrawFn, declared: list[Axis], pack: int, is_free: bool) -> list[Axis]:
    """Much the declared memory, with axes split, joined and moved, and perhaps something wrong."""
    axes = sorted(((s, step) for s, step in declared if s > 1), key=lambda axis: axis[1])
    if is_free and axes:
        index = draw(st.integers(0, len(axes) - 1))
        axes[index] = (draw(st.integers(1, 6)), axes[index][1])
    result: list[Axis] = []
    for size, step in axes:
        split = draw(st.sampled_from([1, 1, *(n for n in range(1, size) if size % n == 0)]))
        pieces = [(split, step), (size // split, step * split)]
        if result and result[-1][0] * result[-1][1] == step and draw(st.booleans()):
            pieces[0] = (result[-1][0] * split, result[-1][1])
            result.pop()
        result += [piece for piece in pieces if piece[0] > 1]
    if pack > 1:
        result = [(size // pack, 1) if step == 1 else (size, step // pack) for size, step in result]
    if result and draw(st.integers(0, 2)) == 0:
        index = draw(st.integers(0, len(result) - 1))
        size, step = result[index]
        wrong = [(size + 1, step), (size, step + 1), (size, 0), (0, step), (step % 7 + 1, size)]
        result[index] = draw(st.sampled_from(wrong))
    if draw(st.booleans()):
        result.append((1, draw(st.sampled_from([0, 1, -1, MOST, LEAST]))))
    return result if draw(st.integers(0, 2)) == 0 else draw(st.permutations(result))


@st.composite
def asked(draw: st.DrawFn) -> tuple[str, int, Layout, Layout, int]:
    kind = draw(st.sampled_from(["plain", "swapped", "ragged", "paged", "dense"]))
    pack = draw(st.sampled_from([1, 1, 1, 2]))
    declared = draw(declarations(pack))
    free = draw(st.integers(0, len(declared) - 1)) if kind in ("ragged", "paged") else -1
    kept = list(declared)
    if kind == "ragged" and free and draw(st.booleans()):
        kept.pop(0)
    tensor = draw(tensors(kept, pack, kind in ("ragged", "paged", "dense")))
    return kind, free, layout_of(declared), layout_of(tensor), pack


@given(asked())
def test_layouts_are_the_models(probe: ModuleType, values: tuple[Any, ...]) -> None:
    kind, free, declared, tensor, pack = values
    found = probe.match(kind, declared, tensor, free_axis=free, pack=pack)
    assert found == model(kind, free, declared, tensor, pack)


ANY = st.integers(LEAST, MOST) | st.integers(-3, 9) | st.sampled_from([2**31, 2**32, 2**62])
ANY_AXES = st.lists(st.tuples(ANY, ANY), max_size=5)


@given(ANY_AXES, ANY_AXES, st.sampled_from([1, 2, 8]), st.integers(0, 4))
@example([(2**62, 1), (4, 2**62)], [(2, 2**62), (2, MOST)], 1, 1)
@example([(1, 5), (2, 1)], [(MOST, MOST), (MOST, MOST)], 1, 0)
def test_no_number_is_too_large(
    probe: ModuleType, declared: list[Axis], tensor: list[Axis], pack: int, free: int
) -> None:
    for kind in ("plain", "swapped", "ragged", "paged", "dense"):
        found = probe.match(kind, layout_of(declared), layout_of(tensor), free_axis=free, pack=pack)
        if found == "same" and kind in ("plain", "swapped"):
            sides = [[axis for axis in axes if axis[0] != 1] for axes in (declared, tensor)]
            sizes = [math.prod(size for size, _ in axes) for axes in sides]
            assert sizes[0] == sizes[1] * (pack if sizes[0] else 1)
            if sizes[0]:
                assert reach(sides[0]) == reach(sides[1]) * pack + pack - 1
        same = probe.match(kind, layout_of(declared), layout_of(declared), free_axis=free)
        assert same == "same"
