"""`build` as it is used day by day: again, beside another, with what fails, and interrupted."""

from __future__ import annotations

import os
import resource
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
from support.documents import add_graph, to_json

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
    """Put a script in the place of the C compiler."""

    def compiler(text: str) -> None:
        script = here / "cc"
        script.write_text(text)
        script.chmod(0o755)
        monkeypatch.setenv("CC", str(script))

    return compiler


def told(result: Result) -> list[str]:
    """Return what a command says of each module, up to its name."""
    lines = result.stderr.splitlines()
    return [line.partition(": module")[0] for line in lines if not line.startswith("next: ")]


def test_what_is_compiled_is_said_and_what_is_fresh_is_left(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("a.json", "b.json", "-d", "out", "-j", "2")
    assert (first.exit_code, first.stdout) == (0, "")
    assert told(first) == [f"compiled {extension_path(Path('out'), name)}" for name in "ab"]
    before = {path: path.stat().st_mtime_ns for path in (here / "out").iterdir()}
    # Files of the same text are the same graph, whenever they were written.
    for path in (here / "a.json", here / "out" / "a.pyx"):
        os.utime(path)
    before[here / "out" / "a.pyx"] = (here / "out" / "a.pyx").stat().st_mtime_ns
    second = run("a.json", "b.json", "-d", "out")
    fresh = [f"up to date: {extension_path(Path('out'), name)}" for name in "ab"]
    assert (second.exit_code, told(second)) == (0, fresh)
    assert {path: path.stat().st_mtime_ns for path in (here / "out").iterdir()} == before
    quiet = run("a.json", "-d", "out", "-q")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_a_module_is_fresh_by_what_it_was_made_of(
    compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFLAGS", os.environ.get("CFLAGS", "-O0"))  # as in conftest.py
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
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    for damaged in (flipped, content[:-1], content[:middle], content[middle:], b"", b"x" * 20):
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
    for path in runtime.glob("*.pxd"):
        shutil.copy(path, package / path.relative_to(runtime.parent))
    monkeypatch.setattr(compiling.cudnn_bindgen, "__file__", str(package / "__init__.py"))
    assert describe_environment() == found[0]
    with (package / "runtime" / "graph.pxd").open("a") as file:
        file.write("\n")
    found.append(describe_environment())
    monkeypatch.setenv("CFLAGS", "-O1")
    found.append(describe_environment())
    assert len({*found}) == 3


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
        assert f"error: out/{name}.pyx: not compiled\nerror: no luck\n" in done.stderr
    assert done.stderr.endswith("error: 2 of 2 modules not compiled\n")
    assert "Traceback" not in done.stderr
    assert binary.read_bytes() == before
    assert [path.name for path in compiled.iterdir() if path.name.startswith(".")] == []


def test_cythons_words(here: Path) -> None:
    write_files(here, {"bad.pyx": "# cython: language_level=3\ncdef nonsense x = 1\n"})
    with pytest.raises(compiling.CompileError, match="'nonsense' is not a type identifier") as one:
        compiling.compile_module(here / "bad.pyx", here)
    assert "Traceback" not in str(one.value)


@pytest.mark.parametrize("value", ["no-such-compiler", "/", "/no/such\x1b compiler"])
def test_no_compiler(here: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """It is one line for all modules, with the remedy."""
    monkeypatch.setenv("CC", value)
    done = run("a.json", "b.json", "-d", "out")
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: expected a C compiler, got none: there is no ")
    assert "apt install gcc" in line
    assert line.isprintable()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'c++", 'CC: expected a command line, got "\'c++": No closing quotation'),
        (" ", "CC: expected a command, got nothing"),
    ],
)
def test_a_compiler_that_is_no_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, value: str, expected: str
) -> None:
    monkeypatch.setenv("CC", value)
    done = run("a.json", "-d", "out")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[:2] == ["error: out/a.pyx: not compiled", expected]


@pytest.mark.parametrize("name", ["CFLAGS", "LDFLAGS", "LDSHARED"])
def test_options_for_the_compiler_that_are_none(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, '"')
    done = run("a.json", "-d", "out")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[1:-1] == [
        f"{name}: expected a command line, got '\"': No closing quotation"
    ]


