"""Arguments of compiled modules: which are taken, how they are rounded, what is refused and how."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest
from support.cases import CASES, SCALAR_TYPES
from support.standin import Standin, rounded

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError

Load = Callable[[str], ModuleType]
Place = Callable[..., Any]


def call_counts(standin: Standin) -> list[int]:
    calls = ("cudnnBackendCreateDescriptor", "cudnnBackendExecute", "cudnnSetStream", "cudnnCreate")
    return [standin.calls(call) for call in (*calls, "cuMemcpyHtoDAsync", "cuMemsetD8Async")]


# Scalars

FLOATS = {"HALF": (10, -14), "BFLOAT16": (7, -126), "FLOAT": (23, -126)}
"""Bits of the mantissa, and the exponent of the smallest normal number."""


@pytest.fixture
def seen(load_case: Load, place: Place) -> Callable[[str, Any], float]:
    """Call with a value for one scalar and zeros for all else; return what the library read."""
    module = load_case("bare_scalars")
    x, y = place("bare_scalars").arguments[:2]
    (ctypes.c_double * 5).from_address(x)[:] = [0.0] * 5
    zeros = dict.fromkeys([operand.argument for operand in module.OPERANDS[2:]], 0)
    weights = {argument: 100 + position for position, argument in enumerate(zeros)}

    def seen(argument: str, value: Any) -> float:
        module.execute(x, y, **{**zeros, argument: value})
        # Exact: the weights have 7 bits, the values of all types but double at most 42.
        return float(ctypes.c_double.from_address(y).value / weights[argument])

    return seen


@pytest.mark.parametrize("prefix", ["a", "b"])
@pytest.mark.parametrize("data_type", SCALAR_TYPES)
def test_scalars_reach_the_library(
    seen: Callable[[str, Any], float], data_type: str, prefix: str
) -> None:
    argument = f"{prefix}_{data_type.lower()}"
    values: list[Any] = [1, -3, 250, True]
    if data_type == "INT32":
        values += [2**31 - 1, -(2**31)]
    elif data_type == "INT64":
        values += [2**40, -(2**40)]
    else:
        values += [0.5, -1.75, 2.0**-6, math.inf, -math.inf]
        assert math.isnan(seen(argument, math.nan))
        assert math.isnan(seen(argument, -math.nan))
    for value in values:
        assert seen(argument, value) == value


def nearest(value: float, data_type: str) -> float:
    """Round to nearest even in exact arithmetic."""
    mantissa, smallest = FLOATS[data_type]
    exponent = max(math.frexp(value)[1] - 1, smallest)
    unit = Fraction(2) ** (exponent - mantissa)
    return float(round(Fraction(value) / unit) * unit)


def largest(data_type: str) -> float:
    mantissa, smallest = FLOATS[data_type]
    return math.ldexp(2 - 2.0**-mantissa, 1 - smallest)


def edge_values(data_type: str) -> Iterator[float]:
    """Values around which rounding goes wrong: ties and their neighbours, subnormals."""
    mantissa, smallest = FLOATS[data_type]
    for exponent in (0, 1, -1, 9, smallest, smallest + 1):
        for step in (0, 1, 2, 3, 2**mantissa - 1):
            for part in (0, 0.5):  # a number of the type, a tie
                yield math.ldexp(1 + (step + part) * 2.0**-mantissa, exponent)
    for halves in (*range(8), 2 ** (mantissa + 1) - 1, 2 ** (mantissa + 1) + 1):
        yield math.ldexp(halves / 2, smallest - mantissa)  # subnormals and ties between them
    yield from (largest(data_type), 5e-324, 1e-300, 0.1, 1 / 3)


@pytest.mark.parametrize("data_type", FLOATS)
def test_rounding(seen: Callable[[str, Any], float], data_type: str) -> None:
    argument = f"a_{data_type.lower()}"
    for edge in edge_values(data_type):
        # The next ones would be lost on the way through a float.
        near = (math.nextafter(edge, 0), edge, math.nextafter(edge, 1))
        for value in (*near, edge * (1 - 2**-30), edge * (1 + 2**-30)):
            for signed in (value, -value):
                if abs(signed) <= largest(data_type):
                    assert seen(argument, signed) == nearest(signed, data_type), signed.hex()


@pytest.mark.parametrize("data_type", FLOATS)
def test_all_short_values(seen: Callable[[str, Any], float], data_type: str) -> None:
    for bits in range(0, 0x7F80, 7):
        (value,) = struct.unpack(">f", struct.pack(">I", bits << 16))
        if value <= largest(data_type):
            assert seen(f"b_{data_type.lower()}", value) == rounded(value, data_type.lower())


@pytest.mark.parametrize("data_type", [*FLOATS, "DOUBLE", "INT32", "INT64"])
def test_overflow(seen: Callable[[str, Any], float], standin: Standin, data_type: str) -> None:
    argument = f"a_{data_type.lower()}"
    if data_type in FLOATS:
        mantissa, smallest = FLOATS[data_type]
        tie = math.ldexp(2 - 2.0 ** -(mantissa + 1), 1 - smallest)
        assert seen(argument, math.nextafter(tie, 0)) == largest(data_type)
        values: list[Any] = [tie, -tie, 2 * tie, 1.7e308, 10**400]
    elif data_type == "DOUBLE":
        values = [10**400, -(10**400), 10**5000]
    else:
        limit = 2 ** (31 if data_type == "INT32" else 63)
        values = [limit, -limit - 1, 2**64, 10**5000]
    before = standin.calls("cudnnBackendExecute")
    for value in values:
        with pytest.raises(OperandError, match=f"^{argument}: expected an? "):
            seen(argument, value)
    assert standin.calls("cudnnBackendExecute") == before
    assert seen(argument, 2) == 2


class Number:
    """What NumPy's scalars offer."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)


