"""The command ``bundle``, and the other commands with a bundle as GRAPH."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from support.bundling import bundle, device, file_name, plan, two, unzip, with_entry
from support.documents import DATA, TESTS, add_graph, to_json
from support.emitting import record_of

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.codegen.render.module import render

REAL = [DATA / "plans" / f"cudnn-{v}-sm90/scale_by_value.plan" for v in ("9.19", "9.27")]
SUFFIXES = (".pxd", ".py", ".pyi", ".pyx")
OVERRIDDEN = DATA / "plans/cudnn-9.27-sm90/matmul_override.plan"


def run(*arguments: str | Path, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.plan").write_bytes(plan())
    (tmp_path / "b.plan").write_bytes(plan(cudnn=92700))
    (tmp_path / "attn.bundle").write_bytes(two())
    return tmp_path


def expected(module: str = "attn", source: str = "attn.bundle") -> dict[str, str]:
    return render(bind_graphs(read_graphs(two())), module, source)


def files(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.suffix in SUFFIXES}


def test_bundle_writes_one_file_and_says_what_is_in_it(here: Path) -> None:
    result = run("bundle", "b.plan", "a.plan", "-o", "new/x.bundle")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (here / "new/x.bundle").read_bytes() == two()
    assert [path.name for path in (here / "new").iterdir()] == ["x.bundle"]
    size = len(plan())
    assert result.stderr.splitlines() == [
        f"new/x.bundle: {device(cudnn=version)}, engine 90, {size} bytes"
        for version in ("9.19.0", "9.27.0")
    ]


def test_bundle_merges_bundles_and_reads_standard_input(here: Path) -> None:
    more = plan(sm=100, sm_count=148)
    result = run("bundle", "attn.bundle", "a.plan", "-", "-o", "attn.bundle", stdin=more)
    assert result.exit_code == 0, result.output
    assert (here / "attn.bundle").read_bytes() == bundle(plan(), plan(cudnn=92700), more)
    assert len(result.stderr.splitlines()) == 3


def test_bundle_leaves_what_is_up_to_date_alone(here: Path) -> None:
    os.utime("attn.bundle", (1, 1))
    assert run("bundle", "a.plan", "b.plan", "-o", "attn.bundle").exit_code == 0
    assert (here / "attn.bundle").stat().st_mtime == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.plan", "s.json"), "s.json: expected a plan, got structure only (make a plan of it"),
        (
            ("a.plan", "c.plan"),
            f"c.plan: expected one plan for {device()}, got",
        ),
        (("a.plan", "bad.bundle"), "bad.bundle/" + file_name() + ": expected a plan for SM 80 "),
        (("a.plan", "lost.plan"), "lost.plan: No such file or directory"),
    ],
)
def test_bundle_refuses_and_keeps_the_old_file(
    here: Path, arguments: tuple[str, ...], message: str
) -> None:
    (here / "s.json").write_bytes(to_json(add_graph()))
    (here / "c.plan").write_bytes(plan(fe_workspace_size=8))
    (here / "bad.bundle").write_bytes(with_entry(two(), 0, sm=80))
    result = run("bundle", *arguments, "-o", "attn.bundle")
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")
    assert (here / "attn.bundle").read_bytes() == two()


def test_bundle_needs_an_output_and_a_plan(here: Path) -> None:
    assert "Missing option '-o'" in run("bundle", "a.plan").stderr
    assert "Missing argument 'PLAN...'" in run("bundle", "-o", "x.bundle").stderr


def test_emit_writes_one_module(here: Path) -> None:
    result = run("emit", "attn.bundle", "-q")
    assert (result.exit_code, result.output) == (0, "")
    assert files(here) == expected()
    assert run("emit", "attn.bundle", "--check").exit_code == 0
    assert run("emit", "attn.bundle", "-o", "-").stdout == expected()["attn.pyx"]
    piped = run("emit", "-", "-o", "-", stdin=two())
    assert piped.stdout == expected("binding", "stdin")["binding.pyx"]


def test_check_sees_a_plan_more(here: Path) -> None:
    run("emit", "attn.bundle")
    (here / "attn.bundle").write_bytes(bundle(plan(), plan(cudnn=92700), plan(sm=100)))
    result = run("emit", "attn.bundle", "--check")
    assert result.exit_code == 1
    assert "+Plan for SM 100, 132 multiprocessors, cuDNN 9.19.0" in result.stdout


def test_a_depfile_names_the_bundle_and_its_sidecar(here: Path) -> None:
    (here / "attn.bundle").write_bytes(bundle(OVERRIDDEN.read_bytes()))
    (here / "attn.bundle.toml").write_text('[symbols]\nM = "a.m,out_0.m"\n')
    result = run("emit", "attn.bundle", "--depfile", "attn.d")
    assert result.exit_code == 0, result.output
    assert (here / "attn.d").read_text().endswith(": attn.bundle attn.bundle.toml\n")
    assert "    def set(self, *, M=None):" in (here / "attn.pyx").read_text()


def test_operators_of_pytorch_and_a_gradient_in_a_bundle(here: Path) -> None:
    golden = TESTS / "golden/torch_scalars"
    for name, file in (("torch_scalars", "input.json"), ("backward", "backward.json")):
        structure = json.loads((golden / file).read_text())
        (here / f"{name}.bundle").write_bytes(
            bundle(plan(structure=structure), plan(100, 148, structure=structure))
        )
    arguments = ("torch_scalars.bundle", "--torch", "--backward", "backward.bundle")
    result = run("emit", *arguments)
    assert result.exit_code == 0, result.output
    emitted = files(here)
    for name in ("torch_scalars.pyx", "backward.pyx"):
        assert len(record_of(emitted[name]).graphs[0].plans) == 2
    assert "torch_scalars_torch.py" in emitted
    assert run("emit", *arguments, "--check").exit_code == 0


def test_build_compiles_it(here: Path) -> None:
    result = run("build", "attn.bundle", "-d", "out")
    assert (result.exit_code, result.stdout) == (0, "")
    assert extension_path(here / "out", "attn").is_file()
    assert files(here / "out") == expected()


def test_show_prints_a_row_for_each_plan(here: Path) -> None:
    (here / "s.bundle").write_bytes(bundle(*(path.read_bytes() for path in REAL)))
    result = run("show", "s.bundle")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    rows = lines[lines.index("SM SM count cuDNN engine bytes") :]
    assert rows[2].startswith("90 132 9.19.0 engine 1 KERNEL_CFG=37 SPLIT_K_SLC=-1 67065")
    assert rows[3].startswith("90 132 9.27.0 engine 1 KERNEL_CFG=37 SPLIT_K_SLC=-1 67311")
    assert lines[0].startswith("s.bundle: plan, graph ")
    assert sum(line.startswith("0 1 in_0_ptr") for line in lines) == 1


def test_show_prints_json_with_all_plans(here: Path) -> None:
    shown = msgspec.json.decode(run("show", "attn.bundle", "--json").stdout)
    single = msgspec.json.decode(run("show", "a.plan", "--json").stdout)
    assert "plan" not in shown
    assert [plan["cudnn_version"] for plan in shown["plans"]] == [91900, 92700]
    assert shown["plans"][:1] == single["plans"]
    assert {**shown, "plans": []} == {**single, "plans": []}


def test_show_explains_a_bundle_that_is_refused(here: Path) -> None:
    (here / "bad.bundle").write_bytes(two()[:-1])
    lines = run("show", "bad.bundle").stderr.splitlines()
    assert lines[1] == "  read as  bundle"
    refused = msgspec.json.decode(run("show", "bad.bundle", "--json").stdout)["refused"]
    assert refused["dialect"] == "bundle"
    (here / "odd.bundle").write_bytes(with_entry(two(), 1, sm=80))
    assert run("show", "odd.bundle").stderr.startswith(
        f"error: odd.bundle/{file_name(cudnn='9.27.0')}:"
    )


def test_a_bundle_holds_one_graph(here: Path) -> None:
    rows = run("show", "attn.bundle", "--list").stdout.splitlines()
    assert rows[0] == "attn.bundle: graphs, by --index"
    assert [row.split()[0] for row in rows if "POINTWISE" in row] == ["1"]
    assert run("emit", "attn.bundle", "--index", "1", "-o", "-").exit_code == 0
    refused = run("show", "attn.bundle", "--index", "2").stderr
    assert "expected an --index from 1 to 1, got 2" in refused


@pytest.mark.skipif(sys.platform == "win32", reason="modes of Unix")
def test_a_bundle_is_a_file_like_any_other(here: Path) -> None:
    run("bundle", "a.plan", "-o", "x.bundle")
    umask = os.umask(0)
    os.umask(umask)
    assert (here / "x.bundle").stat().st_mode & 0o777 == 0o666 & ~umask
    assert unzip((here / "x.bundle").read_bytes())[file_name()] == plan()
