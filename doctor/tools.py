"""What builds modules: Python, Cython, the C compiler; and the folder of the cache."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.compile import (
    PACKAGES,
    check_tools,
    compiler_program,
    package_version,
)
from cudnn_bindgen.codegen.errors import CompileError
from cudnn_bindgen.doctor.finding import Finding, Verdict, hung
from cudnn_bindgen.doctor.probe import Answer, ask
from cudnn_bindgen.extras import INSTALL
from cudnn_bindgen.frontend.file_cache import ENVIRONMENT
from cudnn_bindgen.frontend.planning.plan_cache import PlanCache

_HEADERS = "apt install python3-dev, or dnf install python3-devel"


def find_tools(is_needed: bool) -> Iterator[Finding]:
    """Yield what there is to build with; what runs modules alone needs no compiler."""
    lacking: Verdict = "problem" if is_needed else "warn"
    yield Finding("cudnn-bindgen", f"{__version__} in {Path(__file__).parents[1]}")
    version = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("Python", f"{version}, {sys.executable}")
    yield Finding("platform", f"{platform.platform()}, {' '.join(platform.libc_ver())}")
    for package in PACKAGES:
        version = package_version(package)
        if version:
            yield Finding(package, version)
        else:
            yield Finding(package, "not installed", lacking, INSTALL)
    yield from _find_compiler(lacking)
    folder = sysconfig.get_path("include")
    if Path(folder, "Python.h").exists():
        yield Finding("Python.h", folder)
    else:
        yield Finding("Python.h", f"not in {folder}", lacking, _HEADERS)
    yield _find_cache()


def _find_compiler(lacking: Verdict) -> list[Finding]:
    answer = ask("compiler")
    return hung("C compiler", answer) or [_describe_compiler(answer, lacking)]


def _describe_compiler(answer: Answer, lacking: Verdict) -> Finding:
    version = answer.get("version", "").partition("\n")[0]
    if version:
        return Finding("C compiler", f"{compiler_program()}: {version}")
    try:
        check_tools()
    except CompileError as error:
        problem, _, remedy = str(error).rpartition(" (")
        return Finding("C compiler", problem, lacking, remedy.removesuffix(")"))
    given = os.environ.get("CC")
    return Finding("C compiler", f"CC={given} cannot be run", lacking, "name one that can in CC")


def _find_cache() -> Finding:
    folder = PlanCache.default_folder()
    parents = (one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=next(parents)):
            return Finding("cache", str(folder))
    except OSError as error:
        remedy = f"{ENVIRONMENT} names another folder; until then each process makes its plans"
        return Finding("cache", f"{folder}: {error.strerror or error}", "warn", remedy)
