"""The process that compiles modules, one after another, for `codegen.compile`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cudnn_bindgen
from cudnn_bindgen.codegen.children import serve
from cudnn_bindgen.codegen.compile import (
    COMMANDS,
    ENVIRONMENT,
    FLAGS,
    describe_environment,
    extension_path,
    mark,
)
from cudnn_bindgen.codegen.errors import CompileError
from cudnn_bindgen.codegen.output import write_whole


def _compile(source: Path, directory: Path, environment: str) -> None:
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    class _Plain(Distribution):  # type: ignore[misc]
        def finalize_options(self) -> None:
            """Call no plug-ins: ours would build what pyproject.toml here asks for."""

    with tempfile.TemporaryDirectory() as scratch:
        # A copy, with nothing beside it: Cython looks there first for what is cimported, even libc.
        # And what is compiled is what the mark states, whatever happens to the file meanwhile.
        copy = Path(scratch, "source", source.name)
        copy.parent.mkdir()
        for path in (source, source.with_suffix(".pxd")):
            if path.exists():
                shutil.copyfile(path, copy.with_name(path.name))
        module = Extension(
            source.stem,
            [str(_cythonize(copy, Path(scratch), source.parent.absolute()))],
            # setuptools puts the environment's own before these; the last one counts.
            extra_compile_args=[*FLAGS, *shlex.split(os.environ.get("CFLAGS", ""))],
        )
        command = build_ext(_Plain({"ext_modules": [module]}))
        command.build_temp = scratch
        command.build_lib = scratch
        command.ensure_finalized()
        command.run()
        content = extension_path(Path(scratch), source.stem).read_bytes()
        content += mark(content, copy, environment)
    write_whole(extension_path(directory, source.stem), content, 0o777)


def _cythonize(source: Path, directory: Path, siblings: Path) -> Path:
    # Not cythonize(), which prints a traceback when the disk is full.
    import Cython
    from Cython.Compiler import Main

    options = Main.CompilationOptions(
        # Where `cimport` looks: in the folder that holds this package, in Cython's own, and at last
        # beside the source, for a module that calls another.
        include_path=[
            str(Path(cudnn_bindgen.__file__).parent.parent),
            str(Path(Cython.__file__).parent / "Includes"),
            str(siblings),
        ],
        output_file=str(directory / f"{source.stem}.c"),
    )
    with _inside(source.parent):
        # By its name alone, which tracebacks show.
        done = Main.compile(source.name, options, full_module_name=source.stem)
    if done.num_errors:
        raise CompileError  # Cython has said why
    return directory / f"{source.stem}.c"


@contextlib.contextmanager
def _inside(directory: Path) -> Iterator[None]:
    """Work in a folder, and go back: options for compilers may name files from where we are."""
    before = os.open(os.curdir, os.O_RDONLY)
    os.chdir(directory)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def main() -> None:
    """Compile what `compile_module` asks for; what compilers print is printed."""
    # As Ctrl-C does to a program in the foreground: setuptools then waits for its compiler.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    environment = describe_environment()

    def answer(task: bytes) -> bytes:
        source, directory = map(Path, json.loads(task))
        return b"%d" % _try(source, directory, environment)

    serve(answer)


def _try(source: Path, directory: Path, environment: str) -> int:
    """Compile a module and return 0, or print why not and return 1."""
    from setuptools import errors

    refusals = (errors.CompileError, errors.LinkError, errors.ExecError, errors.PlatformError)
    try:
        _check_commands()
        _compile(source, directory, environment)
    except (CompileError, *refusals) as error:
        print(error, file=sys.stderr)  # what the compiler said stands above
    except OSError as error:
        print(f"{error.filename or 'error'}: {error.strerror or error}", file=sys.stderr)
    else:
        return 0
    return 1


def _check_commands() -> None:
    """Say which variable setuptools would not be able to read."""
    for name in ENVIRONMENT:
        given = os.environ.get(name)
        if given is None:
            continue
        try:
            words = shlex.split(given)
        except ValueError as error:
            message = f"{name}: expected a command line, got {given!r}: {error}"
            raise CompileError(message) from None
        if not words and name in COMMANDS:
            raise CompileError(f"{name}: expected a command, got nothing")
