"""`emit --chain` and `build --chain`, as a build system calls them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.chains import DIAMOND, NORM, PRODUCT, SUM, structure_of
from support.documents import DATA
from support.emitting import record_of, without_options

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.compile import extension_path

LAYER = """
[[link]]
name = "norm"
graph = "graphs/norm.plan"
[[link]]
name = "left"
graph = "graphs/product.plan"
[[link]]
name = "right"
graph = "graphs/product.plan"
[[link]]
name = "sum"
graph = "graphs/sum.plan"

[wires]
"left.A" = "norm.Y"
"right.A" = "norm.Y"
"sum.L" = "left.C"
"sum.R" = "right.C"

[operands]
x = ["norm.X", "sum.Z"]
"""


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def refusal(*arguments: str) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")
    assert not list(Path().glob("*.py*"))
    return result.stderr.removeprefix("error: ").rstrip("\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graphs").mkdir()
    for case in (NORM, PRODUCT, SUM):
        (tmp_path / f"graphs/{case.name}.plan").write_bytes(case.plan)
    (tmp_path / "layer.toml").write_text(LAYER)
    return tmp_path


def test_emit_writes_one_module(here: Path) -> None:
    result = run("emit", "--chain", "layer.toml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "wrote layer.pxd, .pyi, .pyx: module layer; planned for sm_90 under cuDNN 9.19.0\n"
    )
    found = {name: (here / name).read_text() for name in DIAMOND.emit("layer")}
    assert {name: without_options(text) for name, text in found.items()} == DIAMOND.emit("layer")
    assert run("emit", "--chain", "layer.toml", "--check").exit_code == 0
    (here / "layer.toml").write_text(LAYER.replace('"right.C"', '"left.C"'))
    result = run("emit", "--chain", "layer.toml", "--check")
    assert result.exit_code == 1
    assert "-Link sum, sum.plan, POINTWISE x2: L = left.C, R = right.C." in result.stdout


def test_a_module_is_checked_by_what_it_says(here: Path) -> None:
    run("emit", "-q", "--chain", "layer.toml", "-o", "mine.pyx")
    assert run("emit", "--check", "mine.pyx").exit_code == 0
    (here / "graphs/sum.plan").write_bytes(structure_of(SUM))
    result = run("emit", "--check", "mine.pyx")
    assert result.exit_code == 1
    assert "-Plan of sum for SM 90" in result.stdout
    (here / "layer.toml").rename("other.toml")
    assert "expected its graph layer.toml beside it" in run("emit", "--check", "mine.pyx").stderr


def test_a_depfile_names_all_graphs(here: Path) -> None:
    (here / "out").mkdir()
    assert (
        run("emit", "--chain", "layer.toml", "-o", "out/a.pyx", "--depfile", "a.d").exit_code == 0
    )
    target, _, sources = (here / "a.d").read_text().partition(":")
    assert target.split()[0] == "out/a.pyx"
    names = ["layer.toml", *(f"graphs/{name}.plan" for name in ("norm", "product", "sum"))]
    assert sources.split()[:4] == names


TWO = """
[[link]]
name = "first"
graph = "sdpa_causal.json"
[[link]]
name = "second"
graph = "sdpa_causal.json"
[wires]
"second.Q" = "first.O"
"""


def test_links_are_planned_and_their_plans_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("cudnn") is None:  # imported, it would load the real cuDNN
        pytest.skip("nvidia-cudnn-frontend is not installed")
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", str(here / "cache"))
    shutil.copy(DATA / "frontends/1.32.0/sdpa_causal.json", here)
    (here / "two.toml").write_text(TWO)
    assert run("emit", "-q", "--chain", "two.toml", "--for", "h100").exit_code == 0
    data = record_of((here / "two.pyx").read_text())
    assert [graph.plans[0].sm_count for graph in data.graphs] == [132, 132]
    monkeypatch.setattr("cudnn_bindgen.commands.planned.planned_files", None)  # none is made
    assert run("emit", "--check", "two.pyx").exit_code == 0
    (here / "two.toml").write_text(TWO.replace('"second.Q"', '"second.1"'))
    assert run("emit", "--check", "two.pyx").exit_code == 0
    (here / "two.toml").write_text(TWO.replace("[wires]", "[wires]\n#").partition("#")[0])
    assert run("emit", "--check", "two.pyx").exit_code == 1


def test_build_compiles_it(here: Path) -> None:
    result = run("build", "--chain", "layer.toml", "-d", "out")
    assert result.exit_code == 0, result.output
    assert extension_path(here / "out", "layer").exists()
    result = run("build", "--chain", "layer.toml", "-d", "out")
    assert result.stderr.startswith("up to date: ")
    data = record_of((here / "out/layer.pyx").read_text())
    assert data.chain is not None
    assert [link.name for link in data.chain.links] == ["norm", "left", "right", "sum"]


@pytest.mark.parametrize(
    "options",
    [
        ("--family", "f"),
        ("--index", "1"),
        ("--torch",),
        ("--symbol", "B=x.0"),
        ("--unbounded",),
        ("--list",),
    ],
)
def test_what_chains_do_not_take(here: Path, options: tuple[str, ...]) -> None:
    assert refusal("emit", "--chain", "layer.toml", *options) == (
        f"--chain: expected no {options[0]}, got both"
    )


FILES = {
    "no TOML": ("[[link", "layer.toml: expected a chain in TOML: "),
    "not text": ("\udcff", "layer.toml: expected a chain in TOML: "),
    "no links": ("", 'layer.toml: $: expected a field "link", got none'),
    "none of them": ("link = []", "layer.toml: $.link: expected `array` of length >= 1"),
    "unknown": (LAYER + "\n[more]\n", 'got "more"'),
    "a name": (LAYER.replace('"norm"', '"a.b"'), "expected a name of at most 40 letters"),
    "a name twice": (LAYER.replace('"left"', '"right"', 1), "expected each name once, got right"),
    "no quotes": (
        LAYER.replace('"left.A" =', "left.A ="),
        ': names are quoted there, as in "product.A" = "norm.Y"',
    ),
    "an offset": (
        LAYER.replace('"left.C"', '{ of = "left.C", offset = -1 }'),
        "layer.toml: $.wires[...].offset: expected",
    ),
    "dots": (f"{'a.' * 4000}a = 1", "expected at most 3000 dots, got more"),
    "too large": ("#" * 70_000, "expected at most 65536 bytes, got more"),
    "nested": ("a = " + "[" * 4000, "layer.toml: expected a chain in TOML: "),
    "a wire": (LAYER.replace("norm.Y", "norm.Z", 1), 'layer.toml: [wires] "left.A" = "norm.Z": '),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_chain(here: Path, name: str) -> None:
    text, problem = FILES[name]
    (here / "layer.toml").write_text(text, errors="surrogateescape")
    said = refusal("emit", "--chain", "layer.toml")
    assert problem.replace("`", "") in said
    assert said.startswith("layer.toml: ")
    assert said.isascii()


def test_files_that_are_not_there(here: Path) -> None:
    assert "no.toml" in refusal("emit", "--chain", "no.toml")
    assert refusal("emit", "--chain", "-") == "--chain: expected a file, got -"
    (here / "graphs/sum.plan").unlink()
    assert "graphs/sum.plan" in refusal("emit", "--chain", "layer.toml")
    assert refusal("emit", "layer.toml").startswith("layer.toml: ")