def test_no_room_for_temporary_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    write_files(here, {"a.pyx": "# cython: language_level=3\n"})
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(compiling.CompileError) as caught:
            compiling.compile_module(here / "a.pyx", here)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert str(caught.value) == "error: File too large"
    assert sorted(path.name for path in here.iterdir()) == ["a.json", "a.pyx", "b.json", "c.json"]


def test_a_folder_that_is_not_utf_8(here: Path) -> None:
    folder = os.fsdecode(b"not \xff")
    (here / folder).mkdir()
    shutil.copy(here / "a.json", here / folder)
    done = run(f"{folder}/a.json", "-d", folder, "-q")
    assert (done.exit_code, done.output) == (0, "")
    assert extension_path(here / folder, "a").exists()


def test_a_folder_that_is_none_and_not_utf_8(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler says so, and compiles the next module."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")  # as in most locales
    (here / "a.pyx").write_text("# cython: language_level=3\n")
    folder = here / os.fsdecode(b"not \xff")
    folder.touch()
    with compiling.new_compiler() as compiler:
        with pytest.raises(compiling.CompileError, match=r"Not a directory$") as caught:
            compiling.compile_module(here / "a.pyx", folder, compiler)
        assert "Traceback" not in str(caught.value)
        assert compiling.compile_module(here / "a.pyx", here, compiler).exists()


@pytest.mark.parametrize(
    ("number", "status", "words", "ignored"),
    [
        (signal.SIGINT, 1, "Aborted!", None),
        (signal.SIGTERM, 143, "", None),
        (signal.SIGHUP, 129, "", None),
        (signal.SIGTERM, 143, "", signal.SIGINT),
    ],
)
def test_interrupted(
    here: Path,
    compiler: Callable[[str], None],
    number: signal.Signals,
    status: int,
    words: str,
    ignored: signal.Signals | None,
) -> None:
    """All compilers end at once, none is started any more, and nothing is left behind.

    A process that a script starts in the background ignores SIGINT from birth, as do its children:
    so may this one, and so may `build`, whose compilers must end nevertheless.
    """
    (here / "running").mkdir()
    (here / "temporary").mkdir()
    compiler(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\n'
        f"trap 'rm {here}/running/$$; exit 143' TERM\ntouch {here}/running/$$\n"
        "while :; do sleep 0.05; done\n"
    )

    def prepare() -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN if each == ignored else signal.SIG_DFL)

    environment = os.environ | {"TMPDIR": str(here / "temporary")}
    with subprocess.Popen(
        [*COMMAND, "a.json", "b.json", "c.json", "-d", "out", "-j", "2"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # where SIGINT goes to it alone
        preexec_fn=prepare,
    ) as process:
        try:
            while len(list((here / "running").iterdir())) < 2:
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == status
    assert said.strip() == words
    assert list((here / "running").iterdir()) == []
    assert list((here / "temporary").iterdir()) == []
    assert {path.suffix for path in (here / "out").iterdir()} == {".pyx", ".pyi", ".pxd"}


def test_who_is_interrupted_ends_the_compiler(here: Path) -> None:
    """As Ctrl-C does to a program that compiles a module."""
    with pytest.raises(KeyboardInterrupt), compiling.new_compiler() as compiler:
        process = compiler.start()
        raise KeyboardInterrupt
    assert process.returncode != 0
    with pytest.raises(compiling.CompileError, match="interrupted"):
        compiling.compile_module(here / "a.pyx", here, compiler)


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
    assert {line[:12] for line in told(run("a.json", "b.json", "-d", "out"))} == {"up to date: "}


def test_modules_of_operators_count_as_names(here: Path) -> None:
    (here / "a_torch.json").write_bytes(to_json(add_graph()))
    done = run("a.json", "a_torch.json", "-d", "out", "--torch")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: module name: expected one graph for a_torch, got a.json and a_torch.json\n",
    )
    assert not (here / "out").exists()
