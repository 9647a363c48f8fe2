"""What is emitted for a graph that takes overrides: its text and its declarations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.cython_tree import parse, shape
from support.documents import READABLE, bind_document, document, node, tensor
from support.overriding import SYMBOLS, product_plan

from codegen.render.test_render_hostile import HOSTILE, PLAIN, WORDS, kinds
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render

LONG = (
    "THE_NUMBER_OF_ROWS_OF_ALL_BUT_B=a.m+1+0+0*1*1,c.m+1+0+0*1*1,d.0+1+0+0*1*1/1",
    *(f"THE_{number}TH_OF_THE_OTHER_AXES=a.{axis}" for number, axis in enumerate("02")),
    *(f"THE_{number}TH_AXIS_OF_B=b.{number}" for number in range(3)),
)

LINT = "from cython_lint.cython_lint import main; raise SystemExit(main())"


def emit(*symbols: str, graph: bytes | None = None, is_unbounded: bool = False) -> dict[str, str]:
    options = OverrideOptions(symbols, is_unbounded)
    binding = bind(read_graph(graph or product_plan()), options)
    return render(binding, "product", "product.plan")


def overridable(tag: str, tensor_name: str) -> dict[str, str]:
    raw = document(
        [node(tag, {"P": 1}, {"O": 2})], [tensor(1, tensor_name), tensor(2, f"{tensor_name}2")]
    )
    raw["context"]["is_override_shape_enabled"] = True
    return render(bind_document(raw), "module", "g.json")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_change_only_literals(text: str) -> None:
    for files, plain in (
        (overridable(text, PLAIN), overridable(PLAIN, PLAIN)),
        (overridable(PLAIN, text), overridable(PLAIN, PLAIN)),
    ):
        for code in files.values():
            assert code.isascii()
        assert shape(parse(files["module.pyx"])) == shape(parse(plain["module.pyx"]))
        assert shape(parse(files["module.pxd"], True)) == shape(parse(plain["module.pxd"], True))
        assert kinds(files["module.pyi"]) == kinds(plain["module.pyi"])


def test_no_word_of_c_cython_or_python_breaks_a_setter(tmp_path: Path) -> None:
    words = WORDS.split()
    items = [tensor(100 + number, word) for number, word in enumerate(words)]
    inputs = {f"P{number}": 100 + number for number in range(len(words))}
    raw = document([node("NEW", inputs, {"Y": 1})], [*items, tensor(1)])
    raw["context"]["is_override_shape_enabled"] = True
    files = render(bind_document(raw), "words", "g.json")
    check(files, tmp_path, "words")


def check(files: dict[str, str], directory: Path, module: str) -> None:
    """Let Cython translate a module, without a word of complaint."""
    for name, text in files.items():
        (directory / name).write_text(text)
    import cudnn_bindgen

    package = Path(cudnn_bindgen.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "cython", "-3", "--cplus", "-I", str(package), f"{module}.pyx"],
        cwd=directory,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("symbols", [(), SYMBOLS, LONG], ids=["none", "some", "long"])
@pytest.mark.parametrize("is_unbounded", [False, True])
def test_cython_lint_has_nothing_to_say(
    tmp_path: Path, symbols: tuple[str, ...], is_unbounded: bool
) -> None:
    files = emit(*symbols, is_unbounded=is_unbounded)
    check(files, tmp_path, "product")
    for name, code in files.items():
        for line in code.splitlines():
            # A tensor's name is one literal.
            assert len(line) <= 100 or line.startswith("    Operand("), name
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--max-line-length=120", "product.pyx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout + done.stderr == ""


def test_setters_of_the_highest_rank_fit_their_lines(tmp_path: Path) -> None:
    big = {"dim": [1] * 7 + [10**9], "stride": [10**9] * 7 + [1]}
    raw = document([node("NEW", {"X": 1}, {"Y": 2})], [tensor(1, "x" * 12, **big), tensor(2)])
    raw["context"]["is_override_shape_enabled"] = True
    files = render(bind_document(raw), "module", "g.json")
    check(files, tmp_path, "module")
    for code in files.values():
        assert [line for line in code.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("is_unbounded", [False, True])
def test_the_docstring_says_what_bounds_there_are(is_unbounded: bool) -> None:
    code = emit(is_unbounded=is_unbounded)["product.pyx"]
    said = "\nOverrides: dims are at most the declared ones.\n" in code
    assert said is not is_unbounded


def test_a_graph_without_the_flag_says_nothing_of_overrides() -> None:
    for code in emit(graph=product_plan(is_enabled=False)).values():
        assert "verrides" not in code


@pytest.mark.parametrize("path", [path for path in READABLE if "override" in path.stem], ids=str)
def test_real_graphs_offer_setters(path: Path) -> None:
    binding = bind(read_graph(path.read_bytes()))
    assert binding.overrides
    code = render(binding, "module", path.name)["module.pyx"]
    for shape_ in binding.overrides.shapes:
        assert f"def set_{shape_.name}(" in code
