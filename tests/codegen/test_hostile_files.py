"""Files that a stranger made: each gets one line and exit 2, soon and in little memory."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ubjson
from click.testing import CliRunner
from support.cases import CASES
from support.documents import PLANS, TESTS, add_graph, plan_document, to_json, to_ubjson

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.plan_file import read_plans
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.read import source
from cudnn_bindgen.codegen.render import module as rendering
from cudnn_bindgen.frontend.planning.missing import plan_maker

HOSTILE = TESTS / "hostile"
RECURSION = (HOSTILE / "sidecar_recursion.toml").read_bytes()
NO_FILE = "expected a regular file, got a device, pipe or socket"
MOST_MEMORY = 400 * 2**20
MOST_SECONDS = 60  # of one processor; each took longer


def refusal(*arguments: str | Path) -> str:
    """Run a command in a process that may not take much; return the one line that it prints."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))

    done = subprocess.run(
        [sys.executable, "-m", "cudnn_bindgen.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        preexec_fn=bound,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [line] = done.stderr.splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize("command", [("emit", "-o", "-"), ("build", "-d", "out")])
def test_a_bundle_that_becomes_a_huge_module(tmp_path: Path, command: tuple[str, ...]) -> None:
    first, *rest = command
    where = [tmp_path / "out"] if rest[-1] == "out" else rest[-1:]
    line = refusal(first, HOSTILE / "amp.bundle", rest[0], *where)
    assert line.startswith("amp.bundle: expected plans that take at most 33554432 bytes")
    assert list(tmp_path.iterdir()) == []


def test_plans_are_counted_before_they_become_text(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = CASES["thd"].binding.plans[0]
    binding = CASES["thd"].binding
    size = len(plan.text) + len(plan.engine) + len(binding.structure)
    monkeypatch.setattr(rendering, "MAX_DATA", size)
    assert rendering.render(binding, "module", "x")
    with pytest.raises(EmitError, match="x: expected plans that take at most"):
        rendering.render(replace(binding, plans=(plan, plan)), "module", "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            (HOSTILE / "sidecar_recursion.toml").read_bytes(),
            "expected at most 65536 bytes, got more",
        ),
        ((HOSTILE / "sidecar_recursion.toml").read_bytes()[:9000], "maximum recursion depth"),
        (b"x = " + b"{a = " * 9000, "maximum recursion depth"),
        ((HOSTILE / "sidecar_huge_int.toml").read_bytes(), "Exceeds the limit (4300 digits)"),
        (b"a." * 30_000 + b"a = 1\n", "expected at most 3000 dots, got more"),
        (b"a." * 1400 + b"a = 1\n[" + b"b." * 1400 + b"b]\n", "unknown field `a`"),
        (b"# " + b"x" * 70_000, "expected at most 65536 bytes, got more"),
        (b"x" * 5000 + b" = 1\n", "unknown field `xxxx"),
    ],
    ids=["recursion", "lists", "tables", "int", "dots", "some dots", "long", "long name"],
)
def test_options_beside_a_graph(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "g.json").write_bytes(to_json(add_graph()))
    (tmp_path / "g.json.toml").write_bytes(text)
    line = refusal("emit", tmp_path / "g.json", "-o", "-")
    assert line.startswith(f"{tmp_path}/g.json.toml: expected options for g.json in TOML: ")
    assert len(line) < 600
    if message.startswith(("maximum", "Exceeds")):
        # In the words of one Python version or another, or it is read and has no place.
        message = "expected options for g.json in TOML: "
    assert message in line


# A recording


def write_usage(folder: Path, text: bytes) -> Path:
    (folder / "usage").mkdir(parents=True)
    (folder / "usage" / "run-1.json").write_bytes(text)
    return folder


def usage(**fields: Any) -> dict[str, Any]:
    graph = json.loads((HOSTILE / "usage_nodes_int.json").read_bytes())["graphs"]["ab"]
    return {
        "version": 1,
        "problems": [],
        "graphs": {"ab": graph | {"nodes": ["MATMUL"]} | fields},
    }


LAYOUT = {
    "shape": [2],
    "stride": [1],
    "data_type": "float32",
    "device": "cuda:0",
    "alignment": 16,
    "seen": 1,
}
REFUSED_USAGE: dict[str, bytes | dict[str, Any]] = {
    **{path.stem: path.read_bytes() for path in HOSTILE.glob("usage_*.json")},
    "deep": b"[" * 100_000,
    "key with a path": usage() | {"graphs": {"../ab": usage()["graphs"]["ab"]}},
    "plan that is the folder": usage(plans={"..": 1}),
    "absolute plan": usage(plans={"/etc/passwd": 1}),
    "no numbers": usage(objects="5"),
    "less than none": usage(looks=-1),
    "more than int64": usage(threads={"1": 2**63}),
    "shape of words": usage(layouts={"1": [LAYOUT | {"shape": ["2"]}]}),
    "shape of many": usage(layouts={"1": [LAYOUT | {"shape": [1] * 65}]}),
    "shape beyond int64": usage(layouts={"1": [LAYOUT | {"stride": [2**64]}]}),
    "uid of words": usage(layouts={"q": [LAYOUT]}),
    "override of nothing": usage(overrides=[None]),
    "reason of numbers": usage(reasons=[5]),
}


@pytest.mark.parametrize("name", REFUSED_USAGE)
@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_usage_file_that_record_does_not_write(
    tmp_path: Path, name: str, option: tuple[str, ...]
) -> None:
    found = REFUSED_USAGE[name]
    write_usage(tmp_path, found if isinstance(found, bytes) else json.dumps(found).encode())
    (tmp_path.parent / "outside.plan").write_bytes(PLANS[0].read_bytes())
    assert "run-1.json: expected what record writes, got " in refusal("report", tmp_path, *option)


def test_a_usage_file_that_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    (tmp_path / "usage" / "a.json").symlink_to("/dev/zero")
    assert refusal("report", tmp_path).endswith(
        "got expected a regular file, got a device, pipe or socket"
    )
    (tmp_path / "usage" / "a.json").unlink()
    os.mkfifo(tmp_path / "usage" / "a.json")
    assert refusal("report", tmp_path).endswith(
        "got expected a regular file, got a device, pipe or socket"
    )
    with (tmp_path / "usage" / "0.json").open("wb") as file:
        file.truncate(2**40)
    assert refusal("report", tmp_path).endswith("got expected at most 16777216 bytes, got more")


def test_no_terminal_code_of_a_recording_is_printed(tmp_path: Path) -> None:
    evil = "\x1b[31m\x07\u202e[bold]\n"
    document = usage(nodes=[evil], reasons=[evil], threads={evil: 1})
    document["problems"] = [{"where": evil, "what": evil, "count": 1}]
    write_usage(tmp_path / evil.strip(), json.dumps(document).encode())
    for option in ((), ("--json",)):
        done = CliRunner().invoke(main, ["report", str(tmp_path / evil.strip()), *option])
        assert done.exit_code == 0
        assert not {"\x1b", "\x07"} & {*done.output}
        # In JSON for programs any other sign is itself.
        assert option or ("\u202e" not in done.output and "[bold]" in done.output)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_graph_of_a_recording_that_is_not_in_its_folder(tmp_path: Path, kind: str) -> None:
    folder = write_usage(tmp_path / "here", json.dumps(usage(plans={"a.plan": 5})).encode())
    (tmp_path / "outside.plan").write_bytes(PLANS[0].read_bytes())
    path = folder / "a.plan"
    if kind == "link":
        path.symlink_to("../outside.plan")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    done = CliRunner().invoke(main, ["report", str(folder), "--json"])
    if kind == "folder":
        assert (done.exit_code, done.output) == (2, f"error: {path}: Is a directory\n")
        return
    assert done.exit_code == 0
    [graph] = json.loads(done.stdout)["graphs"]
    [reason] = graph["reasons"]
    assert reason.startswith("no file of it is in" if kind == "link" else f"{path}: {NO_FILE}")


def test_many_overrides_are_read_soon(tmp_path: Path) -> None:
    override = TESTS / "data/plans/cudnn-9.27-sm90/matmul_override.plan"
    found = [
        {"uids": [1], "shapes": [[1, size, 1]], "strides": [[1, 1, 1]], "calls": 1}
        for size in range(20_000)
    ]
    folder = write_usage(tmp_path, json.dumps(usage(overrides=found, plans={"a.plan": 1})).encode())
    shutil.copy(override, folder / "a.plan")
    done = CliRunner().invoke(main, ["report", str(folder), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["graphs"][0]["overrides"]["values"] == 20_000


# What a program passes


@pytest.fixture(params=["load_plan", "plan_maker"])
def read(request: pytest.FixtureRequest) -> Callable[[Any], object]:
    return read_plans if request.param == "load_plan" else lambda given: plan_maker(given, ())


@pytest.mark.parametrize("kind", ["/dev/zero", "/dev/null", "pipe", "large", "bytes"])
def test_what_is_no_file_or_has_no_end(
    read: Callable[[Any], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = Path(kind) if kind.startswith("/") else tmp_path / kind
    message = NO_FILE
    if kind == "pipe":
        os.mkfifo(path)
    elif kind in ("large", "bytes"):
        with path.open("wb") as file:
            file.truncate(2**40 if kind == "large" else 2000)
        monkeypatch.setattr(source, "MAX_BYTES", 1000)
        message = "expected at most 1000 bytes, got more"
    with pytest.raises(GraphFormatError) as caught:
        read(path.read_bytes() if kind == "bytes" else str(path))
    name = caught.value.file if kind == "bytes" else str(path)
    assert str(caught.value).startswith(f"{name}: {message} (")


def test_a_folder_or_nothing_is_an_error_of_the_system(
    read: Callable[[Any], object], tmp_path: Path
) -> None:
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing")


def test_what_a_shell_passes_as_a_file_is_read(tmp_path: Path) -> None:
    """A pipe, of the command line's arguments only: ``show <(zcat attn.plan.gz)``."""
    (tmp_path / "g.json").write_bytes(to_json(add_graph()))
    command = f'{sys.executable} -m cudnn_bindgen.cli show <(cat "{tmp_path}/g.json")'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_log_of_beginnings(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b'{"context"\n' * (source.MAX_BYTES // 11))
    line = refusal("emit", path, "-o", "-")
    assert line.startswith(f"{path}: expected a log with at most 200000 dumps of graphs, got more")


def test_a_plan_of_no_ops(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    path.write_bytes(b"{i\x01a[" + b"N" * (8 * 2**20 - 10) + b"]}")
    assert "expected a marker, got b'N' at byte 5" in refusal("emit", path, "-o", "-")


# Sizes


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"fe_workspace_size": 2**63 - 1}, "$.fe_workspace_size"),
        ({"fe_workspace_size": 2**48 + 1}, "$.fe_workspace_size"),
        (
            {"workspace_modifications": {"7": [2, 2**63 - 1, []]}},
            "$.workspace_modifications[...][1]",
        ),
        (
            {"variant_pack_replacements": [[1, [8, 2**63 - 1]]]},
            "$.variant_pack_replacements[0][1][1]",
        ),
    ],
)
def test_sizes_whose_sums_would_be_negative(
    tmp_path: Path, fields: dict[str, Any], path: str
) -> None:
    file = tmp_path / "a.plan"
    file.write_bytes(to_ubjson(plan_document(add_graph(), **fields)))
    assert refusal("emit", file, "-o", "-").startswith(f"{file}: {path}: expected int <= {2**48}")
    with pytest.raises(GraphFormatError, match="expected int <="):
        read_plans(file.read_bytes())


def test_a_real_plan_with_such_a_size(tmp_path: Path) -> None:
    plan = ubjson.loadb(CASES["thd"].plan) | {"fe_workspace_size": 2**63 - 1}
    with pytest.raises(GraphFormatError, match=r"\$\.fe_workspace_size: expected int <="):
        read_plans(ubjson.dumpb(plan))
