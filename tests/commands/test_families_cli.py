"""`emit --family` and `build --family`, as a build system calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from codegen.bind.test_families import bound, product
from support.documents import plan_document, to_json, to_ubjson
from support.emitting import record_of, without_options

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.bundle import write_bundle
from cudnn_bindgen.codegen.bind.family import make_family
from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.codegen.render.module import render_family

SIZES = (16, 128, 32)
FILES = tuple(f"gemm_{m}.plan" for m in SIZES)


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for m in SIZES:
        (tmp_path / f"gemm_{m}.plan").write_bytes(to_ubjson(plan_document(product(m))))
    return tmp_path


def expected(module: str, keys: tuple[str, ...] = ()) -> dict[str, str]:
    candidates = [bound(plan_document(product(m)), f"gemm_{m}.plan") for m in SIZES]
    return render_family(make_family(candidates, keys), module)


def written(directory: Path) -> dict[str, str]:
    suffixes = (".pxd", ".pyi", ".pyx")
    return {p.name: p.read_text() for p in directory.iterdir() if p.suffix in suffixes}


def refusal(*arguments: str, stdin: bytes | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert not list(Path().glob("*.py*"))
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").rstrip("\n")


def test_emit_writes_one_module(here: Path) -> None:
    result = run("emit", "-q", "--family", "gemm", *FILES)
    assert (result.exit_code, result.output) == (0, "")
    assert written(here) == expected("gemm")
    assert run("emit", *reversed(FILES), "--family=gemm", "--check").exit_code == 0
    (here / FILES[0]).write_bytes(to_ubjson(plan_document(product(64))))
    assert run("emit", *FILES, "--family=gemm", "--check").exit_code == 1


def test_emit_elsewhere_with_a_depfile(here: Path) -> None:
    result = run("emit", "-q", "--family=gemm", *FILES, "-o", "out/gemm.pyx", "--depfile=gemm.d")
    assert (result.exit_code, result.output) == (0, "")
    assert written(here / "out") == expected("gemm")
    assert (here / "gemm.d").read_text() == (
        f"out/gemm.pyx out/gemm.pxd out/gemm.pyi: {' '.join(FILES)}\n"
    )


def test_emit_to_standard_output(here: Path) -> None:
    result = run("emit", "--family=gemm", *FILES, "-o", "-", "--key=M=a.m")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\n# Option --key M=a.m\n" in result.stdout
    assert without_options(result.stdout) == expected("gemm", ("M=a.m",))["gemm.pyx"]
    assert written(here) == {}


def test_keys_in_one_option_or_several(here: Path) -> None:
    outputs = {
        without_options(run("emit", "--family=g", *FILES, "-o", "-", *keys).stdout)
        for keys in (["--key=M=a.m,N=b.n"], ["--key", "M=a.m", "--key", "N=b.n"])
    }
    assert outputs == {expected("g", ("M=a.m", "N=b.n"))["g.pyx"]}


def test_standard_input_may_be_a_member(here: Path) -> None:
    command = ("emit", "--family=gemm", FILES[0], "-", "-o", "-")
    text = run(*command, stdin=to_json(product(64))).stdout
    assert "stdin" in [graph.source for graph in record_of(text).graphs]
    assert refusal(*command, "-", stdin=to_json(product(64))).startswith("stdin: expected a graph")
    message = refusal(*command[:-2], "--depfile=d", stdin=to_json(product(64)))
    assert message == "--depfile: expected GRAPH to be a file, got -"


def test_a_bundle_is_one_member(here: Path) -> None:
    plans = [
        (f"{count}", to_ubjson(plan_document(product(64), device_name=str(count))))
        for count in range(1)
    ]
    (here / "bundle").write_bytes(write_bundle(plans))
    result = run("emit", "--family=gemm", *FILES, "bundle", "-o", "-")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "bundle" in [graph.source for graph in record_of(result.stdout).graphs]


def test_warnings_name_their_file(here: Path) -> None:
    raw = product(64)
    raw["nodes"][0]["inputs"]["X"] = 1
    for m in (64, 256):
        odd = product(m)
        odd["nodes"][0]["inputs"]["X"] = 1
        (here / f"odd_{m}.json").write_bytes(to_json(odd))
    result = run("emit", "-q", "--family=odd", "odd_64.json", "odd_256.json")
    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert [line.split(":")[:2] for line in lines] == [
        ["warning", " odd_64.json"],
        ["warning", " odd_256.json"],
    ]
    assert run("emit", "--family=odd", "odd_64.json", "odd_256.json", "--strict").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (FILES[:1], "--family: expected several graphs, got 1"),
        ((*FILES, "--name=x"), "--family: expected no --name, got both"),
        ((*FILES, "--index=1"), "--family: expected no --index, got both"),
        ((*FILES, "--torch"), "--family: expected no --torch, got both"),
        ((*FILES, "--unbounded"), "--family: expected no --unbounded, got both"),
        ((*FILES, "--symbol=M=a.m"), "--family: expected no --symbol, got both"),
        ((*FILES, "--key=M=a.x"), '--key "M=a.x": expected an axis of a among 0 (b), 1 (m), 2 (k)'),
        ((*FILES, "missing.plan"), "missing.plan: No such file or directory"),
        ((*FILES, FILES[1]), "--family: expected different graphs, got one twice: gemm_128.plan"),
    ],
)
def test_what_is_refused(here: Path, arguments: tuple[str, ...], message: str) -> None:
    assert refusal("emit", "--family=gemm", *arguments).startswith(message)
    assert refusal("build", "-d", "out", "--family=gemm", *arguments).startswith(message)
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--family=gemm", "--list"), "GRAPH: expected one, or --family, got 3"),
        (("--family=a-b",), 'module name: expected a Python identifier, got "a-b"'),
        (("--family=",), 'module name: expected a Python identifier, got ""'),
        (("--family=a", "-o", "b.pyx"), "--family: expected b, the stem of --output, got a"),
    ],
)
def test_what_emit_refuses(here: Path, arguments: tuple[str, ...], message: str) -> None:
    assert refusal("emit", *FILES, *arguments) == message


def test_build_compiles_it(here: Path) -> None:
    result = run("build", "-q", "--family=gemm", *FILES, "-d", "out", "-j", "2")
    assert (result.exit_code, result.output) == (0, "")
    assert written(here / "out") == expected("gemm")
    compiled = extension_path(here / "out", "gemm")
    before = compiled.stat().st_mtime_ns
    assert run("build", "--family=gemm", *FILES, "-d", "out").exit_code == 0
    assert compiled.stat().st_mtime_ns == before
