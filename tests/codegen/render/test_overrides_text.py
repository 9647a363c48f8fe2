"""What is emitted for a graph that takes overrides: its text, its stub, its declarations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runtime.test_stubs import run_mypy
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


# The stub


@pytest.mark.parametrize("module", ["product", "product_bare"])
def test_the_stub_describes_the_module(builds: Any, tmp_path: Path, module: str) -> None:
    pytest.importorskip("mypy")
    builds.path(module)
    allowed = tmp_path / "allowed"
    # What Cython adds to each module and each class.
    added = ["__pyx_capi__", "__test__", *(f"Overrides.__{name}__" for name in ADDED)]
    added += ["launch_nodes", "launch_path"]  # of the Binding, which may be a family's
    allowed.write_text("".join(f"{module}.{name}\n" for name in added))
    options = [module, "--concise", "--allowlist", str(allowed), "--ignore-unused-allowlist"]
    done = run_mypy(builds, tmp_path, "mypy.stubtest", options)
    assert done.returncode == 0, done.stdout + done.stderr


ADDED = ("reduce_cython", "setstate_cython", "pyx_vtable")

CALLS = {
    "ov = product.Overrides()": "",
    "ov.set(M=5, N=6)": "",
    "ov.set(M=None)": "",
    "ov.set(Q=5)": "call-arg",
    "ov.set(5)": "call-arg",
    "ov.set(M='5')": "arg-type",
    "ov.set_a(1, 5, 4, stride_m=None)": "",
    "ov.set_a(b=1, m=5, k=4, stride_m=8)": "",
    "ov.set_a(1, 5)": "call-arg",
    "ov.set_d(d0=5, d1=2)": "",
    "ov.set_alpha(1)": "attr-defined",
    "ov.override('a', (1, 5, 4), [None, 4, 1])": "",
    "ov.override(1, [1, 5, 4])": "",
    "ov.override('a', 5)": "arg-type",
    "same: bool = ov.copy() == ov": "",
    "by_value: dict[product.Overrides, int] = {ov: hash(ov)}": "",
    "product.execute(16, 32, 48, 64, 0.5, overrides=ov)": "",
    "product.execute(16, 32, 48, 64, 0.5, overrides={'M': 5})": "arg-type",
    "product.execute_uids({1: 16}, 0, 0, ov)": "",
    "size: int = product.workspace_size(ov) + product.workspace_size()": "",
    "product.set_launch_policy('auto', records=8)": "",
    "product.set_launch_policy('auto', records='8')": "arg-type",
    "other = product_bare.Overrides()": "",
    "product.execute(16, 32, 48, 64, 0.5, overrides=other)": "arg-type",
    "other.set(M=5)": "attr-defined",
}


def test_what_a_type_checker_says(builds: Any, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    builds.path("product")
    builds.path("product_bare")
    lines = ["import product", "import product_bare", *CALLS]
    (tmp_path / "calls.py").write_text("\n".join(lines) + "\n")
    options = ["--strict", "--no-error-summary", "--hide-error-context", "calls.py"]
    done = run_mypy(builds, tmp_path, "mypy", options)
    verdicts = dict.fromkeys(CALLS, "")
    for line in done.stdout.splitlines():
        place, _, message = line.partition(": error: ")
        if message:
            verdicts[lines[int(place.split(":")[1]) - 1]] = message.rpartition("[")[2].rstrip("]")
    assert verdicts == CALLS
