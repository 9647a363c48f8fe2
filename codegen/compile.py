"""Emitted text → extension module, by a Python process that compiles one after another.

Cython takes most of a second to start, and a tenth of that for a module. `cudnn-bindgen build` runs
several such processes at once and shows what one printed when it fails.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, cast

import cudnn_bindgen
from cudnn_bindgen.codegen.output import is_foreign

# What the C compiler is told unless the environment says otherwise: a module is glue, and compile
# time counts.
FLAGS = ("-O1", "-g0")

# Not -m, which imports from the working directory: a copy.py that lies there would be executed.
_PROGRAM = "import sys; sys.path[:] = {}; from cudnn_bindgen.codegen.compiler import main; main()"

# What the process prints after each module, before the status.
END = "\0"

# What else of the environment setuptools hands to compiler and linker.
COMMANDS = ("CC", "LDSHARED")
ENVIRONMENT = ("ARCHFLAGS", "CFLAGS", "CPPFLAGS", "LDFLAGS", *COMMANDS)


class CompileError(RuntimeError):
    """Cython or the C compiler refused a module; the message is what they printed."""


def extension_path(directory: Path, module: str) -> Path:
    """Return where the compiled module lies."""
    return directory / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"


def describe_toolchain() -> list[str]:
    """Return what decides, besides the text, what a module is compiled to here."""
    given = {name: os.environ.get(name, "") for name in ENVIRONMENT}
    built_with = {name: str(sysconfig.get_config_var(name)) for name in ENVIRONMENT}
    return [
        str(sysconfig.get_config_var("EXT_SUFFIX")),
        sys.version,
        *(importlib.metadata.version(package) for package in ("cython", "setuptools")),
        *FLAGS,
        *(f"{name}={value}" for name, value in [*given.items(), *built_with.items()]),
        _compiler_version(given["CC"] or built_with["CC"]),
    ]


def _compiler_version(command: str) -> str:
    try:
        program = shlex.split(command)[0]
        done = subprocess.run(  # noqa: S603 - the compiler that a build would run
            [program, "--version"], capture_output=True, text=True, errors="replace", check=False
        )
    except (OSError, IndexError, ValueError):
        return ""  # building says what is missing, if it comes to that
    return done.stdout


def describe_environment() -> str:
    """Return a digest of all that decides, besides its own files, what a module is compiled to."""
    return hashlib.sha256("\0".join([runtime_digest(), *describe_toolchain()]).encode()).hexdigest()


def is_fresh(source: Path, directory: Path, environment: str) -> bool:
    """Whether the module was compiled from this source in this environment, and is whole.

    Time stamps cannot tell: installing a package or checking out a branch sets them as it likes.
    """
    try:
        content = extension_path(directory, source.stem).read_bytes()
    except OSError:
        return False
    found = _MARK.search(content)
    return found is not None and found[0] == mark(content[: found.start()], source, environment)


def foreign_modules(sources: Iterable[Path], directory: Path) -> list[Path]:
    """Return the files that `build` would replace, though nobody compiled them from our text."""
    binaries = [
        extension_path(directory, source.stem)
        for source in sources
        if is_foreign(source) or not source.exists()
    ]
    return [path for path in binaries if path.is_file() and not _MARK.search(path.read_bytes())]


def runtime_digest() -> str:
    """Return a digest of the runtime's code that modules contain, as inline functions."""
    runtime = Path(cudnn_bindgen.__file__).parent / "runtime"
    digest = hashlib.sha256()
    for path in sorted(runtime.glob("*.pxd")):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


# Behind a compiled module, where no loader looks: what it was made of, and a digest of itself.
_MARK = re.compile(rb"\ncudnn-bindgen [0-9a-f]{64} [0-9a-f]{64}\n\Z")


def mark(content: bytes, source: Path, environment: str) -> bytes:
    """Return what goes behind a compiled module."""
    made_of, itself = _source_digest(source, environment), hashlib.sha256(content).hexdigest()
    return f"\ncudnn-bindgen {made_of} {itself}\n".encode()


def _source_digest(source: Path, environment: str) -> str:
    digest = hashlib.sha256(environment.encode())
    for path in (source, source.with_suffix(".pxd")):
        content = path.read_bytes() if path.exists() else b""
        digest.update(b"%d\0%b" % (len(content), content))
    return digest.hexdigest()


class Compiler:
    """A Python process that compiles one module after another, started by the first.

    As a context it ends the process: when it is left by an exception, at once and with the
    compilers that it runs.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._is_ended = False

    def compile(self, source: Path, directory: Path) -> Path:
        """Compile `source` (a .pyx) into `directory` and return the extension module's path.

        Raises
        ------
        CompileError
            With the compiler's own words.
        """
        process = self.start()
        asked, answered = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        said: list[str] = []
        with contextlib.suppress(BrokenPipeError):  # it has ended, and says why below
            print(json.dumps([str(source), str(directory)]), file=asked, flush=True)
        for line in answered:
            before, is_end, status = line.partition(END)
            said.append(before)
            if is_end:
                break
        else:
            process.communicate()
            status = str(process.returncode)
            self._process = None
        if int(status):
            raise CompileError("".join(said).strip() or f"ended with status {int(status)}")
        return extension_path(directory, source.stem)

    def start(self) -> subprocess.Popen[str]:
        """Return the process, started unless it runs: it gets ready while others work."""
        if self._is_ended:
            raise CompileError("interrupted")
        if self._process is None:
            program = _PROGRAM.format(ascii(_search_path()))
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # With its compilers it can be ended as one.
                start_new_session=True,
            )
        return self._process

    def end(self) -> None:
        """End the process and the compilers that it runs. Another thread may be compiling."""
        self._is_ended = True
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.end()
        if self._process is not None:
            self._process.communicate()


def compile_module(source: Path, directory: Path) -> Path:
    """Compile one module: see `Compiler.compile`."""
    with Compiler() as compiler:
        return compiler.compile(source, directory)


def _search_path() -> list[str]:
    """Return where this process finds modules, but for the working directory.

    This package's own folder is among them, wherever it is.
    """
    found = [path for path in sys.path if isinstance(path, str) and path and not _is_here(path)]
    return [*found, str(Path(cudnn_bindgen.__file__).parent.parent)]


def _is_here(path: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(path).samefile(os.curdir)
    return False
