"""Hostile text at any place of a graph file changes nothing of the operators but literals."""

from __future__ import annotations

import ast
import sys
import tokenize
from io import BytesIO
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.documents import Document, bind_document, document, node, scalar, tensor

from codegen.render.test_render_hostile import HOSTILE, PLACES, PLAIN, WORDS
from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.render.files import Named, render_modules

# What the emitted file calls things itself, and what PyTorch's schemas know.
TORCH_WORDS = """
    a0 any arguments arrived as_passed axes computed ctx device dim dtype first float form forms
    getattr gradient gradients import_module in_memory inputs int kernel len like list lying math
    n needed next none offset operand operands operator optional order output outputs position
    range rest results returned saved scalar scalars self shape size sorted storage str stream
    stride strides sum symint tensor tensors torch tuple type_ workspace zip
"""
FILE = "module_torch.py"


def emit(binding: Binding, source: str = "g.json", *backwards: Named) -> str:
    return render_modules(Named("module", binding, source), backwards, "ns")[FILE]


def skeleton(text: str, binding: Binding) -> str:
    """The tree without what strings say, and with arguments called by their position."""
    positions = {argument.name: f"a{argument.slot}" for argument in binding.arguments}
    positions |= {argument.argument: f"a{argument.slot}" for argument in binding.arguments}
    tree = ast.parse(text)
    have_arguments = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
    assert [function.name for function in have_arguments] == ["module", "module_out"]
    for item in (item for function in have_arguments for item in ast.walk(function)):
        for field in ("id", "arg"):
            name = getattr(item, field, None)
            if isinstance(name, str):
                setattr(item, field, positions.get(name, name))
    for item in ast.walk(tree):
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            item.value = "text"
    return ast.dump(tree)


def check_text(text: str) -> None:
    assert text.isascii()
    assert text.splitlines() == text.removesuffix("\n").split("\n")
    assert max(map(len, text.splitlines())) <= 100
    assert tokenize.detect_encoding(BytesIO(text.encode()).readline)[0] == "utf-8"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_only_literals_change(place: str, text: str) -> None:
    trees = []
    for value in (text, PLAIN):
        raw, source = PLACES[place](value)
        binding = bind_document(raw)
        code = emit(binding, source)
        check_text(code)
        trees.append(skeleton(code, binding))
    assert trees[0] == trees[1]


@given(st.sampled_from([*PLACES]), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_at_any_place_parses(place: str, text: str) -> None:
    raw, source = PLACES[place](text)
    code = emit(bind_document(raw), source)
    check_text(code)
    ast.parse(code)


def pair(name: str) -> tuple[Document, Document]:
    """A graph and its gradient, of tensors and a scalar that are called so."""
    forward = document(
        [node("NEW", {"A": 1, "S": 3}, {"B": 2})],
        [tensor(1, name), tensor(2, f"out {name}"), scalar(3, f"s {name}")],
    )
    backward = document(
        [node("OLD", {"A": 1, "B": 2, "S": 4}, {"C": 3})],
        [
            *(tensor(1, f"d out {name}"), tensor(2, name), tensor(3, f"d {name}")),
            scalar(4, f"s {name}"),
        ],
    )
    return forward, backward


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_in_both_graphs(text: str) -> None:
    forward, backward = map(bind_document, pair(text))
    try:
        code = emit(forward, text, Named("gradient", backward, text))
    except EmitError as error:
        # Names that are cut, or nothing is left of, cannot be paired.
        assert len(text) > 30 or not any(c.isascii() and c.isalnum() for c in text)
        assert str(error).isprintable()
        return
    check_text(code)
    plain = [bind_document(raw) for raw in pair(PLAIN)]
    expected = emit(plain[0], "g.json", Named("gradient", plain[1], "g.json"))
    assert skeleton(code, forward) == skeleton(expected, plain[0])


class Stub(ModuleType):
    """Writes nothing, and remembers the scalars of the last call."""

    def workspace_size(self) -> int:
        return 0

    def run(self, *operands: Any, **keywords: Any) -> None:
        self.operands, self.keywords = operands, keywords


EVERY_WORD = [*WORDS.split(), *TORCH_WORDS.split(), *HOSTILE.values()]
SOME = 16  # of each role: an operator has at most 64 arguments


@pytest.mark.parametrize(
    "words", [EVERY_WORD[start : start + SOME] for start in range(0, len(EVERY_WORD), SOME)]
)
def test_no_name_breaks_an_operator(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    values = [scalar(1000 + index, word) for index, word in enumerate(words)]
    defaults = [
        scalar(2000 + index, word, {"index": 3, "value": "3F000000"})
        for index, word in enumerate(words)
    ]
    inputs = [tensor(100 + index, word) for index, word in enumerate(words)]
    items = [*inputs, *values, *defaults]
    ports = {f"P{index}": item["uid"] for index, item in enumerate(items)}
    outputs = [tensor(5000 + index, word) for index, word in enumerate(words)]
    written = {f"O{index}": item["uid"] for index, item in enumerate(outputs)}
    binding = bind_document(document([node("NEW", ports, written)], [*items, *outputs]))
    stub = Stub("module")
    monkeypatch.setitem(sys.modules, "module", stub)
    namespace = f"hostile_{EVERY_WORD.index(words[0])}"
    text = render_modules(Named("module", binding, "g.json"), (), namespace)[FILE]
    check_text(text)
    module: dict[str, Any] = {"__name__": "module_torch", "__package__": ""}
    exec(compile(text, FILE, "exec"), module)
    given = [torch.full((2, 4), float(index)) for index in range(len(words))]
    numbers = {
        argument.argument: float(index)
        for index, argument in enumerate(binding.scalars)
        if argument.default is None
    }
    made = module["module"](*given, **numbers)
    assert len(made) == len(words)
    assert [operand[0, 0].item() for operand in stub.operands[: len(words)]] == [
        *map(float, range(len(words)))
    ]
    expected = numbers | {a.argument: 0.5 for a in binding.scalars if a.default}
    assert {name: stub.keywords[name] for name in expected} == expected
    by_name = {argument.name: one for argument, one in zip(binding.operands, given, strict=False)}
    getattr(torch.ops, namespace).module(**by_name, **numbers)
    module["module_out"](*given, *made, **numbers)
    assert len(stub.operands) == 2 * len(words)


def test_large_numbers_stay_within_their_columns() -> None:
    dim = [3, 1, 1, 1, 1, 1, 1, 5]
    stride = [10**14 + n for n in range(7)] + [1]
    raw = document(
        [node("NEW", {"A": 1}, {"B": 2})],
        [tensor(1, "x"), tensor(2, "y", dim=dim, stride=stride)],
    )
    code = emit(bind_document(raw))
    check_text(code)
    tuples = [
        ast.literal_eval(item)
        for item in ast.walk(ast.parse(code))
        if isinstance(item, ast.Tuple) and all(isinstance(n, ast.Constant) for n in item.elts)
    ]
    assert tuple(stride) in tuples