class Array(Number):
    """What tensors offer: they convert to numbers, and are none."""

    def __dlpack__(self) -> None: ...


class CudaArray(Number):
    __cuda_array_interface__ = None


@pytest.mark.parametrize("data_type", SCALAR_TYPES)
def test_types_of_scalars(seen: Callable[[str, Any], float], data_type: str) -> None:
    argument = f"a_{data_type.lower()}"
    assert seen(argument, Number(7)) == 7
    wrong = ["1", b"1", None, Array(1), CudaArray(1), [1], 1j]
    for value in [*wrong, 1.0] if "INT" in data_type else wrong:
        with pytest.raises(OperandTypeError, match=f"^{argument}: expected an?"):
            seen(argument, value)
    assert seen(argument, 3) == 3


# Addresses


def addresses(name: str = "parts") -> list[str]:
    names = [operand.argument for operand in CASES[name].operands]
    return [*names, "workspace_ptr", "stream"]


@pytest.mark.parametrize("argument", addresses())
def test_types_of_addresses(load_case: Load, place: Place, standin: Standin, argument: str) -> None:
    module = load_case("parts")
    operands = place("parts")
    before = call_counts(standin)
    right = operands.by_name.get(argument, 0)
    wrong: list[Any] = [
        *(str(right), b"", float(right), None, True, False, 1j, [right], object(), "x" * 1000),
        *(Array(right), CudaArray(right)),
    ]
    for value in wrong:
        with pytest.raises(OperandTypeError, match=f"^{argument}: expected .*, got ") as caught:
            module.execute(**{**operands.by_name, argument: value})
        assert caught.value.argument == argument
        assert len(str(caught.value)) < 200
        assert isinstance(caught.value, TypeError)
    for value in (-1, -(2**63), 2**64, 2**64 + right, -(2**70), 10**5000, -(10**5000), Number(-1)):
        with pytest.raises(OperandError, match=f"^{argument}: expected an address from 0 to"):
            module.execute(**{**operands.by_name, argument: value})
    assert call_counts(standin) == before
    operands.check_untouched()
    module.execute(**{**operands.by_name, argument: Number(right)})
    operands.check()


def test_numpy_integers(load_case: Load, place: Place) -> None:
    numpy = pytest.importorskip("numpy")
    module = load_case("parts")
    operands = place("parts")
    for convert in (numpy.uint64, numpy.int64, numpy.intp):
        operands.fill()
        module.execute(*map(convert, operands.arguments), stream=convert(0))
        operands.check()
    with pytest.raises(OperandTypeError, match="data_ptr"):
        module.execute(*map(numpy.asarray, operands.arguments))


@pytest.mark.parametrize("name", ["thd", "parts"])
def test_misaligned_and_null_addresses(
    load_case: Load, place: Place, standin: Standin, name: str
) -> None:
    module = load_case(name)
    operands = place(name)
    before = call_counts(standin)
    for operand in module.OPERANDS:
        right = operands.by_name[operand.argument]
        offsets = [2**power for power in range(5) if 2**power < operand.alignment]
        assert offsets
        for value in (0, *(right + offset for offset in offsets)):
            match = f"^{operand.argument}: .*uid {operand.uid}.*got {hex(value) if value else 0}$"
            with pytest.raises(OperandError, match=match):
                module.execute(**{**operands.by_name, operand.argument: value})
            with pytest.raises(OperandError, match=match):
                module.execute_uids({**operands.by_uid, operand.uid: value})
    for value in (1, 8, 64, 0x1040):
        with pytest.raises(OperandError, match=f"^workspace_ptr: .* of 128, got {hex(value)}$"):
            module.execute(*operands.arguments, workspace_ptr=value)
    assert call_counts(standin) == before
    operands.check_untouched()
    module.execute(*operands.arguments)
    operands.check()


def test_every_operand_is_aligned_as_declared(load_case: Load, place: Place) -> None:
    """An address that is aligned to no more than the declaration is taken."""
    module = load_case("thd")
    operands = place("thd")
    assert {operand.alignment for operand in module.OPERANDS} == {4, 8, 16}
    arguments = operands.arguments
    for slot, operand in enumerate(module.OPERANDS):
        if operand.alignment == 8:
            # The spare doubles behind it make room; the library reads doubles.
            moved = [*arguments[:slot], arguments[slot] + 8, *arguments[slot + 1 :]]
            module.execute(*moved)
