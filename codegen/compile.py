"""Emitted text → extension module, by a Python process that compiles one after another.

Cython takes most of a second to start, and a third of that for a module. `cudnn-bindgen build` runs
several such processes at once and shows what one printed when it fails.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import cudnn_bindgen
from cudnn_bindgen.codegen.children import Child, EndedError, cores, do_all
from cudnn_bindgen.codegen.errors import CompileError
from cudnn_bindgen.codegen.output import is_foreign
from cudnn_bindgen.codegen.text import printable, shorten
from cudnn_bindgen.extras import INSTALL

# What the C compiler is told unless the environment says otherwise: a module is glue, and compile
# time counts.
FLAGS = ("-O1", "-g0")

# What else of the environment setuptools hands to compiler and linker.
COMMANDS = ("CC", "LDSHARED")
PACKAGES = ("cython", "setuptools")
ENVIRONMENT = ("ARCHFLAGS", "CFLAGS", "CPPFLAGS", "LDFLAGS", *COMMANDS)


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
        *map(package_version, PACKAGES),
        *FLAGS,
        *(f"{name}={value}" for name, value in [*given.items(), *built_with.items()]),
        compiler_version(),
    ]


def compiler_program() -> str:
    """Return the C compiler that setuptools would run; empty if CC is none that it can read."""
    try:
        return shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC")))[0]
    except (IndexError, ValueError):
        return ""


def compiler_version() -> str:
    """Return what the C compiler prints as its version; empty if it cannot be run."""
    try:
        done = subprocess.run(  # noqa: S603 - the compiler that a build would run
            [compiler_program(), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return ""  # building says what is missing, if it comes to that
    return done.stdout


def check_tools() -> None:
    """Raise CompileError for a missing Cython, setuptools or C compiler, with the remedy."""
    for package in PACKAGES:
        if not package_version(package):
            raise CompileError(f"expected {package}, to compile with, got none ({INSTALL})")
    program = compiler_program()
    if program and not shutil.which(program):
        raise CompileError(
            f"expected a C compiler, got none: there is no {shorten(program)} (apt install gcc, or "
            "dnf install gcc; the variable CC names another)"
        )


def package_version(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


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


def foreign_modules(modules: Mapping[Path, Path]) -> list[Path]:
    """Return what `compile_all` would replace, though nobody compiled it from our text."""
    binaries = [
        extension_path(directory, source.stem)
        for source, directory in modules.items()
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


def compile_module(source: Path, directory: Path, child: Child | None = None) -> Path:
    """Compile `source` (a .pyx) into `directory` and return the extension module's path.

    `child` is a process that has compiled others, or will.

    Raises
    ------
    CompileError
        With the compiler's own words.
    """
    if child is None:
        with new_compiler() as child:
            return compile_module(source, directory, child)
    try:
        status, said = child.ask(json.dumps([str(source), str(directory)]).encode())
    except EndedError as error:
        raise CompileError(str(error)) from None
    if int(status):
        raise CompileError(said)
    return extension_path(directory, source.stem)


def compile_all(modules: Mapping[Path, Path], jobs: int | None) -> tuple[set[Path], set[Path]]:
    """Compile what is not up to date, print what fails, and return what was compiled and failed.

    `modules` has the folder for each source.

    Raises
    ------
    CompileError
        No module can be compiled here.
    """
    environment = describe_environment()
    stale = [source for source in modules if not is_fresh(source, modules[source], environment)]
    if stale:
        check_tools()
    failed: set[Path] = set()

    def show(source: Path, done: Future[Path]) -> None:
        try:
            done.result()
        except CompileError as error:
            failed.add(source)
            _print(printable(f"error: {source}: not compiled"))
            _print(str(error))

    compilers = [new_compiler() for _ in range(min(jobs or cores(), len(stale)))]
    tasks = {source: partial(compile_module, source, modules[source]) for source in stale}
    do_all(tasks, compilers, "compiling", show)
    return {*stale} - failed, failed


def new_compiler() -> Child:
    """Return a process that compiles modules, not yet started."""
    return Child("cudnn_bindgen.codegen.compiler")


def _print(text: str) -> None:
    print(text, file=sys.stderr)
