"""The command line: what each command writes and prints. What it refuses: test_cli_errors.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from support.documents import (
    READABLE,
    add_graph,
    bind_document,
    file_id,
    plan_document,
    to_json,
    to_ubjson,
)

from cudnn_bindgen import __version__
from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render

COMMANDS = (
    *("emit", "build", "config", "show", "bundle", "plan", "gpus", "record", "report", "doctor"),
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def expected(module: str, source: str = "Attn-v1.json") -> dict[str, str]:
    return render(bind_document(add_graph()), module, source)


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "Attn-v1.json"
    path.parent.mkdir()
    path.write_bytes(to_json(add_graph()))
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def test_emit_writes_three_files_here_named_after_the_graph(graph: Path, here: Path) -> None:
    result = run("emit", graph, "-q")
    assert (result.exit_code, result.output) == (0, "")
    assert contents(here) == expected("attn_v1")


def test_emit_names_the_module_after_the_output(graph: Path, here: Path) -> None:
    assert run("emit", graph, "-o", "new/folder/_attn.pyx").exit_code == 0
    assert contents(here / "new" / "folder") == expected("_attn")
    assert contents(here) == {}


def test_emit_takes_a_name(graph: Path, here: Path) -> None:
    assert run("emit", graph, "--name", "Named").exit_code == 0
    assert contents(here) == expected("Named")
    assert run("emit", graph, "--name", "Named", "-o", "Named.pyx").exit_code == 0


def test_emit_to_standard_output_writes_no_file(graph: Path, here: Path) -> None:
    result = run("emit", graph, "-o", "-")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == expected("attn_v1")["attn_v1.pyx"]
    assert run("emit", graph, "-o", "-", "--name", "n").stdout == expected("n")["n.pyx"]
    assert contents(here) == {}


def test_emit_leaves_what_is_up_to_date_alone(graph: Path, here: Path) -> None:
    run("emit", graph)
    for path in here.iterdir():
        os.utime(path, (1, 1))
    assert run("emit", graph).exit_code == 0
    assert {path.stat().st_mtime for path in here.iterdir()} == {1}


def test_check_compares_and_writes_nothing(graph: Path, here: Path) -> None:
    missing = run("emit", graph, "--check")
    assert missing.exit_code == 1
    assert "+++ attn_v1.pxd (emitted now)" in missing.stdout
    assert contents(here) == {}
    run("emit", graph)
    same = run("emit", graph, "--check")
    assert (same.exit_code, same.output) == (0, "")
    (here / "attn_v1.pyi").write_text("edited\n")
    edited = run("emit", graph, "--check")
    assert edited.exit_code == 1
    assert "\n-edited\n" in edited.stdout
    assert "attn_v1.pyx" not in edited.stdout
    assert edited.stderr == ""
    assert (here / "attn_v1.pyi").read_text() == "edited\n"


def test_check_sees_a_graph_that_changed(graph: Path, here: Path) -> None:
    run("emit", graph)
    graph.write_bytes(to_json(add_graph(y="result")))
    assert run("emit", graph, "--check").exit_code == 1


def test_a_depfile_names_all_that_is_written(graph: Path, here: Path) -> None:
    assert run("emit", graph, "-o", "out/m.pyx", "--depfile", "deps/m.d").exit_code == 0
    rule = (here / "deps" / "m.d").read_text()
    assert rule == f"out/m.pyx out/m.pxd out/m.pyi: {graph}\n"


# What users write around `emit`, and what each tool says when there is nothing to do.
BUILD_FILES = {
    "ninja": (
        "build.ninja",
        "rule emit\n  command = {command}\n  depfile = m.d\n"
        "build m.pyx m.pyi m.pxd: emit graph.json\n",
        "no work to do",
    ),
    "make": (
        "Makefile",
        "m.pyx m.pyi m.pxd &: graph.json\n\t{command}\n-include m.d\n",
        "up to date",
    ),
}


@pytest.mark.parametrize("tool", BUILD_FILES)
def test_a_touched_graph_is_emitted_once(tool: str, graph: Path, here: Path) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    file, text, idle = BUILD_FILES[tool]
    command = f"{sys.executable} -m cudnn_bindgen emit $in -o m.pyx --depfile m.d"
    command = command.replace("$in", "graph.json" if tool == "make" else "$in")
    (here / file).write_text(text.format(command=command))
    shutil.copy(graph, here / "graph.json")

    def is_idle() -> bool:
        done = subprocess.run(
            [tool, *(["m.pyx"] * (tool == "make"))], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return idle in done.stdout

    assert [is_idle(), is_idle()] == [False, True]
    os.utime(here / "m.pyx", (1, 1))  # what is older than its graph, with the right content
    assert [is_idle(), is_idle()] == [False, True]
    (here / "graph.json").touch()
    assert [is_idle(), is_idle()] == [False, True]


def test_check_writes_no_depfile(graph: Path, here: Path) -> None:
    run("emit", graph, "--check", "--depfile", "m.d")
    assert contents(here) == {}


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_show_prints_every_argument_of_real_files(path: Path) -> None:
    result = run("show", path)
    assert (result.exit_code, result.stderr) == (0, "")
    binding = bind(read_graph(path.read_bytes()))
    assert result.stdout.startswith(f"{path.name}: {binding.dialect}, graph {binding.fingerprint}")
    rows = [line.split() for line in result.stdout.splitlines()]
    for argument in binding.arguments:
        start = [str(argument.slot), str(argument.uid), argument.argument]
        assert any(row[:3] == start for row in rows)
    assert all(line.isascii() or "─" in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_show_prints_json_for_programs(path: Path) -> None:
    result = run("show", "--json", path)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = msgspec.json.decode(result.stdout)
    binding = bind(read_graph(path.read_bytes()))
    assert shown["fingerprint"] == binding.fingerprint
    assert [a["argument"] for a in shown["arguments"]] == [a.argument for a in binding.arguments]
    assert [a["uid"] for a in shown["arguments"]] == [a.uid for a in binding.arguments]
    assert [n["tag"] for n in shown["nodes"]] == list(binding.nodes)
    assert len(shown["plans"]) == len(binding.plans)
    for one, plan in zip(shown["plans"], binding.plans, strict=True):
        assert (one["sm"], one["sm_count"]) == (plan.sm, plan.sm_count)
        assert [c["uid"] for c in one["constants"]] == [uid for uid, _ in plan.constants]


def test_show_prints_what_a_plan_adds(tmp_path: Path) -> None:
    raw = plan_document(
        add_graph(a=":x:", b="[bold]\x1b[2J"),
        variant_pack_uids=[1, 3, 70],
        pass_by_values={"50": {"index": 3, "value": "FF800000"}},
        workspace_modifications={"60": [1, 16, [8]]},
        variant_pack_replacements=[[2, [70, 64]]],
        fe_workspace_size=24,
        behavior_notes=[["RUNTIME_COMPILATION", "\x1b[31m[red]"]],
    )
    (tmp_path / "g.plan").write_bytes(to_ubjson(raw))
    lines = [
        " ".join(line.split()) for line in run("show", tmp_path / "g.plan").stdout.splitlines()
    ]
    assert "0 1 x_ptr input IN_0 :x: BFLOAT16 2,4 4,1" in lines
    assert "1 2 bold_2j_ptr input IN_1 [bold]\\x1b[2J BFLOAT16 2,4 4,1" in lines
    assert "50 FLOAT -inf ff800000 added by lowering" in lines
    assert "60 set to zero 16" in lines
    assert "2 70 64" in lines
    assert "behavior notes: RUNTIME_COMPILATION, \\x1b[31m[red]" in lines
    assert any(line.startswith("plan: cuDNN 9.19.0, SM 90, engine 2, ") for line in lines)
    assert any(line.startswith("workspace: 24 bytes of the frontend's") for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_has_examples(command: str, option: str) -> None:
    result = run(command, option)
    assert result.exit_code == 0
    _, examples = result.stdout.split("Examples:\n")
    lines = [line.strip() for line in examples.strip().splitlines()]
    assert lines
    assert all(line.startswith(f"cudnn-bindgen {command} ") for line in lines)
    # Each names only options that there are.
    known = set()
    found = main.get_command(click.Context(main), command)
    for parameter in found.params:
        known |= {*parameter.opts}
    for line in lines:
        # What follows -- is a program's.
        shell = line.split("#")[0].split("|")[0].split(" -- ")[0]
        assert {word for word in shell.split()[2:] if word[0] == "-" and word != "-"} <= known


def test_all_commands_are_tested_here() -> None:
    assert isinstance(main, click.Group)
    context = click.Context(main)
    assert main.list_commands(context) == sorted(COMMANDS)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_version() -> None:
    assert run("--version").stdout == f"cudnn-bindgen, version {__version__}\n"


def python(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_the_module_runs_as_a_program(graph: Path, here: Path) -> None:
    done = python("-m", "cudnn_bindgen.cli", "emit", graph, "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected("attn_v1")["attn_v1.pyx"]


def test_emit_imports_no_compiler_no_tables_and_no_runtime(graph: Path, here: Path) -> None:
    code = f"""
import sys
from cudnn_bindgen.cli import main
main(["emit", {str(graph)!r}, "-q"], standalone_mode=False)
loaded = {{name.split(".")[0] for name in sys.modules}}
print(sorted(loaded & {{"Cython", "rich", "setuptools", "cuda", "torch", "cudnn"}}))
print(sorted(name for name in sys.modules if name.startswith("cudnn_bindgen.runtime")))
"""
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("[]\n[]\n", "")
    assert contents(here) == expected("attn_v1")


def test_a_reader_that_leaves_is_no_error(graph: Path) -> None:
    command = f"{sys.executable} -m cudnn_bindgen.cli emit {graph} -o - | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
