"""Emitted text → extension module, in a process of its own for each module.

`cudnn-bindgen build` runs several at once and shows what one printed when it fails.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import cudnn_bindgen
from cudnn_bindgen.codegen.output import is_foreign, write_whole

# What the C++ compiler is told unless the environment says otherwise: a module is glue, and
# compile time counts.
FLAGS = ("-O2", "-g0")

# Not -m, which imports from the working directory: a copy.py that lies there would be executed.
_PROGRAM = "import sys; sys.path[:] = {}; from cudnn_bindgen.codegen.compile import main; main()"

# What else of the environment setuptools hands to compiler and linker.
_COMMANDS = ("CC", "CXX", "LDCXXSHARED", "LDSHARED")
_ENVIRONMENT = ("ARCHFLAGS", "CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", *_COMMANDS)


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
    """Whether the module was compiled from this source in this environment, and is whole.

    Time stamps cannot tell: installing a package or checking out a branch sets them as it likes.
    """
    try:
        content = extension_path(directory, source.stem).read_bytes()
    except OSError:
        return False
    found = _MARK.search(content)
    return found is not None and found[0] == _mark(content[: found.start()], source, environment)


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
    for path in sorted([*runtime.glob("*.pxd"), *runtime.glob("cpp/*.hpp")]):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


# Behind a compiled module, where no loader looks: what it was made of, and a digest of itself.
_MARK = re.compile(rb"\ncudnn-bindgen [0-9a-f]{64} [0-9a-f]{64}\n\Z")


def _mark(content: bytes, source: Path, environment: str) -> bytes:
    made_of, itself = _source_digest(source, environment), hashlib.sha256(content).hexdigest()
    return f"\ncudnn-bindgen {made_of} {itself}\n".encode()


def _source_digest(source: Path, environment: str) -> str:
    digest = hashlib.sha256(environment.encode())
    for path in (source, source.with_suffix(".pxd")):
        content = path.read_bytes() if path.exists() else b""
        digest.update(b"%d\0%b" % (len(content), content))
    return digest.hexdigest()


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
    program = _PROGRAM.format(ascii(_search_path()))
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-c", program, str(source), str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # With its compilers it can be ended as one.
        start_new_session=True,
    ) as process:
        try:
            on_start(process)
            said = process.communicate()[0]
        except BaseException:
            end(process)
            raise
    if process.returncode:
        raise CompileError(said.strip() or f"ended with status {process.returncode}")
    return extension_path(directory, source.stem)


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt a process that `compile_module` started, and the compilers that it runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)


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


def _compile(source: Path, directory: Path) -> None:
    # Imported here: it takes most of a second, which only a build needs to spend.
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

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
            language="c++",
            # Of the headers that a caller's `cimport` of ours may need.
            include_dirs=[str(Path(cudnn_bindgen.__file__).parent / "runtime" / "cpp")],
            # setuptools puts the environment's own before these; the last one counts.
            extra_compile_args=[*FLAGS, *shlex.split(os.environ.get("CXXFLAGS", ""))],
        )
        command = build_ext(Distribution({"ext_modules": [module]}))
        command.build_temp = scratch
        command.build_lib = scratch
        command.ensure_finalized()
        command.run()
        content = extension_path(Path(scratch), source.stem).read_bytes()
        content += _mark(content, copy, describe_environment())
    write_whole(extension_path(directory, source.stem), content, 0o777)


def _cythonize(source: Path, directory: Path, siblings: Path) -> Path:
    # Not cythonize(), which prints a traceback when the disk is full.
    import Cython
    from Cython.Compiler import Main

    options = Main.CompilationOptions(
        cplus=True,
        # Where `cimport` looks: in the folder that holds this package, in Cython's own, and at last
        # beside the source, for a module that calls another.
        include_path=[
            str(Path(cudnn_bindgen.__file__).parent.parent),
            str(Path(Cython.__file__).parent / "Includes"),
            str(siblings),
        ],
        output_file=str(directory / f"{source.stem}.cpp"),
    )
    with _inside(source.parent):
        # By its name alone, which tracebacks show.
        done = Main.compile(source.name, options, full_module_name=source.stem)
    if done.num_errors:
        sys.exit(1)  # Cython has said why
    return directory / f"{source.stem}.cpp"


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
    """Compile the module that the arguments name, in a process of its own."""
    from setuptools import errors

    # What ends it, which a process that was started in the background is born to ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _check_commands()
        _compile(Path(sys.argv[1]), Path(sys.argv[2]))
    except (errors.CompileError, errors.LinkError, errors.ExecError, errors.PlatformError) as error:
        # What the compiler said stands above.
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or 'error'}: {error.strerror or error}")


def _check_commands() -> None:
    """Say which variable setuptools would not be able to read."""
    for name in _ENVIRONMENT:
        given = os.environ.get(name)
        if given is None:
            continue
        try:
            words = shlex.split(given)
        except ValueError as error:
            sys.exit(f"{name}: expected a command line, got {given!r}: {error}")
        if not words and name in _COMMANDS:
            sys.exit(f"{name}: expected a command, got nothing")
