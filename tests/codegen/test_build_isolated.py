"""What lies in the working directory or beside a graph is neither executed nor compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import add_graph, to_json

from cudnn_bindgen.codegen.compile import compile_module, describe_environment, is_fresh
from cudnn_bindgen.codegen.output import write_files

# Of the standard library and of dependencies.
NAMES = (
    *("argparse", "ast", "base64", "click", "codecs", "contextlib", "copy", "dataclasses"),
    *("distutils", "functools", "hashlib", "importlib", "io", "jinja2", "json", "keyword"),
    *("logging", "msgspec", "numpy", "os", "pathlib", "pkg_resources", "platform", "queue"),
    *("random", "re", "rich", "secrets", "select", "setuptools", "shlex", "shutil", "signal"),
    *("site", "sitecustomize", "stat", "string", "struct", "subprocess", "sysconfig", "tempfile"),
    *("textwrap", "threading", "tokenize", "tomllib", "types", "typing", "ubjson", "unicodedata"),
    *("usercustomize", "uuid", "warnings", "weakref", "zipfile", "Cython", "_distutils_hack"),
)
SCRIPT = "from cudnn_bindgen.cli import main\nmain()\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which everything that could be taken for something else lies."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "graph.json").write_bytes(to_json(add_graph()))
    for name in NAMES:
        log = f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n"
        (here / f"{name}.py").write_text(log)
    for name in ("libc", "cpython"):
        (here / name).mkdir()
        for declared in ("__init__", "object", "stdint"):
            (here / name / f"{declared}.pxd").write_text("nonsense\n")
    for name in ("setup.cfg", "distutils.cfg", ".pydistutils.cfg"):
        (here / name).write_text("[build_ext]\nundef = __cplusplus\n")
    (here / "pyproject.toml").write_text("[build-system\n")
    monkeypatch.chdir(here)
    return here


def executed(here: Path) -> str:
    path = here.parent / "executed"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("is_script", [True, False])
def test_build_executes_nothing_of_the_working_directory(here: Path, is_script: bool) -> None:
    (here.parent / "bin").mkdir()
    (here.parent / "bin" / "cudnn-bindgen").write_text(SCRIPT)
    program = [str(here.parent / "bin" / "cudnn-bindgen")] if is_script else []
    # What python -m itself imports, before anything of ours runs.
    own = [sys.executable, "-c", "import runpy, sys; print(*sys.modules)"]
    own = subprocess.run(own, cwd=here.parent, capture_output=True, text=True).stdout.split()
    for name in () if is_script else {*own} & {*NAMES}:
        (here / f"{name}.py").unlink()
    done = subprocess.run(
        [sys.executable, *(program or ["-m", "cudnn_bindgen.cli"]), "build", "graph.json", "-d."],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, executed(here)) == (0, "", ""), done.stderr


def test_a_program_that_imports_from_there_compiles_without(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `accelerate` does in a program that was started with ``python program.py``."""
    (here.parent / "link").symlink_to(here)
    for path in (str(here), "", str(here.parent / "link")):
        monkeypatch.setattr(sys, "path", [path, *sys.path])
    source = here / "sum.pyx"
    source.write_text("# cython: language_level=3\nfrom libc.stdint cimport int8_t\n")
    compile_module(source, here)
    assert executed(here) == ""
    assert is_fresh(source, here, describe_environment())


def test_the_compilers_python_finds_what_this_one_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Cython, say, that is installed where PYTHONPATH or the program says."""
    (tmp_path / "mine").mkdir()
    log = f"open({str(tmp_path / 'executed')!r}, 'a').write('shlex')\nraise SystemExit(7)\n"
    (tmp_path / "mine" / "shlex.py").write_text(log)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "mine"), *sys.path])
    write_files(tmp_path, {"a.pyx": "# cython: language_level=3\n"})
    with pytest.raises(RuntimeError, match="ended with status 7"):
        compile_module(tmp_path / "a.pyx", tmp_path)
    assert executed(tmp_path / "mine") == "shlex"


def test_a_module_does_not_say_where_it_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# cython: language_level=3\ndef fail():\n    raise ValueError\n"
    binaries = []
    for name in ("one", "two"):
        write_files(tmp_path / name, {"a.pyx": text})
        binaries.append(compile_module(tmp_path / name / "a.pyx", tmp_path / name).read_bytes())
    assert binaries[0] == binaries[1]
    assert os.fsencode(tmp_path) not in binaries[0]
