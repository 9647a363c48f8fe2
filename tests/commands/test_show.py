"""`show` in terminals of several widths and through a pipe: no name and no uid is lost."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from support.documents import (
    DATA,
    PLANS,
    READABLE,
    TESTS,
    Document,
    document,
    node,
    plan_document,
    scalar,
    tensor,
    to_json,
    to_ubjson,
)

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.text import printable

THD = DATA / "plans/cudnn-9.19-sm90/sdpa_thd.plan"
GOLDEN = TESTS / "golden"
FILES = [
    *READABLE,
    *(GOLDEN / name for name in ("hostile_names/input.json", "bundle/input.bundle")),
    TESTS / "hostile" / "amp.bundle",
]
LONG = "n" + "".join(f"{index:03}" for index in range(60))
# Each in a process of its own would take a minute.
SHOW = """
import sys
from cudnn_bindgen.cli import main
for path in sys.argv[1:]:
    print(f"\\n=== {path}")
    main(["show", path], standalone_mode=False)
"""


def in_terminal(width: int, *paths: Path) -> str:
    """Run `show` in a terminal; return what it prints there, without what makes letters bold."""
    own, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, *map(str, paths)],
        stdin=other,
        stdout=other,
        stderr=subprocess.DEVNULL,
        env=environment | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
    ) as process:
        os.close(other)
        printed = bytearray()
        while True:
            try:
                data = os.read(own, 65536)
            except OSError as error:  # what Linux says when nobody has the other end open
                assert error.errno == errno.EIO
                break
            if not data:
                break
            printed += data
        os.close(own)
    assert process.returncode == 0, printed.decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.decode()).replace("\r\n", "\n")


def sections(printed: str) -> dict[str, list[str]]:
    """Return the lines that were printed of each file."""
    parts = printed.split("\n=== ")[1:]
    return {part.partition("\n")[0]: part.splitlines()[1:] for part in parts}


def is_there(text: str, lines: list[str]) -> bool:
    """Whether a text stands on a line, or below itself in a column too narrow for it."""
    for index, line in enumerate(lines):
        for match in re.finditer(re.escape(text[:1]), line):
            left, below = text, index
            while left and below < len(lines):
                cell = lines[below][match.start() :].split("  ")[0]
                taken = min(len(left), len(cell))
                if not taken or left[:taken] != cell[:taken]:
                    break
                left, below = left[taken:], below + 1
            if not left:
                return True
    return False


def bound(path: Path) -> Binding:
    return bind_graphs(read_graphs(path.read_bytes(), path.name))


def row_of(argument: Argument, lines: list[str]) -> list[str]:
    start = [str(argument.slot), str(argument.uid), argument.argument]
    [row] = [words for line in lines if (words := line.split())[:3] == start]
    return row[3:]


def test_the_search_finds_what_is_folded() -> None:
    lines = ["a  sdpa::St  x", "   ats", "", "sdpa::St", "b"]
    assert is_there("sdpa::Stats", lines)
    assert not is_there("sdpa::Stops", lines)
    assert not is_there("sdpa::Statsx", lines)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_name_is_lost_in_a_terminal(width: int, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.json"
    hostile.write_bytes(to_json(named(LONG, "\x1b[2J[bold]:x:")))
    paths = [*FILES, hostile]
    shown = sections(in_terminal(width, *paths))
    assert [*shown] == [*map(str, paths)]
    for path in paths:
        lines = shown[str(path)]
        assert max(map(len, lines)) <= width
        assert all(line.isprintable() for line in lines)
        for argument in bound(path).arguments:
            if path != hostile:
                role, *_ = row_of(argument, lines)  # whole, and on one line with its uid
                assert role == argument.role
            assert is_there(argument.argument, lines)
            original = printable(argument.original)
            called = argument.argument.removesuffix("_ptr")
            assert original.lower() == called or is_there(original, lines), original


def test_a_terminal_that_is_far_too_narrow() -> None:
    lines = sections(in_terminal(40, THD))[str(THD)]
    assert max(map(len, lines)) <= 40
    for argument in bound(THD).arguments:
        assert is_there(argument.argument, lines)


def named(name: str, other: str) -> Document:
    ports = {"IN_0": 1, other: 2}
    return document(
        [node("POINTWISE", ports, {"OUT_0": 3}, name=name, mode="MUL", axis=None)],
        [tensor(1, name), tensor(2, other), tensor(3, "::OUT_0")],
    )


def run(*arguments: str | Path, **options: str) -> str:
    done = CliRunner().invoke(main, ["show", *map(str, arguments)], env=options)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_a_pipe_gets_a_line_for_each_argument(path: Path) -> None:
    printed = run(path)
    assert "\x1b" not in printed
    lines = printed.splitlines()
    assert not [line for line in lines if line.endswith(" ")]
    for argument in bound(path).arguments:
        row = row_of(argument, lines)
        assert ",".join(map(str, argument.stride)) in row
        assert argument.data_type in " ".join(row)


def test_a_pipe_has_the_width_that_the_environment_says() -> None:
    narrow = run(THD, COLUMNS="80").splitlines()
    assert max(map(len, narrow)) == 80
    assert "           BFLOAT16                 64,8,4,128     4096,128,1024,1" in narrow
    assert run(THD, COLUMNS="many") == run(THD)


def test_what_attention_does_is_shown() -> None:
    printed = run(THD)
    assert (
        "attn_scale_value=0.08838835 (3db504f3), diagonal_alignment=BOTTOM_RIGHT, generate_stats"
        in " ".join(printed.split())
    )
    assert "right_bound=0" in printed  # a bound, unlike the one that is null
    assert "left_bound" not in printed
    assert "io BFLOAT16, intermediate FLOAT, compute FLOAT" in printed
    assert "13 Attn_scale FLOAT 0.08838835 3db504f3" in printed_rows(printed)
    assert "21 FLOAT -inf ff800000 added by lowering" in printed_rows(printed)


def printed_rows(printed: str) -> list[str]:
    return [" ".join(line.split()) for line in printed.splitlines()]


def test_attributes_are_shown_unless_they_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    said = {
        "mode": "[bold]\x1b[2J",
        "padding": [1, 1],
        "ranges": [[0, 4], [2, 6]],
        "relu_lower_clip": "7FC00000",
        "swish_beta": "3F800000",
        "top": 0,
        "is_odd": True,
        "compute_data_type": "DOUBLE",
        "nested": {"a": [1]},
    }
    silent = {"axis": None, "other": False, "dim": []}
    nodes = [
        node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 4}, **said, **silent),
        node("POINTWISE", {"IN_0": 4}, {"OUT_0": 3}, mode="RELU_FWD", compute_data_type="FLOAT"),
    ]
    items = [
        tensor(1),
        scalar(2, "tensor_2", {"index": 3, "value": "3DB504F3"}),
        tensor(3),
        tensor(4, "between", is_virtual=True, data_type="FLOAT"),
    ]
    path.write_bytes(to_json(document(nodes, items)))
    printed = printed_rows(run(path, COLUMNS="300"))
    assert (
        "0 POINTWISE IN_0=1 IN_1=2 -> OUT_0=4 compute_data_type=DOUBLE, is_odd, "
        "mode=[bold]\\x1b[2J, nested={'a': [1]}, padding=1,1, ranges=[0,4],[2,6], "
        "relu_lower_clip=nan (7fc00000), swish_beta=1 (3f800000), top=0" in printed
    )
    assert "1 POINTWISE IN_0=4 -> OUT_0=3 mode=RELU_FWD" in printed
    assert "2 IN_1 FLOAT 0.08838835 3db504f3" in printed
    assert "4 between FLOAT 2,4 4,1" in printed
    found = json.loads(run(path, "--json"))
    first, second = (each["attributes"] for each in found["nodes"])
    assert first["relu_lower_clip"] == {"data_type": "FLOAT", "value": "nan", "bits": "7fc00000"}
    assert {**first, "relu_lower_clip": "7FC00000", "swish_beta": "3F800000"} == said | silent
    assert second == {"compute_data_type": "FLOAT", "mode": "RELU_FWD"}
    assert found["context"]["compute_data_type"] == "FLOAT"
    values = {item["uid"]: item["value"] for item in found["tensors"]}
    assert values[2]["bits"] == "3db504f3"
    assert [item["uid"] for item in found["tensors"] if item["is_virtual"]] == [4]


def test_a_default_has_number_and_bits(tmp_path: Path) -> None:
    path = tmp_path / "g.plan"
    raw = document(
        [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, mode="MUL", axis=None)],
        [tensor(1), scalar(2, "alpha", {"index": 3, "value": "40200000"}), tensor(3)],
    )
    path.write_bytes(to_ubjson(plan_document(raw)))
    assert "2 2 alpha scalar IN_1 FLOAT 1,1 1,1 2.5 (40200000)" in printed_rows(run(path))
    assert json.loads(run(path, "--json"))["arguments"][2]["default_bits"] == "40200000"


def test_a_score_modifier_is_told_by_its_operations() -> None:
    printed = run(DATA / "cases/score_mod/sm_cap30.plan")
    assert "node 0 score_mod DIV, TANH_FWD, MUL" in printed_rows(printed)


def test_a_bundle_has_a_row_for_each_gpu() -> None:
    printed = printed_rows(run(GOLDEN / "bundle/input.bundle", COLUMNS="80"))
    assert "90 132 9.19.0 engine 90 113" in printed
    assert "100 9.27.0 engine 100 24 113" in printed


# Pictures


@pytest.mark.parametrize("language", ["dot", "mermaid", "svg"])
def test_a_picture_is_printed_or_written(language: str, tmp_path: Path) -> None:
    if language == "svg":
        pytest.importorskip("pygraphviz")
    printed = run(THD, f"--{language}")
    start = {"dot": "digraph {", "mermaid": "flowchart TB", "svg": "<?xml"}
    assert printed.startswith(start[language])
    assert printed.endswith("\n")
    assert run(THD, f"--{language}", "-o", "-") == printed
    file = tmp_path / "new" / "picture"
    assert run(THD, f"--{language}", "-o", file) == ""
    assert file.read_text() == printed
    assert [path.name for path in file.parent.iterdir()] == ["picture"]


def test_libraries_that_draw_say_nothing() -> None:
    pytest.importorskip("pygraphviz")
    command = [sys.executable, "-m", "cudnn_bindgen.cli", "show", str(THD), "--svg"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout == run(THD, "--svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--svg", "--json"), "--svg: expected no other way to show GRAPH, got --json"),
        (("--mermaid", "--dot"), "--mermaid: expected no other way to show GRAPH, got --dot"),
        (("--dot", "--list"), "--dot: expected no other way to show GRAPH, got --list"),
        (("-o", "x"), "--output: expected --dot, --mermaid or --svg, got none"),
    ],
)
def test_options_that_do_not_go_together(options: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["show", str(THD), *options])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_picture_does_not_replace_its_graph(tmp_path: Path) -> None:
    graph = tmp_path / "g.plan"
    graph.write_bytes(THD.read_bytes())
    done = CliRunner().invoke(main, ["show", str(graph), "--dot", "-o", str(graph)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--output: expected another file than GRAPH, got {graph}" in done.stderr
    assert graph.read_bytes() == THD.read_bytes()


# What docs/show.md shows


@pytest.fixture
def documented() -> ModuleType:
    """tools/pictures.py."""
    spec = importlib.util.spec_from_file_location("pictures", TESTS.parent / "tools/pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_what_is_printed_today(documented: ModuleType) -> None:
    page = documented.PAGE.read_text()
    assert documented.capture(page) == page
    assert documented.capture(page.replace("q_ptr", "r_ptr", 1)) == page


def test_the_pictures_are_those_of_today(documented: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    documented.draw(tmp_path)
    assert len([*tmp_path.iterdir()]) == 3
    for path in tmp_path.iterdir():
        committed = documented.FOLDER / path.name
        # Where letters stand depends on the machine's fonts.
        assert texts(committed) == texts(path)


def texts(path: Path) -> list[str | None]:
    return [item.text for item in ElementTree.parse(path).iter() if item.text]
