"""cuDNN's data types, as nvidia-cudnn-frontend 1.32 names them: what is known of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class DataType(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    bits
        Of one element.
    torch
        PyTorch's name of the type that holds elements; empty if it has none.
    pack
        How many elements one of PyTorch's holds.
    digits
        Bits of the significand with the hidden one (IEEE 754; OCP's 8-bit and microscaling
        formats); 0 for types without rounding.
    """

    bits: int
    torch: str = ""
    pack: int = 1
    digits: int = 0


DATA_TYPES: Mapping[str, DataType] = {
    "BFLOAT16": DataType(16, "bfloat16", digits=8),
    "BOOLEAN": DataType(1, "uint8", pack=8),
    "BYTE_BOOLEAN": DataType(8, "bool"),
    "COMPLEX_FP32": DataType(64, "complex64", digits=24),
    "COMPLEX_FP64": DataType(128, "complex128", digits=53),
    "DOUBLE": DataType(64, "float64", digits=53),
    "FAST_FLOAT_FOR_FP8": DataType(32, digits=13),
    "FLOAT": DataType(32, "float32", digits=24),
    "FP4_E2M1": DataType(4, "float4_e2m1fn_x2", pack=2, digits=2),
    "FP8_E4M3": DataType(8, "float8_e4m3fn", digits=4),
    "FP8_E5M2": DataType(8, "float8_e5m2", digits=3),
    "FP8_E5M3": DataType(8),
    "FP8_E8M0": DataType(8, "float8_e8m0fnu", digits=1),
    "HALF": DataType(16, "float16", digits=11),
    "INT32": DataType(32, "int32"),
    "INT4": DataType(4),
    "INT64": DataType(64, "int64"),
    "INT8": DataType(8, "int8"),
    "INT8x32": DataType(256),
    "INT8x4": DataType(32),
    "UINT8": DataType(8, "uint8"),
    "UINT8x4": DataType(32),
}
BITS: Mapping[str, int] = {name: row.bits for name, row in DATA_TYPES.items()}

# `pass_by_value.index` → data type (the frontend's pass_by_values_t).
SCALAR_TYPES = ("INT64", "INT32", "HALF", "FLOAT", "DOUBLE", "BFLOAT16")
# Those that Python passes as int.
INTEGERS = ("INT32", "INT64")
