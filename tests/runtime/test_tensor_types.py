"""cuDNN's data types in DLPack's words: sizes agree, and both tables of PyTorch's names."""

from __future__ import annotations

import pytest

from cudnn_bindgen.codegen.bind.torch_operator import DTYPES
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.runtime.tensor_types import (
    FRAMEWORK_NAMES,
    STORED,
    describe_stored,
    describe_type,
    parse_type,
)


def test_every_data_type_is_known() -> None:
    assert {*STORED} == {*BITS}


@pytest.mark.parametrize("data_type", STORED)
def test_what_holds_elements_is_as_large_as_they_are(data_type: str) -> None:
    for stored in STORED[data_type]:
        assert stored.bits * stored.lanes == BITS[data_type] * stored.pack
        assert 0 <= stored.code < 256
        assert stored.bits < 256
        assert stored.lanes < 65536


def test_operators_and_run_make_the_same_outputs() -> None:
    """`codegen` cannot import `runtime`: each has a table."""
    made = {name: (FRAMEWORK_NAMES[name], STORED[name][0].pack) for name in FRAMEWORK_NAMES}
    assert {name: made[name] for name in DTYPES} == dict(DTYPES)


def test_the_words_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for data_type, name in FRAMEWORK_NAMES.items():
        dtype = getattr(torch, name)
        assert dtype.itemsize * 8 == BITS[data_type] * STORED[data_type][0].pack
        stored = STORED[data_type][0]
        if stored.code not in (1, 5, 6):  # uint8 stands for bits; complex and bool have other words
            assert describe_type(stored.code, stored.bits, stored.lanes) == name


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        ("HALF", "float16"),
        ("FP8_E4M3", "float8_e4m3fn or uint8"),
        ("BOOLEAN", "uint8 (8 elements each)"),
        (
            "FP4_E2M1",
            "float4_e2m1fn_x2 (2 elements each) or float4_e2m1fn or uint8 (2 elements each)",
        ),
        ("INT8x32", "int8_x32"),
    ],
)
def test_what_is_said_of_a_data_type(data_type: str, expected: str) -> None:
    assert describe_stored(data_type) == expected


def test_names_of_types_are_read_as_they_are_written() -> None:
    written = [one[:3] for every in STORED.values() for one in every]
    written += [(0, 16, 1), (1, 32, 1), (5, 32, 1), (11, 8, 1)]
    assert [parse_type(describe_type(*one)) for one in written] == written
    assert {parse_type(name) for name in ("qint8", "bits16", "int", "_x2", "")} == {(3, 8, 1)}


def test_types_that_nobody_knows_have_a_description() -> None:
    assert describe_type(99, 24, 1) == "code99_24"
    assert describe_type(6, 8, 1) == "bool"
    assert describe_type(5, 64, 1) == "complex64"
