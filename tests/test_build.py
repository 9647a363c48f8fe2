"""`build` as it is used day by day: again, beside another, with what fails, and interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from documents import add_graph, to_json

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen import compile as compiling
from cudnn_bindgen.codegen.compile import describe_environment, extension_path, is_fresh
from cudnn_bindgen.codegen.output import write_files

COMMAND = (sys.executable, "-m", "cudnn_bindgen.cli", "build")
FAILING = "#!/bin/sh\necho 'error: no luck' >&2\nexit 1\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["build", *arguments])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.json").write_bytes(to_json(add_graph(a=name)))
    return tmp_path


@pytest.fixture
def compiled(builds: Any, here: Path) -> Path:
    """A folder with an emitted and compiled module."""
    builds.path("empty")
    folder = here / "out"
    folder.mkdir()
    for path in builds.directory.glob("empty.*"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def compiler(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a script in the place of the C++ compiler."""

    def compiler(text: str) -> None:
        script = here / "c++"
        script.write_text(text)
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        monkeypatch.setenv("CC", str(script))

    return compiler


def test_what_is_compiled_is_said_and_what_is_fresh_is_left(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("a.json", "b.json", "-d", "out", "-j", "2")
    assert (first.exit_code, first.stdout) == (0, "")
    assert first.stderr == "2 modules: 2 compiled, 0 up to date\n"
    before = {path: path.stat().st_mtime_ns for path in (here / "out").iterdir()}
    # Files of the same text are the same graph, whenever they were written.
    for path in (here / "a.json", here / "out" / "a.pyx"):
        os.utime(path)
    before[here / "out" / "a.pyx"] = (here / "out" / "a.pyx").stat().st_mtime_ns
    second = run("a.json", "b.json", "-d", "out")
    assert (second.exit_code, second.stderr) == (0, "2 modules: 0 compiled, 2 up to date\n")
    assert {path: path.stat().st_mtime_ns for path in (here / "out").iterdir()} == before
    one = run("a.json", "-d", "out")
    assert (one.exit_code, one.output) == (0, "")


def test_a_module_is_fresh_by_what_it_was_made_of(compiled: Path) -> None:
    source, environment = compiled / "empty.pyx", describe_environment()
    binary = extension_path(compiled, "empty")

    def fresh() -> bool:
        return is_fresh(source, compiled, environment)

    assert fresh()
    os.utime(binary, (1, 1))  # as an archive or a checkout may set it
    assert fresh()
    assert not is_fresh(source, compiled, "another")
    for path in (source, compiled / "empty.pxd"):
        text = path.read_text()
        path.write_text(f"{text}# other\n")
        os.utime(path, (1, 1))
        assert not fresh()
        path.write_text(text)
        assert fresh()
    content = binary.read_bytes()
    for damaged in (content[:-1], content[: len(content) // 2], b"", b"x" * 20):
        binary.write_bytes(damaged)
        assert not fresh()
    binary.unlink()
    assert not fresh()


def test_the_runtime_and_the_toolchain_are_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [describe_environment()]
    assert describe_environment() == found[0]
    runtime = Path(compiling.cudnn_bindgen.__file__).parent / "runtime"
    package = tmp_path / "package"
    (package / "runtime").mkdir(parents=True)
    (package / "__init__.py").touch()
    for path in [*runtime.glob("*.pxd"), *runtime.glob("*.hpp")]:
        shutil.copy(path, package / "runtime")
    monkeypatch.setattr(compiling.cudnn_bindgen, "__file__", str(package / "__init__.py"))
    assert describe_environment() == found[0]
    for name in ("graph.pxd", "launch_record.hpp"):
        with (package / "runtime" / name).open("a") as file:
            file.write("\n")
        found.append(describe_environment())
    monkeypatch.setenv("CFLAGS", "-O1")
    found.append(describe_environment())
    assert len({*found}) == 4


def test_a_failure_is_said_in_the_compilers_words(
    compiled: Path, here: Path, compiler: Callable[[str], None]
) -> None:
    binary = extension_path(compiled, "empty")
    before = binary.read_bytes()
    (compiled / "empty.pxd").write_text("")
    (here / "empty.json").write_bytes(to_json(add_graph()))
    compiler(FAILING)
    done = run("empty.json", "a.json", "-d", "out")
    assert (done.exit_code, done.stdout) == (2, "")
    for name in ("empty", "a"):
        assert f"out/{name}.pyx: not compiled\nerror: no luck\n" in done.stderr
    assert done.stderr.endswith("2 modules: 0 compiled, 0 up to date, 2 failed\n")
    assert "Traceback" not in done.stderr
    assert binary.read_bytes() == before
    assert [path.name for path in compiled.iterdir() if path.name.startswith(".")] == []


def test_cythons_words(here: Path) -> None:
    write_files(here, {"bad.pyx": "# cython: language_level=3\ncdef nonsense x = 1\n"})
    with pytest.raises(compiling.CompileError, match="'nonsense' is not a type identifier") as one:
        compiling.compile_module(here / "bad.pyx", here)
    assert "Traceback" not in str(one.value)


def test_no_compiler(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("CC", "no-such-compiler")
    done = run("a.json", "-d", "out")
    assert done.exit_code == 2
    assert "no-such-compiler" in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupted(here: Path, compiler: Callable[[str], None]) -> None:
    """All compilers end at once, none is started any more, and nothing is left behind."""
    (here / "running").mkdir()
    (here / "temporary").mkdir()
    compiler(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\n'
        f"touch {here}/running/$$\ntrap 'rm {here}/running/$$; exit 130' INT\n"
        "while :; do sleep 0.05; done\n"
    )
    environment = os.environ | {"TMPDIR": str(here / "temporary")}
    with subprocess.Popen(
        [*COMMAND, "a.json", "b.json", "c.json", "-d", "out", "-j", "2"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # where SIGINT goes to it alone
    ) as process:
        while len(list((here / "running").iterdir())) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 1
    assert said.strip() == "Aborted!"
    assert list((here / "running").iterdir()) == []
    assert list((here / "temporary").iterdir()) == []
    assert {path.suffix for path in (here / "out").iterdir()} == {".pyx", ".pyi", ".pxd"}


def test_two_builds_at_once(here: Path) -> None:
    processes = [
        subprocess.Popen([*COMMAND, "a.json", "b.json", "-d", "out"], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in processes:
        _, said = process.communicate()
        assert process.returncode == 0, said
    assert len(list((here / "out").iterdir())) == 8
    code = "import a, b; print(a.FINGERPRINT == b.FINGERPRINT)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here / "out", capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert run("a.json", "b.json", "-d", "out").stderr.endswith("0 compiled, 2 up to date\n")


def test_modules_of_operators_count_as_names(here: Path) -> None:
    (here / "a_torch.json").write_bytes(to_json(add_graph()))
    done = run("a.json", "a_torch.json", "-d", "out", "--torch")
    assert (done.exit_code, done.stderr) == (
        2,
        "module name: expected one graph for a_torch, got a.json and a_torch.json\n",
    )
    assert not (here / "out").exists()
