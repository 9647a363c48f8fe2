"""Calls with overrides on the stand-in: results, empty outputs, captures, strides."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.overriding import ALIGNMENT, A, B, C, D, product_plan, with_m
from support.standin import Standin

from cudnn_bindgen.runtime.errors import CudnnError, OperandError
from runtime.test_threads import at_once

Load = Callable[[str], ModuleType]
Make = Callable[..., Any]

direct = pytest.mark.parametrize("policy", ["direct"], indirect=True)


@pytest.fixture
def ov(product: ModuleType) -> Any:
    return product.Overrides()


# Results


def test_each_call_computes_what_it_asks_for(product: ModuleType, arrays: Make, ov: Any) -> None:
    operands = arrays()
    for _ in range(60):
        m = operands.random.choice([2, 3, 5, 11, 12])
        ov.set(M=m)
        operands.call(product, ov, with_m(m))
        if operands.random.random() < 0.3:
            operands.call(product)


def test_every_dim_and_stride_arrives(product: ModuleType, arrays: Make, ov: Any) -> None:
    operands = arrays()
    expected = with_m(6) | {B: ([1, 3, 7], [64, 9, 1])}
    ov.set(M=6)
    ov.set_b(1, 3, 7, stride_b=64, stride_k=9)
    for _ in range(3):
        operands.call(product, ov, expected)
    ov.set_b(1, 3, 7, stride_b=64, stride_k=10)
    operands.call(product, ov, expected | {B: ([1, 3, 7], [64, 10, 1])})


@direct
def test_what_was_never_set_is_not_sent(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    operands = arrays()
    operands.call(product, ov)
    assert standin.log("override") == []
    ov.set_b(1, 4, 8)
    operands.call(product, ov)
    assert standin.log("override") == ["override 2 1,4,8 32,8,1"]
    ov.reset()
    operands.call(product, ov)
    assert len(standin.log("override")) == 1


@pytest.mark.parametrize("served", ["module"])  # Cython code calls it, too
def test_setters_write_in_place(
    product: ModuleType, load: Load, arrays: Make, standin: Standin, ov: Any
) -> None:
    caller = load("product_caller")
    operands = arrays()
    ov.set(M=5, N=8)
    places = caller.places(ov)
    for m in (6, 7, 12, 2):
        ov.set(M=m)
        ov.set_b(1, 4, 8, stride_k=8)
        operands.call(product, ov, with_m(m) | {B: ([1, 4, 8], [32, 8, 1])})
        with pytest.raises(OperandError):
            ov.set(M=13)
        assert caller.places(ov) == places
    assert standin.violations("overrides") == 0


def test_threads_with_overrides_of_their_own(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    count, times = 5, 40
    operands = [arrays(seed) for seed in range(count)]
    streams = [standin.stream() for _ in range(count)]
    ov.set(M=5)

    def work(number: int) -> None:
        mine = ov.copy()
        for _ in range(times):
            m = operands[number].random.choice([2, 3, 4 + number])
            mine.set(M=m)
            operands[number].call(product, mine, with_m(m), stream=streams[number])

    at_once(count, work)
    for stream in streams:
        standin.destroy_stream(stream)
    assert repr(ov).startswith("Overrides(a=((1, 5, 4)")


def test_closing_and_loading_between_calls(product: ModuleType, arrays: Make, ov: Any) -> None:
    operands = arrays()
    ov.set(M=5)
    for _ in range(3):
        for _ in range(4):
            operands.call(product, ov, with_m(5))
        product.close()
        product.load_plan()
        operands.call(product, ov, with_m(5))
        product.load_plan(product_plan(launch="split"))


def test_a_capture_keeps_the_overrides_it_was_made_with(
    product: ModuleType, arrays: Make, standin: Standin, stream: int, ov: Any
) -> None:
    operands = arrays()
    for _ in range(3):
        ov.set(M=7)
        operands.call(product, ov, with_m(7), stream=stream)
    operands.move()
    standin.begin_capture(stream)
    product.execute(*operands.arguments, stream=stream, overrides=ov)
    status, graph = standin.end_capture_graph(stream)
    assert status == 0
    assert operands.is_untouched()
    ov.set(M=3)
    standin.replay(graph, stream)
    operands.check(with_m(7))
    operands.call(product, ov, with_m(3), stream=stream)


# Nothing to compute


@pytest.mark.parametrize("served", ["module"])  # Cython code calls it, too
def test_without_an_element_of_output_cudnn_is_left_alone(
    product: ModuleType, load: Load, arrays: Make, standin: Standin, ov: Any
) -> None:
    operands = arrays()
    operands.call(product)
    before = standin.log()
    ov.set(M=0)
    for _ in range(5):
        product.execute(*operands.arguments, overrides=ov)
        product.execute(0, 0, 0, 0, 1.0, overrides=ov)
        load("product_caller").execute(0, 0, 0, 0, 1.0, overrides=ov, times=3)
    assert standin.log() == before
    ov.set(M=4)
    operands.call(product, ov, with_m(4))


@direct
def test_with_one_output_of_two_empty_the_call_is_made(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    operands = arrays()
    a, b, c, d, alpha = operands.arguments
    ov.set_d(0, 2)
    product.execute(a, b, c, d, alpha, overrides=ov)
    assert standin.calls("cudnnBackendExecute") == 1
    standin.fail("cudnnBackendExecute", status=5000)
    with pytest.raises(CudnnError, match="5000"):  # the null address came as far as that
        product.execute(a, b, c, 0, alpha, overrides=ov)
    for wrong in ([a, b, 0, d], [0, b, c, d], [a, 0, c, d]):
        with pytest.raises(OperandError, match="got 0"):
            product.execute(*wrong, alpha, overrides=ov)
    with pytest.raises(OperandError, match=r"^d_ptr: .* got 0$"):
        product.execute(a, b, c, 0, alpha)


@direct
def test_an_input_without_an_element_may_be_null(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any
) -> None:
    a, _, c, d, alpha = arrays().arguments
    ov.set(K=0)
    standin.fail("cudnnBackendExecute", status=5000)
    with pytest.raises(CudnnError, match="5000"):
        product.execute(a, 0, c, d, alpha, overrides=ov)
    ov.reset()
    with pytest.raises(OperandError, match=r"^b_ptr: "):
        product.execute(a, 0, c, d, alpha, overrides=ov)


# What the plan asks of strides


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_stride_that_breaks_the_plans_alignment(
    product: ModuleType, arrays: Make, standin: Standin, ov: Any, is_loaded: bool
) -> None:
    operands = arrays()
    if is_loaded:
        product.load_plan(product_plan())
    operands.call(product)
    for strides in ({"stride_m": 5}, {"stride_m": 6}, {"stride_k": 2}):
        ov.set_a(1, 6, 4, **strides)
        [(axis, stride)] = strides.items()
        before = standin.log()
        for _ in range(2):
            with pytest.raises(OperandError) as caught:
                product.execute(*operands.arguments, overrides=ov)
            assert str(caught.value) == (
                f"a.{axis[-1]}: expected a stride of a multiple of {ALIGNMENT} bytes, "
                f"got {stride} elements"
            )
        assert standin.log() == before
    ov.set_a(1, 6, 4, stride_b=5, stride_m=8, stride_k=1)
    operands.call(product, ov, {A: ([1, 6, 4], [5, 8, 1])})
    ov.set_b(1, 4, 8, stride_k=9)
    operands.call(product, ov, {A: ([1, 6, 4], [5, 8, 1]), B: ([1, 4, 8], [36, 9, 1])})


# Wrong calls


@direct
def test_wrong_overrides_reach_nothing_of_cudnn(
    product: ModuleType, load: Load, arrays: Make, standin: Standin
) -> None:
    operands = arrays()
    operands.call(product)
    before = standin.log()
    others = load("product_bare").Overrides()
    for wrong in (others, 5, "M=5", {"M": 5}, [1], product.Overrides, object()):
        for call in (
            lambda wrong=wrong: product.execute(*operands.arguments, overrides=wrong),
            lambda wrong=wrong: product.execute_uids({}, overrides=wrong),
            lambda wrong=wrong: product.workspace_size(wrong),
        ):
            with pytest.raises((TypeError, OperandError)):
                call()
    assert standin.log() == before
    operands.call(product)
    operands.call(product, None)


@direct
def test_a_graph_without_the_flag_has_no_such_argument(
    load: Load, arrays: Make, standin: Standin
) -> None:
    standin.set_version(92700)
    fixed = load("product_fixed")
    operands = arrays()
    assert not hasattr(fixed, "Overrides")
    assert fixed.GRAPH["is_override_shape_enabled"] is False
    before = standin.log()
    for call in (
        lambda: fixed.execute(*operands.arguments, overrides=None),
        lambda: fixed.workspace_size(None),
        lambda: fixed.set_launch_policy("auto", records=4),
    ):
        with pytest.raises(TypeError):
            call()
    assert standin.log() == before
    fixed.execute(*operands.arguments)
    assert not operands.is_untouched()


@pytest.mark.parametrize("served", ["module"])  # Cython code calls it, too
def test_every_way_in_takes_overrides(
    product: ModuleType, load: Load, arrays: Make, ov: Any
) -> None:
    operands = arrays()
    ov.set(M=5)
    product.execute_uids(dict(zip((A, B, C, D, 5), operands.arguments, strict=True)), 0, 0, ov)
    operands.check(with_m(5))
    operands.call(load("product_caller"), ov, with_m(5))
    ov.set(M=7)
    operands.call(load("product_caller"), ov, with_m(7))
    operands.call(load("product_caller"))
