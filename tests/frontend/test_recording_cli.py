"""`cudnn-bindgen record` and `report` from end to end; the programs import the fake frontend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.recording_fakes import FAKE, LAYERNORM, OVERRIDE, SCALE, only_graph, usage

PROGRAM = f"""
import os, sys
import cudnn
buffers = {{1: cudnn.Buffer((4, 8), (8, 1), value=3), 3: cudnn.Buffer((4, 8), (8, 1))}}
def work(stem, calls):
    graph = cudnn.pygraph(stem)
    graph.build()
    for _ in range(calls):
        graph.execute(buffers)
    return buffers[3].value
SCALE, LAYERNORM, OVERRIDE = {str(SCALE)!r}, {str(LAYERNORM)!r}, {str(OVERRIDE)!r}
"""


def run(*arguments: object, path: Path = FAKE, **options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(path)} | options
    return subprocess.run(
        [sys.executable, "-m", "cudnn_bindgen.cli", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def record(folder: Path, *program: object, **options: str) -> subprocess.CompletedProcess[str]:
    return run("record", "-o", folder, "--", *program, **options)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "serve.py"
    path.write_text(PROGRAM + "print(work(SCALE, int(sys.argv[1])), sys.argv)\n")
    return path


def test_a_script(script: Path, tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, str(script), "100", "--", "-o"],
        env=os.environ | {"PYTHONPATH": str(FAKE)},
        capture_output=True,
        text=True,
        check=True,
    )
    done = record(tmp_path / "graphs", sys.executable, script, 100, "--", "-o")
    assert (done.stdout, done.returncode) == (alone.stdout, 0)
    assert done.stderr.splitlines() == [
        f"recorded, processes: 1; cudnn-bindgen report {tmp_path / 'graphs'}"
    ]
    assert only_graph(tmp_path / "graphs")["calls"] == 100
    assert usage(tmp_path / "graphs")["program"] == "serve.py"
    assert {path.suffix for path in (tmp_path / "graphs").rglob("*.*")} == {".json", ".plan"}


def test_a_module_and_a_command(script: Path, tmp_path: Path) -> None:
    folder = tmp_path / "graphs"
    record(folder, sys.executable, "-m", "serve", 3, PYTHONPATH=f"{FAKE}:{tmp_path}")
    record(folder, sys.executable, "-c", PROGRAM + "work(SCALE, 4)")
    files = sorted((folder / "usage").iterdir())
    calls = [
        only["calls"] for file in files for only in json.loads(file.read_text())["graphs"].values()
    ]
    assert sorted(calls) == [3, 4]
    assert len(list(folder.glob("*.plan"))) == 1


@pytest.mark.parametrize("code", ["sys.exit(7)", "os.kill(os.getpid(), 15)", "raise ValueError"])
def test_the_exit_code_is_passed_on(code: str, tmp_path: Path) -> None:
    program = PROGRAM + f"work(SCALE, 5)\n{code}\n"
    done = record(tmp_path, sys.executable, "-c", program)
    expected = {"sys.exit(7)": 7, "raise ValueError": 1}.get(code, 128 + signal.SIGTERM)
    assert done.returncode == expected
    # A signal that kills leaves what was written as the first graph was built.
    assert only_graph(tmp_path)["calls"] == (0 if expected > 128 else 5)


def test_children_of_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "parent.py"
    path.write_text(
        PROGRAM
        + """
import multiprocessing, subprocess
if __name__ == "__main__":
    work(SCALE, 10)
    head = open(__file__).read()[: -len(TAIL)]
    subprocess.run([sys.executable, "-c", head + "work(LAYERNORM, 20)"], check=True)
    for kind in ("fork", "spawn"):
        child = multiprocessing.get_context(kind).Process(target=work, args=(SCALE, 1000))
        child.start()
        child.join()
    work(SCALE, 1)
