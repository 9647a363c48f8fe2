"""Which tensors lie as declared, case by case; test_tensor_layout_model.py has the general rule."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from support.layouts import LEAST, MOST, Layout, load_probe, packed, permuted

SAME, OTHER_ORDER, OTHER = "same", "other order", "other"
Case = tuple[Layout, Layout, str]
"""What is declared, the tensor, and what comes out."""

BHSD = permuted(packed(2, 128, 8, 64), 0, 2, 1, 3)  # dims b, h, s, d in memory b, s, h, d
BHSD_QKV = permuted(((2, 128, 8, 64), (196608, 1536, 64, 1)), 0, 2, 1, 3)
NHWC = permuted(packed(2, 8, 8, 16), 0, 3, 1, 2)
SLICED = (32, 64), (80, 1)  # rows of 80
BROADCAST = (4, 3, 8), (0, 8, 1)
BACKWARDS = (4, 8), (-8, 1)

PLAIN: dict[str, Case] = {
    "as declared": (BHSD, BHSD, SAME),
    "in the order of memory": (BHSD, packed(2, 128, 8, 64), SAME),
    "scalar": (((), ()), ((), ()), SAME),
    "scalar as one element": (((1, 1), (7, 9)), ((), ()), SAME),
    "not a scalar": (((), ()), packed(2), OTHER),
    "cut across": (packed(2, 8, 128, 64), packed(2, 128, 8, 64), OTHER),
    "joined": (packed(2, 8, 128, 64), packed(16, 128, 64), SAME),
    "all joined": (packed(2, 8, 128, 64), packed(131072), SAME),
    "split": (packed(2, 8, 128, 64), packed(2, 8, 2, 64, 64), SAME),
    "all split": (packed(12), packed(2, 3, 2), SAME),
    "split and joined": (packed(2, 8, 128, 64), packed(16, 128, 2, 32), SAME),
    "split unevenly": (packed(8, 6), packed(8, 4, 2), OTHER),
    "split with one left over": (packed(7), packed(3, 2), OTHER),
    "too few elements": (packed(2, 8, 128, 64), packed(8, 128, 64), OTHER),
    "too many elements": (packed(8, 128, 64), packed(2, 8, 128, 64), OTHER),
    "square transposed": (packed(64, 64), permuted(packed(64, 64), 1, 0), OTHER_ORDER),
    "same extents, columns first": (packed(32, 64), permuted(packed(64, 32), 1, 0), OTHER_ORDER),
    "other extents": (packed(32, 64), packed(64, 32), OTHER),
    "NHWC as a view": (NHWC, permuted(packed(2, 8, 8, 16), 0, 3, 1, 2), SAME),
    "NHWC as it lies": (NHWC, packed(2, 8, 8, 16), SAME),
    "NCHW for NHWC": (NHWC, packed(2, 16, 8, 8), OTHER_ORDER),
    "padded rows": (SLICED, SLICED, SAME),
    "padded rows, packed declaration": (packed(32, 64), SLICED, OTHER_ORDER),
    "padded rows joined": (((2, 32, 64), (2560, 80, 1)), ((64, 64), (80, 1)), SAME),
    "padding joined": (SLICED, packed(2048), OTHER),
    "slice of packed qkv": (BHSD_QKV, ((2, 128, 512), (196608, 1536, 1)), SAME),
    "packed for a slice of qkv": (BHSD_QKV, BHSD, OTHER_ORDER),
    "absurd strides of single elements": (
        ((1, 8, 1, 64), (MOST, 64, LEAST, 1)),
        ((8, 1, 64, 1), (64, 0, 1, MOST)),
        SAME,
    ),
    "both empty": (packed(0, 64), ((5, 0, 7), (MOST, 1, 2)), SAME),
    "tensor empty": (packed(4, 64), packed(0, 64), OTHER),
    "declaration empty": (packed(0, 64), packed(4, 64), OTHER),
    "negative extent": (packed(0, 64), packed(0, -1), OTHER),
    "broadcast in another order": (BROADCAST, permuted(BROADCAST, 1, 0, 2), SAME),
    "broadcasts in another order": (((4, 3, 8), (0, 0, 1)), ((3, 4, 8), (0, 0, 1)), SAME),
    "broadcasts joined": (((4, 3, 2), (0, 0, 1)), ((12, 2), (0, 1)), OTHER),
    "memory for a broadcast": (BROADCAST, packed(4, 3, 8), OTHER_ORDER),
    "broadcast for memory": (packed(4, 3, 8), BROADCAST, OTHER_ORDER),
    "backwards": (BACKWARDS, ((4, 1, 8), (-8, 5, 1)), SAME),
    "backwards in another order": (BACKWARDS, permuted(BACKWARDS, 1, 0), OTHER),
    "backwards and split": (BACKWARDS, ((2, 2, 8), (-16, -8, 1)), OTHER),
    "64 axes": (packed(2, *[1] * 63), packed(*[1] * 63, 2), SAME),
    "65 axes": (packed(2, *[1] * 64), packed(2, *[1] * 64), OTHER),
    "beyond int64": (((3, 2**62), (1, 3)), ((2**62, 3), (3 * 2**60, 1)), OTHER),
}

# K [b, h, s, d], which lowering declares as [b, h, d, s].
K = permuted(packed(2, 8, 128, 64), 0, 1, 3, 2)
K_SQUARE = permuted(packed(2, 8, 64, 64), 0, 1, 3, 2)

SWAPPED: dict[str, Case] = {
    "before the swap": (K, packed(2, 8, 128, 64), SAME),
    "after the swap": (K, K, SAME),
    "joined": (K, packed(16, 8192), SAME),
    "packed b, s, h, d": (K, permuted(packed(2, 128, 8, 64), 0, 2, 1, 3), OTHER_ORDER),
    "other extents": (K, packed(2, 8, 64, 128), OTHER),
    "d == s, before the swap": (K_SQUARE, packed(2, 8, 64, 64), SAME),
    "d == s, after the swap": (K_SQUARE, K_SQUARE, SAME),
    "d == s, h and s the other way": (
        K_SQUARE,
        permuted(packed(2, 64, 8, 64), 0, 2, 1, 3),
        OTHER_ORDER,
    ),
    "one axis": (packed(8), packed(2, 4), SAME),
    "last axis of one element": (((2, 8, 64, 1), (512, 64, 1, 64)), packed(2, 8, 1, 64), SAME),
}

THD = permuted(packed(64, 4, 8, 128), 0, 2, 1, 3)  # 64 sequences of up to 4 tokens
THD_ONE = permuted(packed(64, 1, 8, 128), 0, 2, 1, 3)  # of one token each: its stride is free

RAGGED: dict[str, Case] = {
    "as declared": (THD, THD, SAME),
    "tokens": (THD, packed(200, 8, 128), SAME),
    "fewer tokens than sequences": (THD, packed(3, 8, 128), SAME),
    "one token": (THD, packed(8, 128), SAME),
    "padded batch": (THD, packed(64, 4, 8, 128), SAME),
    "tokens and heads joined": (THD, packed(1600, 128), SAME),
    "heads and d joined": (THD, packed(200, 1024), SAME),
    "all joined": (THD, packed(200 * 1024), SAME),
    "half of the heads": (THD, packed(200, 4, 128), OTHER),
    "heads first": (THD, packed(8, 200, 128), OTHER),
    "part of a token": (THD, packed(1, 4, 128), OTHER),
    "slice of packed qkv": (THD, ((200, 8, 128), (3072, 128, 1)), OTHER),
    "gaps between sequences": (THD, ((4, 50, 8, 128), (65536, 1024, 128, 1)), OTHER),
    "no tokens": (THD, packed(0, 8, 128), OTHER),
    "free stride": (THD_ONE, packed(200, 8, 128), SAME),
    "free stride, slice of packed qkv": (THD_ONE, ((200, 8, 128), (3072, 128, 1)), SAME),
    "free stride, two axes": (THD_ONE, ((4, 50, 8, 128), (153600, 3072, 128, 1)), SAME),
    "free stride, gaps": (THD_ONE, ((4, 50, 8, 128), (153601, 3072, 128, 1)), OTHER),
    "free stride, joined": (THD_ONE, packed(1600, 128), SAME),
    "free stride, too small": (THD_ONE, ((200, 8, 128), (512, 128, 1)), OTHER),
    "free stride, tokens inside": (THD_ONE, ((8, 128, 2), (256, 2, 1)), OTHER),
}

PAGES = packed(100, 8, 16, 64)
PAGES_KV = (100, 8, 16, 64), (16384, 1024, 64, 1)  # K of pages [2, 8, 16, 64]: K and V
PAGES_INSIDE = (100, 8, 16, 64), (1024, 2**20, 64, 1)  # heads outermost

PAGED: dict[str, Case] = {
    "more pages": (PAGES, packed(700, 8, 16, 64), SAME),
    "one page": (PAGES, packed(8, 16, 64), SAME),
    "pages split": (PAGES, packed(7, 100, 8, 16, 64), SAME),
    "other page size": (PAGES, packed(700, 8, 32, 64), OTHER),
    "pages of K and V": (PAGES_KV, ((700, 8, 16, 64), (16384, 1024, 64, 1)), SAME),
    "pages of K and V, one": (PAGES_KV, packed(1, 8, 16, 64), SAME),
    "pages of K and V for packed": (PAGES, ((700, 8, 16, 64), (16384, 1024, 64, 1)), OTHER),
    "packed for pages of K and V": (PAGES_KV, packed(700, 8, 16, 64), OTHER),
    "heads outermost": (PAGES_INSIDE, ((8, 700, 16, 64), (2**20, 1024, 64, 1)), SAME),
    "heads outermost, too many pages": (
        PAGES_INSIDE,
        ((8, 2000, 16, 64), (2**20, 1024, 64, 1)),
        OTHER,
    ),
    "one declared page": (packed(1, 8, 16, 64), packed(700, 8, 16, 64), SAME),
}

DENSE: dict[str, Case] = {
    "flat": (packed(128, 4), packed(512), SAME),
    "more than declared": (packed(128, 4), packed(1, 33, 4, 4), SAME),
    "less than declared": (packed(128, 4), packed(511), OTHER),
    "in another order": (packed(128, 4), permuted(packed(32, 16), 1, 0), SAME),
    "gaps": (packed(128, 4), ((128, 8), (9, 1)), OTHER),
    "gaps as declared": (((128, 4), (9, 1)), ((128, 4), (9, 1)), SAME),
    "broadcast": (packed(128, 4), ((512, 2), (1, 0)), OTHER),
    "one element": (packed(1), ((), ()), SAME),
    "tensor empty": (packed(1), packed(0), OTHER),
}

# Raw bytes: FP4, two elements each.
PAIRS: dict[str, Case] = {
    "rows": (packed(32, 64), packed(32, 32), SAME),
    "all joined": (packed(32, 64), packed(1024), SAME),
    "d first": (permuted(packed(32, 64), 1, 0), packed(32, 32), SAME),
    "square, the other way": (permuted(packed(64, 64), 1, 0), packed(64, 32), OTHER_ORDER),
    "padded rows": (SLICED, ((32, 32), (40, 1)), SAME),
    "one byte a row": (((32, 2), (80, 1)), ((32, 1), (40, 1)), SAME),
    "one byte": (packed(2), ((), ()), SAME),
    "a byte for each": (packed(32, 64), packed(32, 64), OTHER),
    "both empty": (packed(0, 64), packed(0, 32), SAME),
    "beyond int64": (packed(2), ((2**62, 2), (1, 2**62)), OTHER),
    "64 axes": (packed(2), ((2,) * 64, (0,) * 64), OTHER),
}

MASKS: dict[str, Case] = {
    "rows": (packed(4, 8, 64), packed(4, 8, 8), SAME),
    "rows that end in a byte": (packed(4, 60), packed(4, 8), OTHER),
    "a byte for each": (packed(4, 8, 64), packed(4, 8, 64), OTHER),
}


@pytest.fixture(scope="module")
def probe(builds: Any) -> ModuleType:
    return load_probe(builds)


def named(cases: dict[str, Case]) -> Any:
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


@named(PLAIN)
def test_plain(probe: ModuleType, case: Case) -> None:
    declared, tensor, expected = case
    assert probe.match("plain", declared, tensor) == expected


@named(SWAPPED)
def test_swapped_by_lowering(probe: ModuleType, case: Case) -> None:
    declared, tensor, expected = case
    assert probe.match("swapped", declared, tensor) == expected


def test_a_square_is_taken_both_ways_only_if_swapped(probe: ModuleType) -> None:
    assert probe.match("plain", K_SQUARE, packed(2, 8, 64, 64)) == OTHER_ORDER


@named(RAGGED)
def test_ragged(probe: ModuleType, case: Case) -> None:
    declared, tensor, expected = case
    assert probe.match("ragged", declared, tensor, free_axis=2) == expected


@named(PAGED)
def test_paged(probe: ModuleType, case: Case) -> None:
    declared, tensor, expected = case
    assert probe.match("paged", declared, tensor, free_axis=0) == expected


@named(DENSE)
def test_dense(probe: ModuleType, case: Case) -> None:
    declared, tensor, expected = case
    assert probe.match("dense", declared, tensor) == expected


@named(PAIRS)
def test_two_elements_a_byte(probe: ModuleType, case: Case) -> None:
    declared, tensor, expected = case
    assert probe.match("plain", declared, tensor, pack=2) == expected


@named(MASKS)
def test_eight_elements_a_byte(probe: ModuleType, case: Case) -> None:
    declared, tensor, expected = case
    assert probe.match("plain", declared, tensor, pack=8) == expected


def test_other_kinds_count_elements_of_bytes_too(probe: ModuleType) -> None:
    assert probe.match("dense", packed(32, 64), packed(1100), pack=2) == SAME
    assert probe.match("dense", packed(32, 64), packed(1000), pack=2) == OTHER
    assert probe.match("ragged", THD, packed(200, 8, 64), free_axis=2, pack=2) == SAME
    assert probe.match("swapped", K, packed(2, 8, 128, 32), pack=2) == SAME
