"""How the command line reads: standard input, logs, warnings, what a refusal explains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.documents import (
    DATA,
    Document,
    add_graph,
    document,
    node,
    plan_document,
    tensor,
    to_json,
    to_ubjson,
)
from support.documents_v1 import old_add
from support.emitting import record_of, without_data, without_options

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.read import source

GOOD = to_json(add_graph())
LOG = DATA / "frontends" / "1.26.0" / "three_graphs.log"
NEWER = to_json(add_graph() | {"json_version": "3.0"})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def unknown_tag() -> Document:
    return document(
        [node("NEW_TAG", {"B": 2, "A": 1}, {"Y": 3})], [tensor(1), tensor(2), tensor(3)]
    )


UNKNOWN = (
    "$.nodes[0].tag: expected a known node tag, got NEW_TAG (its operands are bound in the order "
    "of their ports' names; look at the order)"
)


@pytest.mark.parametrize(
    "data",
    [GOOD, to_ubjson(plan_document(add_graph())), to_json(old_add()), b"INFO\n" + GOOD],
    ids=["structure", "plan", "v1", "log"],
)
def test_emit_reads_standard_input(here: Path, data: bytes) -> None:
    done = run("emit", "-", "-q", stdin=data)
    assert (done.exit_code, done.output) == (0, "")
    assert names(here) == ["binding.pxd", "binding.pyi", "binding.pyx"]
    assert "# From stdin\n" in (here / "binding.pyx").read_text()
    (here / "file.json").write_bytes(data)
    text = run("emit", "-", "-o", "-", "--name", "m", stdin=data).stdout
    of_file = run("emit", "file.json", "-o", "-", "--name", "m").stdout
    assert without_data(text) == without_data(of_file).replace("file.json", "stdin")
    [graph] = record_of(text).graphs
    assert [graph._replace(source="file.json")] == [*record_of(of_file).graphs]


def test_show_reads_standard_input() -> None:
    done = run("show", "-", stdin=GOOD)
    assert done.exit_code == 0
    assert done.stdout.startswith("stdin: structure v2, graph ")
    assert json.loads(run("show", "-", "--json", stdin=GOOD).stdout)["dialect"] == "structure v2"


def test_build_reads_standard_input(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Path] = []

    def compile_all(modules: dict[Path, Path], jobs: int | None) -> tuple[set[Path], set[Path]]:
        compiled.extend(modules)
        return {*modules}, set()

    monkeypatch.setattr("cudnn_bindgen.codegen.compile.compile_all", compile_all)
    assert run("build", "-", "-d", "out", stdin=GOOD).exit_code == 0
    assert compiled == [Path("out/binding.pyx")]
    assert names(here / "out") == ["binding.pxd", "binding.pyi", "binding.pyx"]


@pytest.mark.parametrize("command", [("emit", "-"), ("build", "-", "-d", "out"), ("show", "-")])
def test_refusals_of_standard_input_name_it(here: Path, command: tuple[str, ...]) -> None:
    done = run(*command, stdin=b"")
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "error: stdin: expected a graph file, got an empty one "
        "(a graph file is written by repr(graph) or graph.serialize())\n"
    )
    assert names(here) == []


def test_a_process_without_standard_input_reads_nothing(here: Path) -> None:
    command = f"exec {sys.executable} -m cudnn_bindgen.cli emit - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: stdin: expected a graph file, got an empty one")
    assert done.stderr.count("\n") == 1


def test_no_rule_for_what_came_from_standard_input(here: Path) -> None:
    done = run("emit", "-", "-o", "m.pyx", "--depfile", "m.d", stdin=GOOD)
    assert (done.exit_code, done.stderr) == (
        2,
        "error: --depfile: expected GRAPH to be a file, got -\n",
    )
    assert names(here) == []


def test_emit_lists_the_graphs_of_a_log(here: Path) -> None:
    done = run("emit", LOG, "--list")
    assert (done.exit_code, done.stderr) == (0, "")
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert rows[0] == "three_graphs.log: graphs, by --index"
    # Line 17 is the second dump of the first graph.
    assert any(row.startswith("1 17 MATMUL POINTWISE POINTWISE 4") for row in rows)
    assert any(
        row.startswith("3 ") and "expected the shape of an operand, got []" in row for row in rows
    )
    assert names(here) == []
    assert run("emit", "-", "--list", stdin=LOG.read_bytes()).stdout.startswith("stdin: graphs")


def test_show_lists_for_programs() -> None:
    rows = json.loads(run("show", LOG, "--list", "--json").stdout)
    assert [row["index"] for row in rows] == [1, 2, 3]
    assert [row["nodes"].split()[0] for row in rows] == ["MATMUL", "SDPA", "CONV_FPROP"]
    assert rows[0]["line"] == 17
    assert (rows[0]["operands"], rows[0]["refused"], rows[0]["remedy"]) == (4, None, None)
    assert rows[2]["operands"] is None
    assert rows[2]["refused"].startswith("$.tensors")
    assert "graph.validate()" in rows[2]["remedy"]


def test_a_list_of_a_file_with_one_graph() -> None:
    (row,) = json.loads(run("show", "-", "--list", "--json", stdin=GOOD).stdout)
    assert (row["index"], row["line"], row["nodes"]) == (1, None, "POINTWISE")


def test_a_list_of_no_graph_is_refused() -> None:
    done = run("emit", "-", "--list", stdin=b"hello")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: stdin: expected a graph file, got b'hello'...")


@pytest.mark.parametrize("command", ["emit", "build", "show"])
def test_a_log_of_several_graphs_asks_for_an_index(here: Path, command: str) -> None:
    options = ["-d", "out"] if command == "build" else []
    done = run(command, LOG, *options)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[0] == (
        f"error: {LOG}: expected one graph, got 3 "
        "(choose one with --index 1 to 3; --list shows them)"
    )
    done = run(command, LOG, "--index", "4", *options)
    assert done.stderr.splitlines()[0] == (
        f"error: {LOG}: expected an --index from 1 to 3, got 4 (--list shows the graphs)"
    )
    assert names(here) == []


def test_index_chooses_a_graph(here: Path) -> None:
    done = run("emit", LOG, "--index", "1", "-o", "matmul.pyx", "-q")
    assert (done.exit_code, done.output) == (0, "")
    assert "MATMUL" in (here / "matmul.pyx").read_text()
    refused = run("emit", LOG, "--index", "3", "-o", "conv.pyx")
    assert refused.exit_code == 2
    assert ": line 52: $.tensors" in refused.stderr
    assert names(here) == ["matmul.pxd", "matmul.pyi", "matmul.pyx"]


@pytest.mark.parametrize("index", ["0", "-1", "x"])
def test_an_index_is_a_number_from_1_on(index: str) -> None:
    done = run("emit", LOG, "--index", index)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: Invalid value for '--index'")


def test_an_index_is_for_one_file(here: Path) -> None:
    (here / "good.json").write_bytes(GOOD)
    done = run("build", "good.json", LOG, "-d", "out", "--index", "1")
    assert (done.exit_code, done.stderr) == (2, "error: --index: expected one GRAPH, got several\n")


@pytest.mark.parametrize("command", ["emit", "show", "build"])
def test_warnings_go_to_standard_error(
    here: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudnn_bindgen.codegen.compile.compile_all", lambda *_: (set(), set()))
    (here / "g.json").write_bytes(to_json(unknown_tag()))
    options = {"build": ["-q", "-d", "out"], "emit": ["-q"], "show": []}[command]
    done = run(command, "g.json", *options)
    assert done.exit_code == 0
    assert done.stderr == f"warning: g.json: {UNKNOWN}\n"
    strict = run(command, "g.json", "--strict", *options)
    assert strict.exit_code == 2
    assert strict.stderr.splitlines()[0] == f"error: g.json: {UNKNOWN}"


def test_of_many_warnings_some_are_printed() -> None:
    nodes = [node(f"NEW_{index}", {"A": index}, {"Y": index + 1}) for index in range(1001)]
    items = [tensor(index, is_virtual=0 < index < 1001) for index in range(1002)]
    done = run("show", "-", stdin=to_json(document(nodes, items)))
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "warning: stdin: and 981 more"
    assert "and 1 more; --json has all of them" in done.stdout
    assert "NEW_999" in done.stdout
    assert "NEW_1000" not in done.stdout


def test_strict_writes_nothing(here: Path) -> None:
    assert run("emit", "-", "--strict", stdin=to_json(unknown_tag())).exit_code == 2
    assert names(here) == []
    assert run("emit", "-", "--strict", stdin=GOOD).exit_code == 0


def test_show_repeats_warnings_for_programs() -> None:
    done = run("show", "-", "--json", stdin=to_json(unknown_tag()))
    assert json.loads(done.stdout)["warnings"] == [f"stdin: {UNKNOWN}"]


def test_a_newer_version_is_tried_only_if_asked(here: Path) -> None:
    done = run("emit", "-", "-o", "m.pyx", stdin=NEWER)
    assert (done.exit_code, done.stderr) == (
        2,
        'error: stdin: $.json_version: expected "2.0" or "1.0", got \'3.0\' '
        "(a newer cudnn-bindgen may read it, and --allow-newer tries to with this one)\n",
    )
    assert names(here) == []
    done = run("emit", "-", "-o", "m.pyx", "--allow-newer", "-q", stdin=NEWER)
    assert (done.exit_code, done.stderr) == (
        0,
        'warning: stdin: $.json_version: expected "2.0" or "1.0", got \'3.0\' '
        "(read as if it were 2.0, as --allow-newer asks)\n",
    )
    text = (here / "m.pyx").read_text()
    assert "\n# Option --allow-newer\n" in text
    assert without_options(text) == run("emit", "-", "-o", "-", "--name", "m", stdin=GOOD).stdout


@pytest.mark.parametrize("version", ["0.9", "1.5", "", "x", "2.0.x", 3, None, "9" * 5000])
def test_allow_newer_takes_newer_versions_only(version: Any) -> None:
    data = to_json(add_graph() | {"json_version": version})
    done = run("emit", "-", "-o", "-", "--allow-newer", stdin=data)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: stdin: $.json_version: expected ")


def test_a_newer_file_that_is_shaped_otherwise_is_refused() -> None:
    raw = add_graph() | {"json_version": "3.0", "tensors": {}}
    done = run("emit", "-", "-o", "-", "--allow-newer", stdin=to_json(raw))
    assert done.exit_code == 2
    assert done.stderr.startswith("error: stdin: $.tensors: expected array, got object")


@pytest.mark.parametrize("name", ["big.log", "-"])
def test_a_file_larger_than_any_log_is_refused(
    here: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_BYTES", 1000)
    data = GOOD + b" " * 1000
    (here / "big.log").write_bytes(data)
    done = run("emit", name, "-o", "m.pyx", stdin=data)
    shown = "stdin" if name == "-" else name
    assert (done.exit_code, done.stderr) == (
        2,
        f"error: {shown}: expected at most 1000 bytes, got more "
        '(of a log, keep the lines with {"context" in them only)\n',
    )
    assert names(here) == ["big.log"]