"""
    )
    text = path.read_text()
    start = text.index("\nimport multiprocessing")
    path.write_text(
        text[:start].replace(
            "import os, sys", f"import os, sys\nTAIL = ' ' * {len(text) - start}", 1
        )
        + text[start:]
    )
    folder = tmp_path / "graphs"
    done = record(folder, sys.executable, "-W", "error::DeprecationWarning", path)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
    report = json.loads(run("report", folder, "--json").stdout)
    assert report["processes"] == 4
    assert [graph["calls"] for graph in report["graphs"]] == [2011, 20]
    assert report["problems"] == []


def test_the_path_and_the_sitecustomize_of_the_program_are_its_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import sys\nsys.mine = __file__\n")
    code = "import sys, sitecustomize; print(sys.mine, sitecustomize.__file__, sys.path)"
    alone = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(mine)},
        capture_output=True,
        text=True,
        check=True,
    )
    done = record(tmp_path / "graphs", sys.executable, "-c", code, PYTHONPATH=str(mine))
    assert done.stdout == alone.stdout
    code = "import sys; print(sys.path, 'sitecustomize' in sys.modules)"
    done = record(tmp_path / "graphs", sys.executable, "-c", code, PYTHONPATH="")
    assert "startup" not in done.stdout


def test_programs_that_cannot_be_recorded(tmp_path: Path) -> None:
    done = record(tmp_path, "no-such-program")
    assert (done.returncode, done.stderr) == (
        2,
        "error: no-such-program: No such file or directory\n",
    )
    done = record(tmp_path, "true")
    assert done.returncode == 2
    assert "error: true: expected a program that runs Python, got one without" in done.stderr
    assert record(tmp_path, "sh", "-c", "exit 5").returncode == 5
    done = record(tmp_path, sys.executable, "-I", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (2, "1\n")
    done = record(tmp_path, sys.executable, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert ": nothing recorded: no Python with cudnn-bindgen built or executed" in done.stderr
    done = record(tmp_path / "a" / "file", "true")
    (tmp_path / "taken").write_text("")
    done = record(tmp_path / "taken" / "graphs", "true")
    assert (done.returncode, done.stderr) == (
        2,
        f"error: {tmp_path}/taken/graphs: Not a directory\n",
    )


def test_a_program_that_is_stopped_from_outside(tmp_path: Path) -> None:
    code = (
        PROGRAM
        + "import signal\nsignal.signal(15, lambda *_: sys.exit(9))\n"
        + "work(SCALE, 5)\nprint('ready', flush=True)\nsignal.pause()\n"
    )
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "cudnn_bindgen.cli", "record", "-o", str(tmp_path)),
            *("--", sys.executable, "-c", code),
        ],
        env=os.environ | {"PYTHONPATH": str(FAKE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 9
    assert only_graph(tmp_path)["calls"] == 5


def test_record_inside_of_a_recorded_program(tmp_path: Path) -> None:
    code = PROGRAM + (
        f"import cudnn_bindgen\nwith cudnn_bindgen.record({str(tmp_path / 'own')!r}) as folder:\n"
        "    work(SCALE, 5)\nprint(folder)\n"
    )
    done = record(tmp_path / "graphs", sys.executable, "-W", "ignore", "-c", code)
    assert done.stdout == f"{tmp_path / 'graphs'}\n"
    assert only_graph(tmp_path / "graphs")["calls"] == 5
    assert not (tmp_path / "own").exists()


def test_a_frontend_that_is_not_there_or_breaks(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "cudnn.py").write_text("raise RuntimeError('no driver')")
    code = "try:\n    import cudnn\nexcept RuntimeError as error:\n    print(error)"
    done = record(tmp_path / "graphs", sys.executable, "-c", code, PYTHONPATH=str(broken))
    assert (done.stdout, done.returncode) == ("no driver\n", 0)
    (broken / "cudnn.py").write_text("older = True")
    done = record(tmp_path / "graphs", sys.executable, "-c", "import cudnn", PYTHONPATH=str(broken))
    assert done.returncode == 0
    assert "nothing is recorded: RecordError: expected nvidia-cudnn-frontend, got" in done.stderr


def test_a_report(tmp_path: Path) -> None:
    code = PROGRAM + (
        "work(SCALE, 30)\nwork(LAYERNORM, 60)\n"
        "graph = cudnn.pygraph(OVERRIDE)\ngraph.build()\n"
        "for m in (8, 16, 8, 24): graph.execute(buffers, override_uids=[1, 3], "
        "override_shapes=[[1, m, 64], [1, m, 64]], override_strides=[[64 * m, 64, 1]] * 2)\n"
    )
    record(tmp_path, sys.executable, "-c", code)
    done = run("report", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[
        0
    ] == f"{tmp_path.name and str(tmp_path)[-60:]}: 3 graphs, 94 calls, 1 processes" or (
        "3 graphs, 94 calls, processes: 1" in lines[0]
    )
    assert "LAYER_NORM" in done.stdout
    assert "63.8%" in done.stdout
    assert "Savings are estimated host time (benchmarks/README.md: one H200" in done.stdout
    again = json.loads(run("report", tmp_path, "--json").stdout)
    assert [graph["calls"] for graph in again["graphs"]] == [60, 30, 4]
    assert [(tmp_path / graph["file"]).suffix for graph in again["graphs"]] == [".plan"] * 3


def test_a_folder_that_holds_no_recording(tmp_path: Path) -> None:
    done = run("report", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: {tmp_path}: expected a folder that cudnn-bindgen record wrote"
    )
    (tmp_path / "usage").mkdir()
    for text in ("{", "[]", "null", '{"version": 2}', '{"version": 1}'):
        (tmp_path / "usage" / "run-1.json").write_text(text)
        done = run("report", tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "run-1.json: expected what record writes, got" in done.stderr
        assert len(done.stderr.splitlines()) == 1
