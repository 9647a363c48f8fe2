"""Docstrings of stubs: the runtime's own words, with an entry for each parameter."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.documents import TESTS, bind_document, document, node, tensor

from cudnn_bindgen.codegen.render.docstrings import docstring, words_of
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.runtime.binding import Binding
from cudnn_bindgen.runtime.overrides import Overrides

STUBS = sorted([*(TESTS.parent / "generated").glob("*.pyi"), *(TESTS / "golden").rglob("*.pyi")])
# What Python itself says enough of.
PLAIN = {"__init__", "__eq__", "__hash__"}


@pytest.mark.parametrize("owner", [Binding, Overrides])
def test_the_words_are_those_of_the_runtime(owner: type) -> None:
    words = dict(words_of(owner.__name__.lower(), owner.__name__))
    own = {
        name: inspect.getdoc(member)
        for name, member in vars(owner).items()
        if name in words and not name.startswith("_") and inspect.getdoc(member)
    }
    assert {name: words[name] for name in own} | {"": words[""]} == own | {
        "": inspect.getdoc(owner)
    }
    assert {name for name, text in words.items() if name.isidentifier() and text} - {*own} == (
        {"FINGERPRINT", "__name__"} if owner is Binding else set()
    )


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """Each function of a stub; of overloads the last, whose docstring editors show."""
    found = {}
    for item in ast.parse(path.read_text()).body:
        for one in item.body if isinstance(item, ast.ClassDef) else [item]:
            if isinstance(one, ast.FunctionDef) and one.name not in PLAIN:
                found[one.name] = one
    yield from found.values()


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.stem)
def test_hovering_shows_something_of_each_parameter(path: Path) -> None:
    for one in functions(path):
        text = ast.get_docstring(one) or ""
        assert text, one.name
        entries = re.findall(r"^    (\w+): ", text.partition("Args:")[2].partition("\n\n")[0], re.M)
        arguments = [*one.args.args, *one.args.kwonlyargs]
        parameters = [argument.arg for argument in arguments if argument.arg != "self"]
        # Axes and symbols are said in a sentence.
        assert one.name.startswith("set") or entries == parameters, one.name
    module = ast.parse(path.read_text())
    assert ast.get_docstring(module)
    for item, following in zip(module.body, module.body[1:], strict=False):
        if isinstance(item, ast.AnnAssign):
            assert isinstance(following, ast.Expr)


def test_what_is_said_of_an_operand() -> None:
    scale = tensor(2, "Scale", dim=[1, 1], stride=[1, 1], data_type="FLOAT")
    bits = tensor(3, "bits", dim=[4, 64], stride=[64, 1], data_type="BOOLEAN")
    raw = document(
        [node("SDPA_FP8_FWD", {"Q": 1, "Descale_Q": 2}, {"O": 3})], [tensor(1, "q"), scale, bits]
    )
    text = render(bind_document(raw), "module", "graph.json")["module.pyi"]
    assert (
        "        scale_ptr: input, uid 2, FLOAT, dim 1,1, stride 1,1, 4-byte aligned; mult" in text
    )
    assert (
        "        bits: output, uid 3, BOOLEAN (uint8, 8 each), dim 4,64, stride 64,1, 16-byte "
        "aligned.\n" in text
    )


def test_entries_replace_those_of_their_name() -> None:
    words = "Do.\n\nArgs:\n    a: one\n        more\n    b: two\n\nReturns:\n    c: no entry"
    long = " ".join(["long"] * 30)
    assert docstring(words, {"a": [f"x: {long}", "y: short"]}, 0).splitlines() == [
        *('"""Do.', "", "Args:", f"    x: {long[:89]}", f"        {long[90:]}", "    y: short"),
        *("    b: two", "", "Returns:", "    c: no entry", '"""'),
    ]
    assert docstring(words, {"a": [], "b": []}, 0).startswith('"""Do.\n\nReturns:')
