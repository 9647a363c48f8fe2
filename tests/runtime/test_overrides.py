"""A module's Overrides: setters, values, and what they refuse."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.overriding import B

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError

Load = Callable[[str], ModuleType]

direct = pytest.mark.parametrize("policy", ["direct"], indirect=True)
pytestmark = direct


@pytest.fixture
def ov(product: ModuleType) -> Any:
    return product.Overrides()


# Setters


def test_a_setter_for_each_operand_takes_dims_by_axis_and_strides_by_keyword(ov: Any) -> None:
    names = [name for name in dir(ov) if name.startswith("set_")]
    assert names == ["set_a", "set_b", "set_c", "set_d"], "of operands, not of scalars"
    ov.set_a(1, 5, 4)
    ov.set_b(b=1, k=3, n=8, stride_k=9)
    ov.set_d(d0=5, d1=2)
    assert (
        repr(ov) == "Overrides(a=((1, 5, 4), (20, 4, 1)), b=((1, 3, 8), (27, 9, 1)), "
        "d=((5, 2), (2, 1)))"
    )


@pytest.mark.parametrize("operand", ["b", B])
def test_an_operand_by_name_or_uid_as_a_whole(ov: Any, operand: object) -> None:
    ov.override(operand, [1, 3, 8])
    assert repr(ov) == "Overrides(b=((1, 3, 8), (24, 8, 1)))"
    ov.override(operand, (1, 3, 8), (None, 10, None))
    assert repr(ov) == "Overrides(b=((1, 3, 8), (30, 10, 1)))"
    ov.override(operand, iter((1, 3, 8)), [64, 16, 2])
    assert repr(ov) == "Overrides(b=((1, 3, 8), (64, 16, 2)))"


def test_symbols_are_keywords_and_those_left_out_stay(ov: Any) -> None:
    ov.set(M=5)
    ov.set(N=6)
    ov.set()
    assert repr(ov) == (
        "Overrides(a=((1, 5, 4), (20, 4, 1)), b=((1, 4, 6), (24, 6, 1)), "
        "c=((1, 5, 6), (30, 6, 1)), d=((5, 2), (2, 1)))"
    )
    for wrong in ({"Q": 1}, {"m": 1}):
        with pytest.raises(TypeError, match="unexpected keyword"):
            ov.set(**wrong)
    with pytest.raises(TypeError, match="positional"):
        ov.set(5)


def test_strides_of_a_symbol_that_keeps_the_declared_ones(ov: Any) -> None:
    ov.set(K=2)
    assert repr(ov) == "Overrides(b=((1, 2, 8), (32, 8, 1)))"
    ov.set(N=6)
    assert repr(ov) == "Overrides(b=((1, 2, 6), (24, 6, 1)), c=((1, 12, 6), (72, 6, 1)))", (
        "for rows of a buffer with as many as declared"
    )


def test_a_symbol_keeps_other_dims_and_decides_strides_anew(ov: Any) -> None:
    ov.set_b(1, 3, 8, stride_b=64, stride_k=16)
    ov.set(N=5)
    assert "b=((1, 3, 5), (20, 5, 1))" in repr(ov)


def test_a_module_without_symbols_has_no_set(load: Load) -> None:
    bare = load("product_bare").Overrides
    assert not hasattr(bare, "set")
    assert {"override", "reset", "copy", "set_a"} <= {*dir(bare)}


def test_numbers_may_be_any_that_are_whole(ov: Any) -> None:
    class Whole:
        def __index__(self) -> int:
            return 5

    ov.set(M=Whole())
    assert repr(ov).startswith("Overrides(a=((1, 5, 4), (20, 4, 1))")
    ov.set_a(1, Whole(), 4, stride_m=Whole())
    assert repr(ov).startswith("Overrides(a=((1, 5, 4), (25, 5, 1))")


# Values


def test_equality_and_hash_are_by_value(product: ModuleType, ov: Any) -> None:
    other = product.Overrides()
    assert ov == other
    assert hash(ov) == hash(other)
    ov.set(M=5)
    assert ov != other
    other.set_d(5, 2)
    other.set_c(1, 5, 8)
    other.set_a(1, 5, 4, stride_b=20)
    assert ov == other, "in whatever order"
    assert {ov: 1}[other] == 1
    other.set_a(1, 5, 4, stride_b=21)
    assert ov != other
    declared = product.Overrides()
    declared.set_a(1, 12, 4)
    assert declared != product.Overrides(), "what is set is sent"
    assert ov != "Overrides()"
    assert (ov == None) is False  # noqa: E711


def test_hashes_differ(ov: Any, load: Load) -> None:
    """Else a stream of shapes that never repeat looks to launch records as if it did."""
    seen = set()
    for m in range(13):
        for n in range(9):
            ov.set(M=m, N=n)
            seen.add(hash(ov))
    assert len(seen) == 13 * 9
    bare = load("product_bare").Overrides()
    seen.clear()
    for m in range(60):
        for n in range(60):
            bare.set_c(m, 1, n, stride_b=96, stride_m=8, stride_n=1)
            seen.add(hash(bare))
    assert len(seen) == 60 * 60


def test_a_copy_is_its_own(ov: Any) -> None:
    ov.set(M=5)
    other = ov.copy()
    assert other == ov
    assert type(other) is type(ov)
    other.set(M=6)
    assert repr(ov).startswith("Overrides(a=((1, 5, 4)")
    ov.reset()
    assert repr(other).startswith("Overrides(a=((1, 6, 4)")


def test_only_copy_makes_another(product: ModuleType, ov: Any) -> None:
    """Anything else would make one that overrides nothing, without a word."""
    ov.set(M=5)
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            make(ov)
    with pytest.raises(TypeError):
        product.Overrides(M=5)
    with pytest.raises(AttributeError):
        ov.M = 5


def test_reset_forgets_all(product: ModuleType, ov: Any) -> None:
    ov.set(M=5)
    ov.set_b(1, 4, 8, stride_n=2)
    ov.reset()
    assert repr(ov) == "Overrides()"
    assert ov == product.Overrides()
    ov.set(N=6)
    assert repr(ov) == "Overrides(b=((1, 4, 6), (24, 6, 1)), c=((1, 12, 6), (72, 6, 1)))", (
        "nothing of before is left"
    )


# What is refused


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "above": (lambda ov: ov.set_a(1, 13, 4), "a.m: expected at most 12, as declared, got 13"),
    "symbol above": (
        lambda ov: ov.set(N=2, M=13),
        "a.m: expected at most 12, as declared, got 13 from M=13, N=2",
    ),
    "negative": (lambda ov: ov.set_a(1, -1, 4), "a.m: expected a dim that is not negative, got -1"),
    "symbol negative": (
        lambda ov: ov.set(M=-1),
        "a.m: expected a dim that is not negative, got -1 from M=-1",
    ),
    "stride": (
        lambda ov: ov.set_b(1, 4, 8, stride_k=-8),
        "b.k: expected a stride that is not negative, got -8",
    ),
    "rank": (lambda ov: ov.override("a", [1, 5]), "a: expected 3 dims (b, m, k), got 2"),
    "no rank": (lambda ov: ov.override("d", []), "d: expected 2 dims (d0, d1), got 0"),
    "strides": (
        lambda ov: ov.override("a", [1, 5, 4], [4, 1]),
        "a: expected 3 strides (b, m, k), got 2",
    ),
    "operand": (
        lambda ov: ov.override("z", [1]),
        "operand: expected one of a (1), b (2), c (3), d (4), got 'z'",
    ),
    "uid": (
        lambda ov: ov.override(9, [1]),
        "operand: expected one of a (1), b (2), c (3), d (4), got 9",
    ),
    "bool as uid": (
        lambda ov: ov.override(True, [1, 5, 4]),
        "operand: expected one of a (1), b (2), c (3), d (4), got True",
    ),
    "scalar": (
        lambda ov: ov.override("alpha", [1]),
        "operand: expected one of a (1), b (2), c (3), d (4), got 'alpha'",
    ),
    "64 bits": (
        lambda ov: ov.set_a(1, 2**63, 4),
        f"a.m: expected a number of 64 bits, got {2**63}",
    ),
    "symbol of 64 bits": (
        lambda ov: ov.set(M=-(2**63) - 1),
        f"M: expected a number of 64 bits, got {-(2**63) - 1}",
    ),
    "reach": (
        lambda ov: ov.set_b(1, 4, 8, stride_n=2**62),
        f"b.n: expected a size that 64 bits hold, got {8}",
    ),
}


@pytest.mark.parametrize(("wrong", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_values_leave_those_from_before(
    ov: Any, wrong: Callable[[Any], object], message: str
) -> None:
    for values in ({}, {"M": 5}, {"N": 7}):
        ov.set(**values)
        before = (repr(ov), hash(ov), ov.copy())
        with pytest.raises(OperandError) as caught:
            wrong(ov)
        assert str(caught.value) == message
        assert (repr(ov), hash(ov), ov) == before
        ov.set(M=6)
        assert "a=((1, 6, 4), (24, 4, 1))" in repr(ov)


@pytest.mark.parametrize("wrong", [5.0, "5", None, True, [5], b"5"])
def test_what_is_no_whole_number(ov: Any, wrong: object) -> None:
    got = "an object of type list" if isinstance(wrong, list) else repr(wrong)
    with pytest.raises(OperandTypeError) as caught:
        ov.set_a(1, wrong, 4)
    assert str(caught.value) == f"a.m: expected an int, got {got}"
    if wrong is not None:
        with pytest.raises(OperandTypeError) as caught:
            ov.set(M=wrong)
        assert str(caught.value) == f"M: expected an int, got {got}"
        with pytest.raises(OperandTypeError, match=r"^a\.k: expected an int"):
            ov.set_a(1, 5, 4, stride_k=wrong)
    assert repr(ov) == "Overrides()"


def test_errors_of_a_number_itself_pass_through(ov: Any) -> None:
    class Broken:
        def __index__(self) -> int:
            raise ZeroDivisionError

    for call in (lambda: ov.set(M=Broken()), lambda: ov.override("a", [1, Broken(), 4])):
        with pytest.raises(ZeroDivisionError):
            call()
    with pytest.raises(TypeError):
        ov.override("a", 5)
    assert repr(ov) == "Overrides()"


def test_unbounded_takes_what_is_larger_than_declared(load: Load) -> None:
    ov = load("product_bare").Overrides()
    ov.set_a(3, 1000, 4)
    assert repr(ov) == "Overrides(a=((3, 1000, 4), (4000, 4, 1)))"
    with pytest.raises(OperandError, match=r"^a\.m: expected a size that 64 bits hold, got"):
        ov.set_a(3, 2**61, 4)
    with pytest.raises(OperandError, match=r"^a\.m: expected a dim that is not negative, got -1$"):
        ov.set_a(3, -1, 4)
    assert repr(ov) == "Overrides(a=((3, 1000, 4), (4000, 4, 1)))"
