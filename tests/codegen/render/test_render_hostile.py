"""Hostile text at any place of a graph file changes literals of emitted code, nothing else."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tokenize
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cython_tree import parse, shape
from support.documents import (
    Document,
    bind_document,
    document,
    node,
    plan_document,
    scalar,
    tensor,
    tensors,
)

import cudnn_bindgen
from codegen.render.test_render import constants
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.render.module import render

HOSTILE = {
    "quotes": "a'b\"c",
    "triple quotes": '"""',
    "triple single quotes": "'''",
    "backslash": "\\",
    "backslash and quotes": '\\"""\nimport os',
    "escaped backslash": '\\\\"""\nimport os\n"""',
    "newline": "a\nimport os\n",
    "return": "a\rimport os\r",
    "form feed and others": "\x0c\x0b\x1c\x85\u2028\u2029import os",
    "nul": "\0",
    "right-to-left": "\u202e\u2066",
    "template": "{{ module }}{% set x = 1 %}{# #}",
    "format": "%s{0}${x}",
    "directive": "\n# cython: language_level=2\n# distutils: extra_compile_args=-DX",
    "encoding": "coding=utf-7",
    "emacs encoding": "-*- coding: rot13 -*-",
    "named character": "\\N{BULLET}\\x41",
    "long": "x" * 10_000,
    "long escapes": "\u202e" * 10_000,
    "backslashes": "\\" * 40,
    "long backslashes": "\\" * 10_000,
    "snowman": "\u2603\U0001f600",
    "cimport": "from libc.stdlib cimport system",
    "comment": "# not code",
    "nothing": "",
}
PLAIN = "plain"


def structure(where: str, text: str) -> Document:
    """A graph that has `text` at one place and plain names everywhere else."""
    names = dict.fromkeys(("tag", "port", "output port", "node", "tensor", "scalar"), "")
    names |= {"tag": "TAG", "port": "P", "output port": "O", where: text}
    inputs = {names["port"]: 1, "ALPHA": 2}
    return document(
        [node(names["tag"], inputs, {names["output port"]: 3}, name=names["node"])],
        [tensor(1, names["tensor"]), scalar(2, names["scalar"] or "alpha"), *tensors(3)],
    )


def engine(text: str) -> Document:
    backend = {
        "cudnnVersion": 91900,
        "GPUProfile": {"deviceVer": 900},
        "engine": {"engineId": 2, "knobChoices": {text: 1}},
        "kernels": text,
    }
    return plan_document(structure("", ""), cudnn_backend_data=json.dumps(backend))


PLACES: dict[str, Callable[[str], tuple[Document, str]]] = {
    "tag": lambda text: (structure("tag", text), "g.json"),
    "port": lambda text: (structure("port", text), "g.json"),
    "output port": lambda text: (structure("output port", text), "g.json"),
    "node": lambda text: (structure("node", text), "g.json"),
    "tensor": lambda text: (structure("tensor", text), "g.json"),
    "scalar": lambda text: (structure("scalar", text), "g.json"),
    "source": lambda text: (structure("", ""), text),
    "engine": lambda text: (engine(text), "g.plan"),
}


def emit(place: str, text: str) -> dict[str, str]:
    raw, source = PLACES[place](text)
    return render(bind_document(raw), "module", source)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_only_literals_change(place: str, text: str) -> None:
    files, plain = emit(place, text), emit(place, PLAIN)
    for name, code in files.items():
        assert code.isascii()
        # str.splitlines knows more line ends than "\n": none of them may get into the text.
        assert code.splitlines() == code.removesuffix("\n").split("\n")
        assert tokenize.detect_encoding(BytesIO(code.encode()).readline)[0] == "utf-8", name
    assert shape(parse(files["module.pyx"])) == shape(parse(plain["module.pyx"]))
    assert shape(parse(files["module.pxd"], True)) == shape(parse(plain["module.pxd"], True))
    assert kinds(files["module.pyi"]) == kinds(plain["module.pyi"])


def kinds(stub: str) -> list[str]:
    return [type(item).__name__ for item in ast.walk(ast.parse(stub))]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_original_text_is_kept_in_constants(text: str) -> None:
    assert constants(emit("source", text)["module.pyx"])["GRAPH"]["source"] == text
    assert constants(emit("tag", text)["module.pyx"])["GRAPH"]["nodes"] == (text,)
    operands = constants(emit("tensor", text)["module.pyx"])["OPERANDS"]
    assert operands[0][2] == text


@pytest.mark.parametrize("text", [text for text in HOSTILE.values() if text])
def test_a_data_type_can_only_be_a_known_one(text: str) -> None:
    raw = structure("", "")
    raw["tensors"][0]["data_type"] = text
    with pytest.raises(
        GraphFormatError, match=r"^\$\.tensors\[0\]\.data_type: expected a data type"
    ):
        bind_document(raw)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", [text for text in HOSTILE.values() if len(text) < 1000])
def test_lines_stay_within_100_columns(place: str, text: str) -> None:
    for code in emit(place, text).values():
        for line in code.splitlines():
            # The conversion of an argument is one piece.
            assert len(line) <= 100 or line.endswith(('"),', '")'))


@pytest.mark.parametrize("text", [text for text in HOSTILE.values() if len(text) > 1000])
def test_the_longest_text_is_cut_wherever_it_is_only_shown(text: str) -> None:
    for place in PLACES:
        for code in emit(place, text).values():
            assert sum(len(line) > 160 for line in code.splitlines()) <= 1


@given(st.sampled_from([*PLACES]), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_at_any_place_parses(place: str, text: str) -> None:
    for name, code in emit(place, text).items():
        assert code.isascii()
        if name.endswith("pyi"):
            ast.parse(code)
        else:
            parse(code, name.endswith("pxd"))


WORDS = """
    address alignas alignof and api asm assert auto bint bool by case catch cdef char check_abi
    class classmethod close_graph co_await compl concept const cpdef def default del delete
    double else enqueue enum errno except exec execute export extern float for friend fused gil
    goto i386 if import inline int int32_t intptr_t len linux long match mutable namespace nan
    new noexcept nogil not null operator operand or packed plan print private property ptrdiff_t
    public queue range readonly register register_graph requires restrict self short signed
    size_t sizeof slots ssize_t static static_assert staticmethod std stderr stdin stdout stream
    struct super switch template thread_local tuple type typedef typeid typename typeof uint16_t
    uint64_t uintptr_t unix union unsigned using virtual void volatile wchar_t with workspace
    workspace_ptr workspace_size x x_ptr x_ptr_ptr xor
"""


@pytest.mark.parametrize("words", [WORDS.split(), [*HOSTILE.values()]], ids=["words", "hostile"])
@pytest.mark.parametrize("kind", [tensor, scalar])
def test_no_name_breaks_a_module(
    kind: Callable[..., Document], words: list[str], tmp_path: Path
) -> None:
    """Words of C, Cython and Python, and text that means to be code: Cython translates both."""
    inputs = {f"P{index}": 100 + index for index in range(len(words))}
    items = [kind(100 + index, word) for index, word in enumerate(words)]
    raw = document([node("NEW", inputs, {"Y": 1})], [*items, *tensors(1)])
    for name, text in render(bind_document(raw), "words", "g.json").items():
        (tmp_path / name).write_text(text)
    package = Path(cudnn_bindgen.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "cython", "-3", "--cplus", "-I", str(package), "words.pyx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
