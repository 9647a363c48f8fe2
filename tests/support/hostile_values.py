"""What a hostile file may hold at any place: names, numbers, and text that stands for itself.

A text that begins with `RAW` is written as it stands, without quotes (``RAW + "1e400"``); a key
that holds `TWIN` is written without what follows, so that an object can have one key twice.
"""

from __future__ import annotations

from typing import Any

RAW = "@raw@"
TWIN = "@twin@"

_WORDS = """
    class def cdef cpdef cimport nogil gil except noexcept ctypedef include extern inline public
    None True False self print exec match type case api readonly struct union enum fused bint
    size_t void char int long double float const volatile namespace template operator new delete
    execute enqueue workspace workspace_ptr stream queue slots address operands graph plan parts
    x x_ptr x_ptr_ptr _x __init__ __getattr__ __name__ NULL EOF errno stdin linux unix i386 nan
"""

NAMES = [
    *_WORDS.split(),
    "",
    " ",
    "a'b\"c",
    '"""\nimport os\n"""',
    "'''",
    "\\",
    '\\"""\nimport os',
    "\\N{BULLET}\\x41\\u202e",
    "a\nimport os\n",
    "a\rimport os\r\n",
    "\x0c\x0b\x1c\x85\u2028\u2029x",
    "a\0b",
    "\0",
    "\x1b[2J\x07",
    "\u202e\u2066abc\u2069",
    "\ud800",
    "a\udcffb",
    "\U0001f600\u2603",
    "\ufdfa" * 50,
    "a" + "\u0301\u0316" * 300,
    "\uff51\u212a\u017f\u00df\u0130\u2126",
    "{{ source }}{% for x in y %}{# #}",
    "%s{0}${x}`$.a`",
    "# cython: language_level=2",
    "\n# distutils: sources=x.c",
    "coding=utf-7",
    "tensor_3",
    "0::Y",
    "::" * 500,
    "x" * 10_000,
    "\u202e" * 10_000,
    "\\" * 10_000,
    "0",
    "-1",
    "1_2",
    "9" * 30,
    "q" * 39 + "_2",
    "q_ptr",
    "q_ragged_offset",
    "json_version",
    "uid",
]

NUMBERS: list[Any] = [
    *(-1, 0, 1, 2, -2, 3, 7, 15, 16, 127, 128, 255, 256, 2**15, 2**16, 2**20, 2**20 + 1),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63)),
    *(-(2**63) - 1, 2**64 - 1, 2**64, 2**65, 10**40, 10**400),
    *(0.0, -0.0, 0.5, 1.0, 5e-324, 1.7976931348623157e308, 3.5e38, float("nan"), float("inf")),
    *(float("-inf"), True, False),
    *(RAW + text for text in ("1e400", "-1e400", "1E5", "1.0", "-0", "0x10", "01", "1e-400")),
    *(
        RAW + text
        for text in ("NaN", "Infinity", "1" * 5000, "0." + "1" * 5000, "sNaN", "1e999999")
    ),
]

DEPTHS = (3, 98, 99, 100, 101, 400, 900, 990, 1000, 1100, 5000)

# What a value may be instead of what it is; fresh each time: a later mutation may change it.
VALUES = (
    lambda: None,
    list,
    dict,
    lambda: [None],
    lambda: [[]],
    lambda: {"": None},
    lambda: {"index": 3, "value": "3E000000"},
    lambda: {"index": 4, "value": 0.1},
    lambda: [0] * 5000,
    lambda: list(range(2000)),
    lambda: [2**62] * 20_000,
    lambda: {str(index): index for index in range(2000)},
    lambda: [{"uid": index} for index in range(500)],
    lambda: "x" * 100_000,
)

DATA_TYPES = (
    *("BFLOAT16", "BOOLEAN", "COMPLEX_FP64", "DOUBLE", "FLOAT", "FP4_E2M1", "FP8_E4M3", "HALF"),
    *("INT32", "INT4", "INT64", "INT8", "INT8x32", "UINT8", "NOT_SET", "half", "data_type.HALF"),
)
TAGS = (
    *("POINTWISE", "MATMUL", "SDPA", "SDPA_FWD", "SDPA_BWD", "BATCHNORM", "CONCATENATE", "RESHAPE"),
    *("LAYER_NORM", "REDUCTION", "SLICE", "CONV_FPROP", "MOE_GROUPED_MATMUL", "NEW_TAG", ""),
)
PORTS = (
    *("X", "Y", "IN_0", "OUT_0", "Q", "K", "V", "O", "Stats", "SEQ_LEN_Q", "Attn_scale", "Bias"),
    *("0", "1", "10", "-1", "Page_table_K", "EPSILON", "SCALE", "Seed", "Offset", "operand"),
)
VERSIONS = ("1.0", "2.0", "2.1", "3.0", "2", 2, 2.0, None, [], "2.0\n", RAW + "2.0", "0.0")
