"""Strides that follow and sizes that fit, against a model in Python, whose numbers have no end."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cudnn_bindgen.codegen.bind.overrides import follow, stride_order
from cudnn_bindgen.module_data import Operand
from cudnn_bindgen.runtime.errors import OperandError

MOST = 2**63 - 1
BITS = {"FP4_E2M1": 4, "INT8": 8, "HALF": 16, "FLOAT": 32, "DOUBLE": 64}
Sizes = Sequence[int]


@pytest.fixture(scope="module")
def probe(builds: Any) -> ModuleType:
    import importlib.util

    path: Path = builds.path("overrides_probe")
    spec = importlib.util.spec_from_file_location("overrides_probe", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RefusedError(Exception):
    """The model takes no such values."""


def pack(
    declared: tuple[Sizes, Sizes],
    dim: Sizes,
    given: Sequence[int | None],
    *,
    bits: int,
    keeps: frozenset[int] = frozenset(),
    bounded: bool = False,
) -> list[int]:
    """Return the strides that docs/overrides.md gives to `dim`; those `given` are meant so."""
    most = min(MOST, MOST * 8 // bits)  # elements whose bytes fit
    elements = 1
    for size, declared_size, stride in zip(dim, declared[0], given, strict=True):
        elements *= size
        too_large = elements > most or (bounded and size > declared_size)
        if size < 0 or too_large or (stride or 0) < 0:
            raise RefusedError
    strides = [then if now is None else now for now, then in zip(given, declared[1], strict=True)]
    inside_then = inside_now = 0  # what the axes further in span: as declared, and now
    for axis in sorted(range(len(dim)), key=lambda axis: (declared[1][axis], -axis)):
        size_then, step_then = declared[0][axis], declared[1][axis]
        if step_then == 0:
            continue
        follows_then = inside_then == step_then
        follows = follows_then and inside_now > 0
        if follows and given[axis] is None:
            strides[axis] = inside_now
        size = size_then if axis in keeps else dim[axis]
        if follows or given[axis] is not None or size > 1 or not inside_now:
            inside_now = strides[axis] * max(size, 1)
        if follows_then or size_then > 1 or not inside_then:
            inside_then = step_then * size_then
        if inside_now > MOST:
            raise RefusedError
    reach = sum((size - 1) * step for size, step in zip(dim, strides, strict=True) if size > 1)
    if reach >= most:
        raise RefusedError
    return strides


def make(
    probe: ModuleType, declared: tuple[Sizes, Sizes], data_type: str = "INT8", **options: Any
) -> Any:
    dim, stride = map(tuple, declared)
    operand = Operand(7, "x_ptr", "x", "input", data_type, dim, stride, 1)
    shapes = (("x", tuple(f"d{axis}" for axis in range(len(dim))), BITS[data_type]),)
    return probe.Probe((operand,), shapes, options.get("symbols", ()), options["unbounded"])


def shown(overrides: Any) -> tuple[list[int], list[int]] | None:
    text = repr(overrides).removeprefix("Overrides(").removesuffix(")")
    if not text:
        return None
    dim, stride = ast.literal_eval(text.removeprefix("x="))
    return list(dim), list(stride)


SIZES = st.integers(0, 9) | st.sampled_from([1, 16, 2**31, 2**32 + 1, 2**61, 2**62, MOST])
STEPS = st.integers(0, 40) | st.sampled_from([2**31, 2**60, 2**61, 2**62, MOST])


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Dims and strides in any order, packed, padded or a slice of more; some strides are 0."""
    rank = draw(st.integers(1, 5))
    dim = [draw(st.integers(0, 9)) for _ in range(rank)]
    stride, running = [0] * rank, draw(st.sampled_from([1, 1, 1, 2]))
    for axis in draw(st.permutations(range(rank))):
        stride[axis] = draw(st.sampled_from([running, running, running, running + 3, 0]))
        running = max(running, stride[axis] * max(dim[axis], 1))
    return dim, stride


