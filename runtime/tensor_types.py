"""cuDNN's data types in the words of DLPack, NumPy and PyTorch."""

from __future__ import annotations

from collections import namedtuple

from cudnn_bindgen.module_data import Operand


# Not typing.NamedTuple: that module takes 10 ms to import.
class Stored(namedtuple("Stored", ("code", "bits", "lanes", "pack"), defaults=(1, 1))):
    """One way in which a framework may hold elements of a data type.

    Attributes
    ----------
    code, bits, lanes
        DLDataType.
    pack
        How many of cuDNN's elements one element of the framework holds.
    """

    __slots__ = ()


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_OPAQUE = 3
_FP8_E4M3FN, _FP8_E5M2, _FP8_E8M0, _FP4_E2M1 = 10, 12, 14, 17
# Frameworks without a type of their own hold such elements as bytes.
_BYTE = Stored(_UINT, 8)
_TWO_A_BYTE = Stored(_UINT, 8, pack=2)

# Bytes of a scalar's storage, by data type.
SCALAR_BYTES = {"BFLOAT16": 2, "DOUBLE": 8, "FLOAT": 4, "HALF": 2, "INT32": 4, "INT64": 8}

# What is accepted for each data type, the usual one first.
STORED: dict[str, tuple[Stored, ...]] = {
    "BFLOAT16": (Stored(_BFLOAT, 16),),
    "BOOLEAN": (Stored(_UINT, 8, pack=8),),
    "BYTE_BOOLEAN": (Stored(_BOOL, 8), _BYTE),
    "COMPLEX_FP32": (Stored(_COMPLEX, 64),),
    "COMPLEX_FP64": (Stored(_COMPLEX, 128),),
    "DOUBLE": (Stored(_FLOAT, 64),),
    "FAST_FLOAT_FOR_FP8": (Stored(_FLOAT, 32),),
    "FLOAT": (Stored(_FLOAT, 32),),
    "FP4_E2M1": (Stored(_FP4_E2M1, 4, 2, pack=2), Stored(_FP4_E2M1, 4), _TWO_A_BYTE),
    "FP8_E4M3": (Stored(_FP8_E4M3FN, 8), _BYTE),
    "FP8_E5M2": (Stored(_FP8_E5M2, 8), _BYTE),
    "FP8_E5M3": (_BYTE,),
    "FP8_E8M0": (Stored(_FP8_E8M0, 8), _BYTE),
    "HALF": (Stored(_FLOAT, 16),),
    "INT32": (Stored(_INT, 32),),
    "INT4": (Stored(_INT, 4), _TWO_A_BYTE),
    "INT64": (Stored(_INT, 64),),
    "INT8": (Stored(_INT, 8),),
    "INT8x32": (Stored(_INT, 8, 32),),
    "INT8x4": (Stored(_INT, 8, 4), Stored(_INT, 32)),
    "UINT8": (_BYTE,),
    "UINT8x4": (Stored(_UINT, 8, 4), Stored(_UINT, 32), Stored(_INT, 32)),
}

# The names by which PyTorch and NumPy (with ml_dtypes) know what stands first above.
FRAMEWORK_NAMES: dict[str, str] = {
    "BFLOAT16": "bfloat16",
    "BOOLEAN": "uint8",
    "BYTE_BOOLEAN": "bool",
    "COMPLEX_FP32": "complex64",
    "COMPLEX_FP64": "complex128",
    "DOUBLE": "float64",
    "FLOAT": "float32",
    "FP4_E2M1": "float4_e2m1fn_x2",
    "FP8_E4M3": "float8_e4m3fn",
    "FP8_E5M2": "float8_e5m2",
    "FP8_E8M0": "float8_e8m0fnu",
    "HALF": "float16",
    "INT32": "int32",
    "INT64": "int64",
    "INT8": "int8",
    "UINT8": "uint8",
}


_CODES = {
    _INT: "int",
    _UINT: "uint",
    _FLOAT: "float",
    _BFLOAT: "bfloat",
    _COMPLEX: "complex",
    _BOOL: "bool",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    _FP8_E4M3FN: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    _FP8_E5M2: "float8_e5m2",
    13: "float8_e5m2fnuz",
    _FP8_E8M0: "float8_e8m0fnu",
    15: "float6_e2m3fn",
    16: "float6_e3m2fn",
    _FP4_E2M1: "float4_e2m1fn",
}


def describe_type(code: int, bits: int, lanes: int) -> str:
    """Return a DLDataType as frameworks write it: ``float16``, ``float4_e2m1fn_x2``."""
    name = _CODES.get(code, f"code{code}_")
    sized = name if name == "bool" or "_" in name.rstrip("_") else f"{name}{bits}"
    return sized if lanes == 1 else f"{sized}_x{lanes}"


def parse_type(name: str) -> tuple[int, int, int]:
    """Return the DLDataType that `describe_type` writes so; one that nobody accepts for others."""
    start, _, lanes = name.rpartition("_x")
    single, count = (start, int(lanes)) if start and lanes.isdecimal() else (name, 1)
    word = single.partition("_")[0].rstrip("0123456789")
    digits = single.partition("_")[0].removeprefix(word)
    for code, known in _CODES.items():
        if single == known and (code == _BOOL or digits):
            return code, int(digits or 8), count
        if word == known and single == f"{word}{digits}" and digits:
            return code, int(digits), count
    return _OPAQUE, 8, 1


def describe_stored(data_type: str) -> str:
    """Return which types are accepted for a data type: ``float8_e4m3fn or uint8``."""
    names = []
    for stored in STORED[data_type]:
        name = describe_type(stored.code, stored.bits, stored.lanes)
        name += f" ({stored.pack} elements each)" if stored.pack > 1 else ""
        names.append(name)
    return " or ".join(names)


def span_of(operand: Operand) -> int:
    """Return the bytes from an operand's address on that its elements take, at most 2**62."""
    if 0 in operand.dim:
        return 0
    stored = STORED[operand.data_type][0]
    steps = zip(operand.dim, operand.stride, strict=True)
    elements = 1 + sum((size - 1) * abs(step) for size, step in steps)
    return min(elements * stored.bits * stored.lanes // (8 * stored.pack) + 1, 2**62)
