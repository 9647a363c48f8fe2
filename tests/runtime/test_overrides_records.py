"""Launch records of calls with overrides: one for each value, bounded, and never a wrong one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support.launch_recording import RECORDABLE, counts
from support.overriding import B, product_plan, with_m
from support.standin import Standin
from support.standin.overrides import Override

from cudnn_bindgen.runtime.errors import CudnnError
from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Make = Callable[..., Any]

auto = pytest.mark.parametrize("policy", ["auto"], indirect=True)
both = pytest.mark.parametrize("policy", ["auto", "record"], indirect=True)


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "record"))


@pytest.fixture
def ov(product: ModuleType) -> Any:
    return product.Overrides()


@pytest.fixture
def streams(standin: Standin) -> Iterator[list[int]]:
    streams = [standin.stream() for _ in range(2)]
    yield streams
    for stream in streams:
        standin.destroy_stream(stream)


def with_stride(number: int) -> dict[int, Override]:
    """Return a class of which there are as many as one likes; `choose` sets it."""
    return with_m(5) | {B: ([1, 4, 8], [32 + number, 8, 1])}


def choose(overrides: Any, number: int) -> None:
    overrides.set(M=5)
    overrides.set_b(1, 4, 8, stride_b=32 + number)


# One for each value


@auto
def test_auto_records_a_value_when_it_comes_for_the_fourth_time(
    product: ModuleType, arrays: Make, ov: Any
) -> None:
    operands = arrays()
    for number in range(1, 7):
        for m in (3, 7, 11):
            ov.set(M=m)
            operands.call(product, ov, with_m(m))
            assert product.launch_path() == ("direct" if number < 4 else "record")
        operands.call(product)
        assert product.launch_path() == ("direct" if number < 4 else "record")
    stats = product.launch_stats()
    assert (stats["recorded"], stats["evicted"], stats["hit_rate"]) == (4, 0, 0.5)


def test_equal_values_share_a_record(product: ModuleType, arrays: Make, ov: Any) -> None:
    operands = arrays()
    other = product.Overrides()
    ov.set(M=5)
    other.set_d(5, 2)
    other.set_c(1, 5, 8)
    other.set_a(1, 5, 4)
    for each in (ov, other, ov.copy(), other):
        operands.call(product, each, with_m(5))
    assert counts(product)[0] == 1
    assert product.launch_stats()["recorded"] == 1


def test_scalars_and_shapes_together_are_the_value(
    product: ModuleType, arrays: Make, ov: Any
) -> None:
    operands = arrays()
    for _ in range(4):
        for operands.alpha in (0.5, 1.5):
            for m in (4, 6):
                ov.set(M=m)
                operands.call(product, ov, with_m(m))
    assert product.launch_stats()["recorded"] == 4
    assert counts(product)[0] == 4


def test_declared_values_that_are_set_are_a_value_of_their_own(
    product: ModuleType, arrays: Make, ov: Any
) -> None:
    operands = arrays()
    ov.set_a(1, 12, 4)
    for _ in range(3):
        operands.call(product)
        operands.call(product, ov, {1: ([1, 12, 4], [48, 4, 1])})
    assert product.launch_stats()["recorded"] == 2


# Bounds


@pytest.mark.parametrize("records", [1, 2, 5])
def test_the_value_not_used_for_longest_gives_way(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any, records: int
) -> None:
    product.set_launch_policy("record", records=records)
    operands = arrays()
    for number in range(records + 1):
        for _ in range(2):
            choose(ov, number)
            operands.call(product, ov, with_stride(number))
        assert standin.live("exec") <= records * 2
    stats = product.launch_stats()
    assert (stats["recorded"], stats["evicted"]) == (records + 1, 1)
    for number in range(records, 0, -1):
        choose(ov, number)
        operands.call(product, ov, with_stride(number))
        assert product.launch_path() == "record"
    choose(ov, 0)
    operands.call(product, ov, with_stride(0))
    assert product.launch_path() == "direct", "it has to come twice again"


@pytest.mark.parametrize("wrong", [0, -1, 4097, 2.0, "many", "", [4], 2**70])
def test_there_is_no_such_number_of_records(product: ModuleType, wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^records: expected 1 to 4096, got "):
        product.set_launch_policy("record", records=wrong)
    product.set_launch_policy("record", records=4096)
    product.set_launch_policy("record", records=None)


@both
def test_values_that_never_repeat_are_never_recorded(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    operands = arrays()
    for number in range(400):
        choose(ov, number)
        operands.call(product, ov, with_stride(number))
    assert counts(product) == (400, 0, 0)
    assert standin.calls("cuStreamBeginCapture") == 0
    assert standin.live("exec") == 0


@auto
def test_many_values_in_turn_do_not_push_a_frequent_one_out(
    product: ModuleType, arrays: Make, ov: Any
) -> None:
    operands = arrays()
    for number in range(300):
        choose(ov, number)
        operands.call(product, ov, with_stride(number))
        ov.reset()
        ov.set(M=7)
        operands.call(product, ov, with_m(7))
    assert counts(product)[0] == 303
    assert product.launch_stats()["recorded"] == 1


def test_recordings_are_bounded_when_there_are_more_values_than_places(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    records, values, rounds = 2, 6, 40
    product.set_launch_policy("record", records=records)
    operands = arrays()
    for _ in range(rounds):
        for number in range(values):
            for _ in range(3):
                choose(ov, number)
                operands.call(product, ov, with_stride(number))
    stats = product.launch_stats()
    launches = sum(counts(product)[1:])
    assert 4 * records < stats["recorded"] <= 4 * records + launches // 64 + 1
    assert stats["recorded"] - stats["evicted"] == records
    assert sum(counts(product)) == rounds * values * 3
    assert stats["hit_rate"] == launches / (rounds * values * 3)


# Right on both paths


@pytest.mark.parametrize("launch", RECORDABLE)
@pytest.mark.parametrize("served", ["module"])  # Cython code calls it, too
def test_every_result_is_right(
    product: ModuleType, load: Load, arrays: Make, streams: list[int], ov: Any, launch: str
) -> None:
    product.load_plan(product_plan(launch=launch))
    product.set_launch_policy("record", records=6)
    operands = arrays(launch)
    rng = random.Random(launch)
    ways = [product, product, load("product_caller")]
    for number in range(300):
        m = rng.choice([0, 2, 2, 3, 4, 5, 5, 7, 11, 12])
        operands.alpha = rng.choice([0.5, 0.5, 2.25])
        workspace = operands.workspace if rng.random() < 0.5 else 0
        options = {"workspace_ptr": workspace, "stream": rng.choice(streams)}
        if number % 60 == 59:
            product.close()
            product.load_plan(product_plan(launch=launch))
        if rng.random() < 0.2:
            operands.call(product, **options)
            continue
        ov.set(M=m)
        if m:
            operands.call(rng.choice(ways), ov, with_m(m), **options)
        else:
            product.execute(*operands.arguments, overrides=ov, **options)
    direct, *recorded = counts(product)
    assert direct > 50
    assert sum(recorded) > 50
    assert product.launch_stats()["refused"] == 0


@pytest.mark.parametrize("launch", ["hash", "grid"])
def test_what_cannot_be_recorded_goes_direct(
    product: ModuleType, arrays: Make, ov: Any, launch: str
) -> None:
    product.load_plan(product_plan(launch=launch))
    operands = arrays()
    for _ in range(5):
        for m in (3, 7):
            ov.set(M=m)
            operands.call(product, ov, with_m(m))
    assert counts(product) == (10, 0, 0)
    assert product.launch_stats()["refused"] == 1


@both
def test_values_that_cudnn_refuses_cost_the_others_no_record(
    product: ModuleType, arrays: Make, ov: Any
) -> None:
    operands = arrays()
    ov.set(M=1)
    for _ in range(6):
        with pytest.raises(CudnnError, match="crosses 1"):
            product.execute(*operands.arguments, operands.workspace, overrides=ov)
    ov.set(M=5)
    for _ in range(6):
        operands.call(product, ov, with_m(5))
    assert product.launch_path() == "record"


def test_threads_record_on_their_own_streams(
    product: ModuleType, arrays: Make, standin: Standin
) -> None:
    count = 4
    operands = [arrays(seed) for seed in range(count)]
    streams = [standin.stream() for _ in range(count)]

    def work(number: int) -> None:
        mine = product.Overrides()
        for turn in range(60):
            m = (3, 8, 2 + number)[turn % 3]
            mine.set(M=m)
            operands[number].call(product, mine, with_m(m), stream=streams[number])

    at_once(count, work)
    for stream in streams:
        standin.destroy_stream(stream)
    assert sum(counts(product)) == count * 60
    assert counts(product)[0] <= count * 3


def test_closing_destroys_the_records(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    operands = arrays()
    for m in (3, 3, 7, 7):
        ov.set(M=m)
        operands.call(product, ov, with_m(m))
    assert standin.live("exec") >= 2
    product.close()
    assert standin.live("exec") == 0
