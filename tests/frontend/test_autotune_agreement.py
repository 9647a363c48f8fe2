"""What counts as the same result: by type, by norm, by element, by place."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support.documents import DATA, document, node, tensor, to_json  # noqa: E402

from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.frontend.planning import agreement  # noqa: E402
from cudnn_bindgen.frontend.planning.agreement import (  # noqa: E402
    Difference,
    compare,
    find_tolerances,
    has_values,
)
from cudnn_bindgen.frontend.planning.wanted import Wanted  # noqa: E402

COUNT = 4096


def item(data_type: str, count: int = COUNT) -> Wanted:
    return Wanted(1, "y", "out_0", "output", data_type, (count,), (1,))


def random() -> torch.Tensor:
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def stored(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype).view(torch.uint8).clone()


def difference(
    data_type: str, tolerance: float, one: torch.Tensor, other: torch.Tensor
) -> Difference:
    return compare(torch, item(data_type), tolerance, one, other)


FLOATS = {
    "BFLOAT16": (torch.bfloat16, 2.0**-6),
    "DOUBLE": (torch.float64, 2.0**-9),
    "FLOAT": (torch.float32, 2.0**-9),
    "FP8_E4M3": (torch.float8_e4m3fn, 2.0**-2),
    "FP8_E5M2": (torch.float8_e5m2, 2.0**-1),
    "HALF": (torch.float16, 2.0**-9),
}


@pytest.mark.parametrize("data_type", FLOATS)
def test_one_rounding_more_agrees_and_a_wrong_factor_does_not(data_type: str) -> None:
    dtype, tolerance = FLOATS[data_type]
    raw = random()
    once = stored(raw, dtype)
    # Rounded to 11 bits on the way, as TF32 does, or to the type itself.
    twice = stored(raw.to(torch.float16).double() * (1 + 2.0**-12), dtype)
    assert difference(data_type, tolerance, once, once) == Difference(0.0)
    assert difference(data_type, tolerance, once, twice).agrees
    wrong = stored(raw * 2.2, dtype)
    found = difference(data_type, tolerance, once, wrong)
    assert not found.agrees and found.error > 1 and found.problem == ""


@pytest.mark.parametrize("data_type", ["BFLOAT16", "FLOAT", "HALF"])
def test_one_wrong_element_of_many_differs(data_type: str) -> None:
    dtype, tolerance = FLOATS[data_type]
    raw = random()
    other = raw.clone()
    other[7] = raw[7] + 1
    found = difference(data_type, tolerance, stored(raw, dtype), stored(other, dtype))
    # The norm alone would let it pass for BFLOAT16.
    assert not found.agrees
    assert ((other - raw).norm() / raw.norm()) < 2.0**-5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_stand_at_the_same_places(value: float) -> None:
    raw = random()
    raw[5] = value
    one = stored(raw, torch.bfloat16)
    assert difference("BFLOAT16", 2.0**-6, one, one) == Difference(0.0)
    for place, put in ((5, 1.0), (5, -value if math.isinf(value) else math.inf), (6, value)):
        other = raw.clone()
        other[place] = put
        found = difference("BFLOAT16", 2.0**-6, one, stored(other, torch.bfloat16))
        assert "at other places" in found.problem and not found.agrees


def test_bytes_that_one_of_them_leaves_differ() -> None:
    one = stored(random(), torch.float32)
    other = one.clone()
    other[-4:] = 0xFF
    assert "unwritten bytes" in difference("FLOAT", 2.0**-9, one, other).problem
    # And none of either is the same.
    assert difference("FLOAT", 2.0**-9, other, other).agrees


def test_all_zeros() -> None:
    zeros = torch.zeros(4 * COUNT, dtype=torch.uint8)
    assert difference("FLOAT", 2.0**-9, zeros, zeros.clone()) == Difference(0.0)
    found = difference("FLOAT", 2.0**-9, zeros, stored(random(), torch.float32))
    assert found.error == math.inf and not found.agrees


@pytest.mark.parametrize("data_type", ["INT32", "INT8", "BOOLEAN", "UINT8", "INT4", "FP8_E5M3"])
def test_other_types_are_equal_or_differ(data_type: str) -> None:
    one = torch.arange(COUNT, dtype=torch.int64).to(torch.uint8)
    assert difference(data_type, 0.0, one, one.clone()) == Difference(0.0)
    other = one.clone()
    other[9] += 1
    assert difference(data_type, 0.0, one, other).problem == f"other values of {data_type}"


def test_types_that_are_packed_or_have_exponents_alone() -> None:
    # Two in a byte: 6 and 1, then -6 and 1; the other one has 4 for a 6.
    one = torch.tensor([0x27, 0x2F] * 8, dtype=torch.uint8)
    other = torch.tensor([0x26, *[0x2F], *[0x27, 0x2F] * 7], dtype=torch.uint8)
    found = compare(torch, item("FP4_E2M1", 32), 0.5, one, other)
    assert found.agrees and found.error > 0
    assert not compare(torch, item("FP4_E2M1", 32), 0.5, one, torch.full_like(one, 0x22)).agrees
    powers = torch.full((16,), 127, dtype=torch.uint8)
    doubled = powers.clone()
    doubled[3] = 128
    found = compare(torch, item("FP8_E8M0", 16), 0.5, powers, doubled)
    assert found.error == pytest.approx(0.5)  # 1 of 16 by its whole size: a norm of a quarter
    assert not compare(torch, item("FP8_E8M0", 16), 0.5, powers, powers + 3).agrees
    assert "places" in compare(torch, item("FP8_E8M0", 16), 0.5, powers, powers | 0x80).problem


def test_complex_numbers() -> None:
    one = torch.randn(COUNT, dtype=torch.complex64)
    assert difference(
        "COMPLEX_FP32", 2.0**-9, stored(one, one.dtype), stored(one, one.dtype)
    ).agrees
    found = difference("COMPLEX_FP32", 2.0**-9, stored(one, one.dtype), stored(-one, one.dtype))
    assert not found.agrees


def test_large_outputs_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stored(random(), torch.float32)
    other = stored(random() * (1 + 2.0**-10), torch.float32)
    whole = difference("FLOAT", 2.0**-9, one, other)
    monkeypatch.setattr(agreement, "_CHUNK", 1000)
    parts = difference("FLOAT", 2.0**-9, one, other)
    assert parts.error == pytest.approx(whole.error) == pytest.approx(0.5, rel=0.01)


def test_whether_there_is_something_to_compare() -> None:
    poisoned = torch.full((4 * COUNT,), 0xFF, dtype=torch.uint8)
    assert not has_values(torch, item("FLOAT"), poisoned)
    assert not has_values(torch, item("BFLOAT16"), poisoned)
    assert has_values(torch, item("INT32"), poisoned)
    assert has_values(torch, item("FLOAT", 0), poisoned[:0])
    poisoned[8:12] = 0
    assert has_values(torch, item("FLOAT"), poisoned)


# What is tolerated


def tolerances(types: tuple[str, str, str], compute: str = "FLOAT") -> float:
    """Return that of y = (a + b) * b, with the types of a, of the sum and of y."""
    a, between, y = types
    raw = document(
        [
            node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 4}, mode="ADD"),
            node("POINTWISE", {"IN_0": 4, "IN_1": 2}, {"OUT_0": 3}, mode="MUL"),
        ],
        [
            tensor(1, data_type=a),
            tensor(2, data_type=a),
            tensor(3, data_type=y),
            tensor(4, data_type=between, is_virtual=True),
        ],
    )
    raw["context"]["compute_data_type"] = compute
    found = find_tolerances(read_graph(to_json(raw)))
    return found[3]


@pytest.mark.parametrize(
    ("types", "bits"),
    [
        (("FLOAT", "FLOAT", "FLOAT"), -9),  # TF32
        (("HALF", "FLOAT", "HALF"), -9),
        (("HALF", "FLOAT", "BFLOAT16"), -6),
        (("FLOAT", "BFLOAT16", "FLOAT"), -6),  # what is between counts
        (("BFLOAT16", "FLOAT", "FLOAT"), -9),  # inputs are exact
        (("FP8_E4M3", "FLOAT", "HALF"), -9),
        (("HALF", "FLOAT", "FP8_E4M3"), -2),
        (("HALF", "FLOAT", "FP8_E5M2"), -1),
        (("HALF", "FLOAT", "FP4_E2M1"), -1),  # never more than a half
    ],
)
def test_tolerances_by_type(types: tuple[str, str, str], bits: int) -> None:
    assert tolerances(types) == 2.0**bits


def test_tolerances_of_doubles_and_integers() -> None:
    assert tolerances(("DOUBLE", "DOUBLE", "DOUBLE"), "DOUBLE") == 2.0**-51
    assert tolerances(("INT32", "INT32", "INT32"), "INT32") == 0.0
    assert tolerances(("HALF", "FLOAT", "BOOLEAN")) == 0.0


def test_attention_rounds_its_probabilities_to_the_type_of_its_inputs() -> None:
    graph = read_graph((DATA / "frontends/1.32.0/sdpa_fp8.json").read_bytes())
    assert {*find_tolerances(graph).values()} == {2.0**-2}
