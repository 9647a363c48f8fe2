"""A short run of the fuzzing that tools/fuzz does at length: mutated real files, start to end.

The examples are the same on every run (`derandomize`), so that a change is judged by what it
changes; tools/fuzz looks where nobody has looked. A failure names (index, number): `mutate` of
these gives the file again.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.emitting import check_accepted, check_parsed, check_refusal, emit
from support.mutations import Seed, encode_json, encode_ubjson, find_seeds, mutate

SEEDS = find_seeds()
BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=600,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
INDICES = st.integers(0, len(SEEDS) - 1)
NUMBERS = st.integers(0, 2**32 - 1)


@given(INDICES, NUMBERS)
@BOUNDED
def test_a_mutated_file_is_emitted_or_refused_in_one_line(index: int, number: int) -> None:
    emitted = emit(mutate(SEEDS, index, number))
    if isinstance(emitted, Exception):
        check_refusal(emitted)
    else:
        check_accepted(emitted)


@given(INDICES, NUMBERS)
@settings(BOUNDED, max_examples=150)
def test_text_of_a_mutated_file_changes_literals_only(index: int, number: int) -> None:
    emitted = emit(mutate(SEEDS, index, number))
    if not isinstance(emitted, Exception):
        check_parsed(*emitted[1:])


@given(st.lists(st.tuples(INDICES, NUMBERS), min_size=2, max_size=2), st.binary(max_size=30))
@settings(BOUNDED, max_examples=200)
def test_a_file_in_pieces_of_others_is_emitted_or_refused(
    parts: list[tuple[int, int]], glue: bytes
) -> None:
    (first, second) = (mutate(SEEDS, *part) for part in parts)
    emitted = emit(first[: len(first) // 2] + glue + second[len(second) // 2 :])
    if isinstance(emitted, Exception):
        check_refusal(emitted)
    else:
        check_accepted(emitted)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_the_encoders_of_mutations_write_what_the_frontend_writes(seed: Seed) -> None:
    root = seed.decode()
    if seed.is_binary:
        assert encode_ubjson(root) == seed.data
    elif root is not None:
        assert Seed("again", encode_json(root)).decode() == root


@pytest.mark.parametrize("index", range(len(SEEDS)))
def test_a_mutation_can_be_repeated(index: int) -> None:
    assert mutate(SEEDS, index, 7) == mutate(find_seeds(), index, 7)


def test_mutations_reach_past_the_reader() -> None:
    """Files that are all refused would test nothing but the first check of each."""
    outcomes = [emit(mutate(SEEDS, number % len(SEEDS), number)) for number in range(200)]
    accepted = [item for item in outcomes if not isinstance(item, Exception)]
    refusals = {str(item)[:60] for item in outcomes if isinstance(item, Exception)}
    assert len(accepted) > 20
    assert len(refusals) > 20
