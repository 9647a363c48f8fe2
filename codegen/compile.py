"""Emitted text → extension module, in a process of its own for each module.

Run as ``python -m cudnn_bindgen.codegen.compile MODULE.pyx DIRECTORY``; `cudnn-bindgen build` runs
several at once and shows what one printed when it fails.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

import cudnn_bindgen

# What the C++ compiler is told, first of all: a module is glue, and compile time counts.
FLAGS = ("-O2", "-g0")

# What else of the environment setuptools hands to compiler and linker.
_ENVIRONMENT = (
    *("ARCHFLAGS", "CC", "CFLAGS", "CPPFLAGS", "CXX", "CXXFLAGS"),
    *("LDCXXSHARED", "LDFLAGS", "LDSHARED"),
)


class CompileError(RuntimeError):
    """Cython or the C++ compiler refused a module; the message is what they printed."""


def extension_path(directory: Path, module: str) -> Path:
    """Return where the compiled module lies."""
    return directory / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"


def describe_toolchain() -> list[str]:
    """Return what decides, besides the text, what a module is compiled to here."""
    given = {name: os.environ.get(name, "") for name in _ENVIRONMENT}
    built_with = {name: str(sysconfig.get_config_var(name)) for name in _ENVIRONMENT}
    compilers = {given[name] or built_with[name] for name in ("CC", "CXX")}
    return [
        str(sysconfig.get_config_var("EXT_SUFFIX")),
        sys.version,
        *(importlib.metadata.version(package) for package in ("cython", "setuptools")),
        *FLAGS,
        *(f"{name}={value}" for name, value in [*given.items(), *built_with.items()]),
        *(_compiler_version(command) for command in sorted(compilers)),
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
    """Whether the module was compiled from this source in this environment.

    Time stamps cannot tell: installing a package or checking out a branch sets them as it likes.
    """
    mark = _mark(source, environment)
    try:
        with extension_path(directory, source.stem).open("rb") as file:
            file.seek(-len(mark), os.SEEK_END)
            return file.read() == mark
    except OSError:  # none, or a shorter one
        return False


def runtime_digest() -> str:
    """Return a digest of the runtime's code that modules contain, as inline functions."""
    runtime = Path(cudnn_bindgen.__file__).parent / "runtime"
    digest = hashlib.sha256()
    for path in sorted([*runtime.glob("*.pxd"), *runtime.glob("*.hpp")]):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _mark(source: Path, environment: str) -> bytes:
    """Return what stands behind a compiled module, where no loader looks: what it was made of."""
    digest = hashlib.sha256(environment.encode())
    for path in (source, source.with_suffix(".pxd")):
        content = path.read_bytes() if path.exists() else b""
        digest.update(b"%d\0%b" % (len(content), content))
    return f"\ncudnn-bindgen {digest.hexdigest()}\n".encode()


def compile_module(
    source: Path,
    directory: Path,
    on_start: Callable[[subprocess.Popen[str]], object] = lambda process: None,
) -> Path:
    """Compile `source` (a .pyx) into `directory` and return the extension module's path.

    `on_start` is given the process that does so, which leads a session of its own.

    Raises
    ------
    CompileError
        With the compiler's own words.
    """
    command = [sys.executable, "-m", "cudnn_bindgen.codegen.compile", str(source), str(directory)]
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # With its compilers it can be ended as one.
        start_new_session=True,
    ) as process:
        on_start(process)
        said = process.communicate()[0]
    if process.returncode:
        raise CompileError(said.strip() or f"ended with status {process.returncode}")
    return extension_path(directory, source.stem)


def _compile(source: Path, directory: Path) -> None:
    # Imported here: they take most of a second, which only a build needs to spend.
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    # Before anything is read: of a file that changes meanwhile, the next build is another.
    mark = _mark(source, describe_environment())
    with tempfile.TemporaryDirectory() as scratch:
        modules = cythonize(
            [Extension(source.stem, [str(source)], language="c++", extra_compile_args=[*FLAGS])],
            build_dir=scratch,
            # The folder that holds the package: where `cimport cudnn_bindgen...` is looked up.
            include_path=[str(Path(cudnn_bindgen.__file__).parent.parent)],
            force=True,
            quiet=True,
        )
        command = build_ext(Distribution({"ext_modules": modules}))
        command.build_temp = scratch
        command.build_lib = scratch
        command.ensure_finalized()
        command.run()
        content = extension_path(Path(scratch), source.stem).read_bytes() + mark
    _put(content, extension_path(directory, source.stem))


def _put(content: bytes, target: Path) -> None:
    """Rename into place, so that a process that has the old file loaded keeps it whole."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    staged = Path(name)  # of its own: two builds may be at work
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        staged.chmod(0o755)
        staged.replace(target)
    except BaseException:
        staged.unlink()
        raise


def _main() -> None:
    from Cython.Compiler.Errors import CompileError as CythonError
    from setuptools import errors

    try:
        _compile(Path(sys.argv[1]), Path(sys.argv[2]))
    except CythonError as error:
        sys.exit(str(error))
    except (errors.CompileError, errors.LinkError, errors.ExecError, errors.PlatformError) as error:
        # What the compiler said stands above.
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or 'error'}: {error.strerror or error}")


if __name__ == "__main__":
    _main()
