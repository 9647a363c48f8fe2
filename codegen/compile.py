"""Emitted text → extension module, in a process of its own for each module.

Run as ``python -m cudnn_bindgen.codegen.compile MODULE.pyx DIRECTORY``; `cudnn-bindgen build` runs
several at once and shows what one printed when it fails.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
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


def is_fresh(source: Path, directory: Path) -> bool:
    """Whether the compiled module is newer than its source and the runtime it was built for."""
    compiled = extension_path(directory, source.stem)
    if not compiled.exists():
        return False
    runtime = Path(cudnn_bindgen.__file__).parent / "runtime"
    needs = [source, *runtime.glob("*.pxd")]
    return compiled.stat().st_mtime >= max(path.stat().st_mtime for path in needs)


def compile_module(source: Path, directory: Path) -> Path:
    """Compile `source` (a .pyx) into `directory` and return the extension module's path.

    Raises
    ------
    CompileError
        With the compiler's own words.
    """
    command = [sys.executable, "-m", "cudnn_bindgen.codegen.compile", str(source), str(directory)]
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise CompileError((done.stdout + done.stderr).strip())
    return extension_path(directory, source.stem)


def _compile(source: Path, directory: Path) -> None:
    # Imported here: they take most of a second, which only a build needs to spend.
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

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
        built = extension_path(Path(scratch), source.stem)
        # Renamed into place, so that a process that has the old one loaded keeps it whole.
        staged = directory / f".{built.name}.new"
        staged.write_bytes(built.read_bytes())
        staged.chmod(0o755)
        staged.replace(directory / built.name)


if __name__ == "__main__":
    _compile(Path(sys.argv[1]), Path(sys.argv[2]))
