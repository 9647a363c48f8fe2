"""`emit --torch`: which files are written, compared and named in a depfile; what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.documents import Document, bind_document, document, node, tensor, to_json

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.render.files import Named, render_modules

FILES = ["dgrad.pxd", "dgrad.pyi", "dgrad.pyx", "dgrad_torch.py"]
FILES += ["net.pxd", "net.pyi", "net.pyx", "net_torch.py"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def forward() -> Document:
    return document([node("RESHAPE", {"X": 1}, {"Y": 2})], [tensor(1, "x"), tensor(2, "y")])


def backward() -> Document:
    return document([node("TRANSPOSE", {"X": 1}, {"Y": 2})], [tensor(1, "dy"), tensor(2, "dx")])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.json").write_bytes(to_json(forward()))
    (tmp_path / "dgrad.json").write_bytes(to_json(backward()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.iterdir())}


def expected(namespace: str = "cudnn_bindgen") -> dict[str, str]:
    options = [("--torch", ""), ("--backward", "dgrad.json")]
    if namespace != "cudnn_bindgen":
        options.insert(1, ("--torch-namespace", namespace))
    net = Named("net", bind_document(forward()), "net.json", options)
    dgrad = Named("dgrad", bind_document(backward()), "dgrad.json")
    return render_modules(net, [dgrad], namespace)


ARGUMENTS = ("emit", "net.json", "-o", "out/net.pyx", "--torch", "--backward", "dgrad.json")


def test_both_modules_and_their_operators_are_written(here: Path) -> None:
    result = run(*ARGUMENTS)
    assert (result.exit_code, result.stdout) == (0, "")
    assert [line.partition(" --for")[0] for line in result.stderr.splitlines()] == [
        "wrote out/net.pxd, .pyi, .pyx, net_torch.py: module net; no plan",
        "next: cudnn-bindgen plan net.json",
        "wrote out/dgrad.pxd, .pyi, .pyx, dgrad_torch.py: module dgrad; no plan",
        "next: cudnn-bindgen plan dgrad.json",
    ]
    assert written(here / "out") == expected()
    assert sorted(expected()) == FILES


def test_without_a_backward_graph(here: Path) -> None:
    assert run("emit", "net.json", "-o", "out/net.pyx", "--torch").exit_code == 0
    assert [*written(here / "out")] == FILES[4:]
    assert "backwards=" not in (here / "out/net_torch.py").read_text()


def test_without_torch_nothing_of_it_is_written(here: Path) -> None:
    assert run("emit", "net.json", "-o", "out/net.pyx").exit_code == 0
    assert [*written(here / "out")] == FILES[4:7]


def test_a_namespace(here: Path) -> None:
    assert run(*ARGUMENTS, "--torch-namespace", "my_ops").exit_code == 0
    assert written(here / "out") == expected("my_ops")


def test_check_sees_operators(here: Path) -> None:
    missing = run(*ARGUMENTS, "--check")
    assert missing.exit_code == 1
    assert "+++ net_torch.py (emitted now)" in missing.stdout
    assert not (here / "out").exists()
    run(*ARGUMENTS)
    assert (run(*ARGUMENTS, "--check").exit_code, run(*ARGUMENTS, "--check").output) == (0, "")
    (here / "out/dgrad_torch.py").write_text("edited\n")
    edited = run(*ARGUMENTS, "--check")
    assert edited.exit_code == 1
    assert "\n-edited\n" in edited.stdout
    assert "net_torch.py" not in edited.stdout


def test_a_depfile_names_all_graphs_and_all_files(here: Path) -> None:
    # A file of options beside a backward graph counts, too.
    (here / "dgrad.json.toml").write_text("")
    assert run(*ARGUMENTS, "--depfile", "net.d").exit_code == 0
    first = ["net.pyx", *(name for name in FILES if name != "net.pyx")]
    targets = " ".join(f"out/{name}" for name in first)
    assert (here / "net.d").read_text() == f"{targets}: net.json dgrad.json dgrad.json.toml\n"


def test_options_beside_a_backward_graph_are_read(here: Path) -> None:
    (here / "dgrad.json.toml").write_text("unbounded = true\n")
    result = run(*ARGUMENTS)
    assert result.exit_code == 2
    assert "is_override_shape_enabled" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("emit", "net.json", "--backward", "dgrad.json"),
            "--backward: expected --torch, got none",
        ),
        (
            ("emit", "net.json", "--torch-namespace", "x"),
            "--torch-namespace: expected --torch, got none",
        ),
        (
            ("emit", "net.json", "--torch", "--torch-namespace", "aten"),
            '--torch-namespace: expected a name that PyTorch does not use, got "aten"',
        ),
        (
            ("emit", "net.json", "--torch", "--torch-namespace", ""),
            '--torch-namespace: expected a name that PyTorch does not use, got ""',
        ),
        (
            ("emit", "net.json", "--torch", "-o", "-"),
            "--output: expected a file for --torch, got -",
        ),
        (
            ("build", "net.json", "dgrad.json", "-d", "out", "--torch", "--backward", "dgrad.json"),
            "--backward: expected one GRAPH, got several",
        ),
        (
            ("emit", "net.json", "--torch", "--backward", "net.json"),
            "module name: expected one graph for net, got several: rename one",
        ),
        (
            ("emit", "net.json", "--torch", "--name", "torch"),
            "module name: --torch needs another one than torch, which is taken",
        ),
        (
            ("emit", "dgrad.json", "--torch", "--backward", "net.json"),
            "--backward net: x: is no operand of the forward graph and the gradient of no output; "
            "y: is the gradient of no input: name tensors of both graphs alike "
            "(x and y, their gradients dx and dy)",
        ),
        (
            ("emit", "net.json", "--torch", "--backward", "absent.json"),
            "absent.json: No such file or directory",
        ),
    ],
)
def test_refusals(here: Path, arguments: tuple[str, ...], message: str) -> None:
    before = sorted(here.iterdir())
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {message}\n")
    assert sorted(here.iterdir()) == before
