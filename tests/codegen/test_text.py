from __future__ import annotations

import ast
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_bindgen.codegen.text import (
    Brackets,
    hex_literal,
    lay_out,
    literal,
    pieces,
    printable,
    quoted,
    shorten,
    wrap_bytes,
)

ANY_TEXT = st.text(st.characters())  # surrogates too: file names may have them
HOSTILE = [
    '"',
    '"""',
    "'",
    "\\",
    '\\"',
    '\\"""\nimport os',
    "\n\r\0\x1b[31m",
    "\u202e\u2066\ufeff",
    "\ud800",
    "{{ name }}{% raw %}",
    "%s {0} ${x}",
    "\N{SNOWMAN}\U0001f600",
    "\\N{SNOWMAN}\\x41",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(),
    lambda items: st.lists(items).map(tuple),
)


def evaluate(source: str) -> Any:
    return eval(source, {"__builtins__": {"float": float}})


def is_plain_line(text: str) -> bool:
    return text.isascii() and text.isprintable()


@given(VALUES)
def test_a_literal_means_its_value(value: Any) -> None:
    source = literal(value)
    assert is_plain_line(source)
    # repr: equal for NaN too, and tells 1 from True and 0.0 from -0.0.
    assert repr(evaluate(source)) == repr(value)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_keeps_its_meaning(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text
    assert is_plain_line(literal(text))


@given(ANY_TEXT)
def test_quoted_text_means_itself_between_any_double_quotes(text: str) -> None:
    assert is_plain_line(quoted(text))
    assert ast.literal_eval(f'"{quoted(text)}"') == text
    assert ast.literal_eval(f'"""{quoted(text)}"""') == text


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_has_no_name_that_could_be_shadowed(value: float) -> None:
    assert literal(value) == f'float("{value}")'


@pytest.mark.parametrize(("value", "expected"), [((), "()"), ((1,), "(1,)"), ((1, 2), "(1, 2)")])
def test_tuples(value: tuple[int, ...], expected: str) -> None:
    assert literal(value) == expected


@given(ANY_TEXT)
def test_printable_is_one_plain_line_and_changes_nothing_plain(text: str) -> None:
    shown = printable(text)
    assert is_plain_line(shown)
    assert printable(shown) == shown
    assert (shown == text) == is_plain_line(text)


def test_printable_shows_what_it_hides() -> None:
    assert printable("a\n\u202e\x1b\u00e9") == "a\\n\\u202e\\x1b\\xe9"
    assert printable("C:\\graph") == "C:\\graph"


@given(ANY_TEXT, st.integers(3, 60))
def test_shorten_keeps_to_its_width(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) <= width
    assert is_plain_line(short)
    assert short == printable(text) or short.endswith("...")


def test_shorten_cuts_only_what_is_too_long() -> None:
    assert shorten("a" * 40) == "a" * 40
    assert shorten("a" * 41) == "a" * 37 + "..."


@given(st.binary())
def test_bytes_in_hex(data: bytes) -> None:
    assert evaluate(hex_literal(data)) == data
    assert hex_literal(data) == 'b"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


@given(st.binary(max_size=400), st.integers(7, 92))
def test_wrapped_bytes_mean_the_whole(data: bytes, width: int) -> None:
    lines = wrap_bytes(data, width)
    assert all(is_plain_line(line) and len(line) <= width for line in lines)
    assert evaluate(f"({' '.join(lines)})") == data


def test_wrapped_bytes_fill_their_lines() -> None:
    assert wrap_bytes(b'{"a":"b"}', 8) == ["b'{\"a\":'", "b'\"b\"}'"]
    assert wrap_bytes(b"") == ["b''"]
    assert [len(line) for line in wrap_bytes(b"x" * 1000)] == [92] * 11 + [24]


SHORT_ITEMS = st.lists(st.integers(-(10**9), 10**9) | st.text("ab'\"\\\n", max_size=9)).map(tuple)


@given(SHORT_ITEMS, st.integers(0, 60))
def test_code_that_is_laid_out_means_the_value_and_keeps_to_its_width(
    value: Any, indent: int
) -> None:
    lines = lay_out(pieces(value), indent, ",")
    assert all(line.startswith(" " * indent) and len(line) <= 100 for line in lines)
    assert all(is_plain_line(line) for line in lines)
    assert evaluate("".join(lines).strip().removesuffix(",")) == value


CALL = Brackets("f(", ["a", Brackets("b=[", ["1", "22"], "]")], ") -> c:")


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (21, "f(a, b=[1, 22]) -> c:"),
        (20, "f(\n    a, b=[1, 22]\n) -> c:"),
        (16, "f(\n    a, b=[1, 22]\n) -> c:"),
        (15, "f(\n    a,\n    b=[1, 22],\n) -> c:"),
        (13, "f(\n    a,\n    b=[\n        1,\n        22,\n    ],\n) -> c:"),
    ],
)
def test_code_is_laid_out_as_formatters_do(width: int, expected: str) -> None:
    assert "\n".join(lay_out(CALL, width=width)) == expected


def test_a_tuple_has_a_line_for_each_item_or_is_on_one() -> None:
    assert lay_out(pieces(("x",)), 2, ",") == ['  ("x",),']
    assert lay_out(pieces((1, 22)), 0, "", 6) == ["(", "    1,", "    22,", ")"]
