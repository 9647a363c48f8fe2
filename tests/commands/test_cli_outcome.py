"""What `emit` and `build` say when they are done, and how a shell completes what is typed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.bundling import plan, two
from support.documents import add_graph, to_json

from cudnn_bindgen.cli import main

NEXT = "    # then emit that, or load_plan() it; names: cudnn-bindgen gpus"
STRUCTURE = to_json(add_graph())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_bytes(STRUCTURE)
    return tmp_path


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def said(*arguments: str, stdin: bytes | None = None) -> list[str]:
    done = run(*arguments, stdin=stdin)
    assert (done.exit_code, done.stdout) == (0, "")
    return done.stderr.splitlines()


def test_a_structure_has_no_plan_and_the_next_step_is_said(here: Path) -> None:
    first, second = said("emit", "a.json", "-o", "m/_add.pyx")
    assert first == "wrote m/_add.pxd, .pyi, .pyx: module _add; no plan"
    assert second == f"next: cudnn-bindgen plan a.json --for h100,b200{NEXT}"
    assert said("emit", "a.json", "-o", "m/_add.pyx")[0].startswith("up to date: m/_add.pxd, .pyi")


def test_the_next_step_is_a_command(here: Path) -> None:
    for name in ("it's $mine.json", "-a.json", "line\n.json"):
        (here / name).write_bytes(STRUCTURE)
        line = said("emit", "-o", "m.pyx", "--force", "--", name)[-1]
        assert line.isprintable()
        words = shlex.split(line.removeprefix("next: "), comments=True)
        assert words[:2] == ["cudnn-bindgen", "plan"]
        assert words[2:] == [name.replace("\n", "\\n"), "--for", "h100,b200"]
    (here / "run.log").write_bytes(STRUCTURE + b"\n" + STRUCTURE.replace(b"ADD", b"SUB"))
    assert " plan run.log --index 2 --for " in said("emit", "run.log", "--index", "2")[-1]
    assert " plan GRAPH --for " in said("emit", "-", stdin=STRUCTURE)[-1]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "planned for sm_90:132 (h100, h200, gh200, ...) under cuDNN 9.19.0"),
        ({"sm_count": 0}, "planned for sm_90 under cuDNN 9.19.0"),
        ({"sm_count": 7}, "planned for sm_90:7 under cuDNN 9.19.0"),
    ],
)
def test_gpus_are_named_as_for_takes_them(here: Path, fields: dict[str, int], text: str) -> None:
    (here / "a.plan").write_bytes(plan(**fields))
    assert said("emit", "a.plan") == [f"wrote a.pxd, .pyi, .pyx: module a; {text}"]


def test_of_a_bundle_each_gpu_and_cudnn(here: Path) -> None:
    (here / "a.bundle").write_bytes(two())
    [line] = said("emit", "a.bundle")
    assert line.partition("; ")[2] == (
        "planned for sm_90:132 (h100, h200, gh200, ...) under cuDNN 9.19.0; "
        "planned for sm_90:132 (h100, h200, gh200, ...) under cuDNN 9.27.0"
    )


def test_nothing_is_said_where_it_is_not_wanted(here: Path) -> None:
    for arguments in (("-q",), ("--quiet", "-o", "m.pyx"), ("-o", "-")):
        assert run("emit", "a.json", *arguments).stderr == ""
    assert run("emit", "a.json", "--check").output == ""


def test_quiet_is_not_silent(here: Path) -> None:
    (here / "bad.json").write_bytes(b"{")
    assert run("emit", "bad.json", "-q").stderr.startswith("error: bad.json: ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("cudnn-bindgen em", "emit"), ("cudnn-bindgen emit --chec", "--check")],
)
def test_a_shell_completes_commands_and_options(tmp_path: Path, words: str, expected: str) -> None:
    environment = os.environ | {
        "_CUDNN_BINDGEN_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = "import sys; sys.argv[0] = 'cudnn-bindgen'; from cudnn_bindgen.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"plain,{expected}\n"