@st.composite
def asked(draw: st.DrawFn) -> tuple[Any, ...]:
    declared = draw(layouts())
    rank = len(declared[0])
    dim = draw(st.lists(SIZES, min_size=rank, max_size=rank))
    given = draw(st.lists(st.none() | STEPS, min_size=rank, max_size=rank))
    return declared, dim, given


@given(asked(), st.sampled_from([*BITS]), st.booleans())
@example((([4, 8], [8, 1]), [3, 5], [None, None]), "HALF", True)
@example((([4, 8], [16, 1]), [3, 5], [None, None]), "HALF", True)
@example((([4, 8], [8, 1]), [2, 2**62], [None, None]), "INT8", False)
@example((([4, 8], [8, 1]), [5, 2], [2**60, 1]), "DOUBLE", False)
@example((([1, 4, 1, 8], [32, 8, 8, 1]), [1, 2, 1, 5], [None] * 4), "FLOAT", True)
def test_strides_and_refusals_are_the_models(
    probe: ModuleType, values: tuple[Any, ...], data_type: str, bounded: bool
) -> None:
    declared, dim, given = values
    overrides = make(probe, declared, data_type, unbounded=not bounded)
    try:
        expected = dim, pack(declared, dim, given, bits=BITS[data_type], bounded=bounded)
    except RefusedError:
        expected = None
    try:
        overrides.override(0, dim, given)
    except OperandError as error:
        assert expected is None, error
        assert str(error).startswith("x.d")
    assert shown(overrides) == expected
    overrides.override(0, declared[0], declared[1])
    assert shown(overrides) == tuple(map(list, declared)), "the next values are taken"


@given(layouts())
def test_declared_dims_give_declared_strides(
    probe: ModuleType, declared: tuple[list[int], list[int]]
) -> None:
    overrides = make(probe, declared, unbounded=False)
    if all(declared[0]):
        overrides.override(0, declared[0], None)
        assert shown(overrides) == declared


@given(layouts(), st.data())
def test_a_packed_layout_stays_packed(
    probe: ModuleType, declared: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(declared[0]))))
    dim = [max(size, 2) for size in declared[0]]
    stride, running = [0] * len(dim), 1
    for axis in order:
        stride[axis], running = running, running * dim[axis]
    new = [data.draw(st.integers(1, size)) for size in dim]
    overrides = make(probe, (dim, stride), unbounded=False)
    overrides.override(0, new, None)
    running = 1
    for axis in order:
        assert shown(overrides)[1][axis] == running
        running *= new[axis]
    assert all(follows for _, follows in stride_order(dim, stride)[1:])


STEP = st.tuples(st.sampled_from("+*/%"), st.integers(1, 200) | st.just(999_999_999))


@given(
    layouts(),
    st.lists(STEP, max_size=4),
    st.integers(0, 300) | st.integers(-(2**63), MOST),
    st.booleans(),
    st.data(),
)
@example(([0], [1]), [("%", 128)], -200, True, None)
@example(([0], [1]), [("/", 128)], MOST, True, None)
def test_symbols_follow_their_steps(
    probe: ModuleType,
    declared: tuple[list[int], list[int]],
    steps: list[tuple[str, int]],
    number: int,
    is_packed: bool,
    data: Any,
) -> None:
    rank = len(declared[0])
    axis = data.draw(st.integers(0, rank - 1)) if data else 0
    symbols = (("S", is_packed, ((0, axis, tuple(steps)),)),)
    overrides = make(probe, declared, "INT8", symbols=symbols, unbounded=True)
    dim = list(declared[0])
    expected = None
    if number >= 0:
        dim[axis] = follow(number, steps)
        values = [follow(number, steps[:count]) for count in range(len(steps) + 1)]
        keeps = frozenset() if is_packed else frozenset([axis])
        try:
            if max(values) > MOST:
                raise RefusedError
            expected = dim, pack(declared, dim, [None] * rank, bits=8, keeps=keeps)
        except RefusedError:
            pass
    try:
        overrides.set((number,))
    except OperandError as error:
        assert expected is None, error
        assert f"from S={number}" in str(error)
    assert shown(overrides) == expected
