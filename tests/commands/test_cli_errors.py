"""What the command line refuses: exit 2, one plain line on stderr, no file touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.bundling import two, with_entry
from support.documents import add_graph, plan_document, to_json, to_ubjson

from cudnn_bindgen.cli import main

GOOD = to_json(add_graph())
BAD_FILES = {
    "empty": (b"", "expected a graph file, got an empty one"),
    "broken JSON": (b'{"nodes": [', "expected a graph file, got broken JSON: "),
    "truncated plan": (to_ubjson(plan_document(add_graph()))[:-9], "expected a plan file, "),
    "no graph": (b"\x7fELF\x02", "expected a graph file, got b"),
    "bad tensor": (GOOD.replace(b'"uid": 3', b'"uid": -1'), "$.tensors[2].uid: expected an assign"),
    "v3": (GOOD.replace(b'"2.0"', b'"3.0"'), '$.json_version: expected "2.0" or "1.0", got'),
    "log": (b'x\n{"context": 1}\n', 'line 2: $: expected a field "json_version", got none'),
    "log of two": (b'{"context": 1}\n{"context": 2}\n', "expected one graph, got 2"),
    "python plan": (b"CUDNN_FE_PYPLAN\0", "expected a whole Python plan, got one "),
    "deep": (b'{"a":' * 10_000, "expected a graph file, got JSON nested too deep"),
    "truncated bundle": (two()[:-1], "expected a bundle, got a zip archive that does not end as"),
    "edited bundle": (with_entry(two(), 0, sha256=""), "bundle.json $.plans[0].sha256: expected"),
}
COMMANDS = {
    "emit": ("emit", "GRAPH", "-o", "out/m.pyx", "--depfile", "out/m.d"),
    "emit -": ("emit", "GRAPH", "-o", "-"),
    "emit --check": ("emit", "GRAPH", "-o", "out/m.pyx", "--check"),
    "build": ("build", "good.json", "GRAPH", "-d", "out"),
    "show": ("show", "GRAPH"),
    "show --json": ("show", "GRAPH", "--json"),
    "plan": ("plan", "GRAPH", "-o", "out/m.plan"),
    "bundle": ("bundle", "GRAPH", "-o", "out/m.pyx"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_bytes(GOOD)
    (tmp_path / "out").mkdir()
    for name in ("m.pyx", "m.pyi", "m.pxd", "m.d", "good.pyx"):
        (tmp_path / "out" / name).write_text("old\n")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def tree(directory: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in directory.rglob("*")}


def refusal(here: Path, *arguments: str) -> str:
    """Run a command that must fail; return the line it prints."""
    before = tree(here)
    result = run(*arguments)
    assert tree(here) == before
    assert result.exit_code == 2, result.output
    if "--json" in arguments:
        assert result.stdout == "" or set(json.loads(result.stdout)) == {"refused"}
    else:
        assert result.stdout == ""
    assert isinstance(result.exception, SystemExit)
    lines = result.stderr.splitlines()
    assert all(line.isascii() and line.isprintable() for line in lines)
    if arguments[0] == "show" and lines[1:]:  # which explains
        assert lines[1].startswith("  read as")
    else:
        assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(("data", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file(here: Path, command: tuple[str, ...], data: bytes, message: str) -> None:
    (here / "bad.json").write_bytes(data)
    line = refusal(here, *("bad.json" if word == "GRAPH" else word for word in command))
    assert line.startswith(f"bad.json: {message}")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.json", "missing.json: No such file or directory"),
        ("out", "out: Is a directory"),
        ("good.json/x", "good.json/x: Not a directory"),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m: No such file or directory"),
        ("\u202e", "\\u202e: No such file or directory"),
        ("x" * 300, f"{'x' * 300}: File name too long"),
    ],
)
def test_a_file_that_cannot_be_read(
    here: Path, command: tuple[str, ...], name: str, message: str
) -> None:
    assert refusal(here, *(name if word == "GRAPH" else word for word in command)) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("good.json",), "GRAPH: expected one, or --family, got 2"),
        (("good.json", "--list"), "GRAPH: expected one, or --family, got 2"),
        (("--key", "B=q.b"), "--key: expected --family, got none"),
        (("-o", "out/m.py"), '--output: expected a file name that ends in .pyx, got "out/m.py"'),
        (("-o", ""), '--output: expected a file name that ends in .pyx, got ""'),
        (("-o", "a\nb"), '--output: expected a file name that ends in .pyx, got "a\\nb"'),
        (("-o", "out/m.pyx", "--name", "n"), "--name: expected m, the stem of --output, got n"),
        (("--name", "a-b"), 'module name: expected a Python identifier, got "a-b"'),
        (("--name", ""), 'module name: expected a Python identifier, got ""'),
        (("--name", "a\nb"), 'module name: expected a Python identifier, got "a\\nb"'),
        (("-o", "out/a-b.pyx"), 'module name: expected a Python identifier, got "a-b"'),
        (("-o", "-", "--check"), "--output: expected a file for --check and --depfile, got -"),
        (
            ("-o", "-", "--depfile", "d"),
            "--output: expected a file for --check and --depfile, got -",
        ),
        (
            ("--depfile", "a\nb/d", "-o", "a\nb/m.pyx"),
            "--depfile: expected no newline in file names",
        ),
    ],
)
def test_arguments_of_emit(here: Path, arguments: tuple[str, ...], message: str) -> None:
    assert refusal(here, "emit", "good.json", *arguments).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("good.json", "out/../good.json", "-d", "out"),
            "module name: expected one graph for good, got good.json and out/../good.json",
        ),
        (
            ("good.json", "Good.json", "-d", "out"),
            "module name: expected one graph for good, got good.json and Good.json",
        ),
        (
            ("good.json", "Good.json", "-d", "out", "--name", "n"),
            "--name: expected one GRAPH, got several",
        ),
        (
            ("good.json", "-d", "out", "--name", "a.b"),
            'module name: expected a Python identifier, got "a.b"',
        ),
    ],
)
def test_arguments_of_build(here: Path, arguments: tuple[str, ...], message: str) -> None:
    assert refusal(here, "build", *arguments) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("build",), "Missing argument 'GRAPH...' (try cudnn-bindgen build --help)"),
        (("build", "good.json"), "Missing option '-d' / '--directory' (try"),
        (("build", "good.json", "-d", "out", "-j", "0"), "Invalid value for '-j' / '--jobs': 0 "),
        (("emit",), "Missing argument 'GRAPH...' (try cudnn-bindgen emit --help)"),
        (
            ("emit", "good.json", "--chekc"),
            "expected an option, got --chekc; did you mean --check",
        ),
        (("emit", "good.json", "--zzz"), "expected an option, got --zzz (try cudnn-bindgen emit"),
        (("emit", "good.json", "--na\n"), "expected an option, got --na\\n; did you mean --name"),
        (("emit", "good.json", "--for"), "Option '--for' requires an argument (try --help)"),
        (("show",), "Missing argument 'GRAPH' (try cudnn-bindgen show --help)"),
        (("shw",), "expected a command, got shw; did you mean show? (try cudnn-bindgen --help)"),
        (("unknown",), "expected a command, got unknown (try cudnn-bindgen --help)"),
        (("--hlep",), "expected an option, got --hlep; did you mean --help? (try cudnn-bindgen"),
        (("--", "--a\x1b"), "expected a command, got --a\\x1b (try cudnn-bindgen --help)"),
    ],
)
def test_wrong_usage(here: Path, arguments: tuple[str, ...], message: str) -> None:
    before = tree(here)
    result = CliRunner().invoke(main, arguments, prog_name="cudnn-bindgen")
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")
    assert line.isprintable()
    assert tree(here) == before


def test_without_a_command_there_is_help() -> None:
    result = run()
    assert result.output.startswith("Usage: ")
    assert "Commands:" in result.output


# /proc refuses new files even to root.
@pytest.mark.parametrize("directory", ["good.json", "/proc/nowhere"])
@pytest.mark.parametrize("command", ["emit", "build"])
def test_a_directory_that_cannot_be_written(here: Path, directory: str, command: str) -> None:
    where = ("-o", f"{directory}/m.pyx") if command == "emit" else ("-d", directory)
    assert refusal(here, command, "good.json", *where).startswith(f"{directory}: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission(here: Path) -> None:
    (here / "out").chmod(0o500)
    assert refusal(here, "emit", "good.json", "-o", "out/new.pyx").endswith(": Permission denied")


def test_an_output_that_is_a_directory(here: Path) -> None:
    (here / "d.pyx").mkdir()
    assert refusal(here, "emit", "good.json", "-o", "d.pyx") == "d.pyx: Is a directory"


@pytest.mark.parametrize(("data", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_process_of_its_own_shows_no_traceback(here: Path, data: bytes, message: str) -> None:
    (here / "bad.json").write_bytes(data)
    command = [sys.executable, "-m", "cudnn_bindgen.cli", "emit", "bad.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: bad.json: {message}")
    assert done.stderr.count("\n") == 1


def test_a_file_name_that_is_not_utf8(here: Path) -> None:
    name = os.fsdecode(b"\xff.json")
    assert refusal(here, "emit", name) == "\\udcff.json: No such file or directory"
    (here / name).write_bytes(GOOD)
    assert run("emit", name, "-o", "new/m.pyx", "--depfile", "new/m.d").exit_code == 0
    assert (here / "new" / "m.d").read_bytes().endswith(b": \xff.json\n")
    assert "# From \\udcff.json\n" in (here / "new" / "m.pyx").read_text()
    assert run("show", name).exit_code == 0
