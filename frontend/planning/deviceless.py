"""Plans for GPUs that are not here: graph files and devices → plan files, on any Linux machine.

``Task → planner process → Answer``. NVIDIA's libraries are loaded in that process alone, with a
stub of the driver in place of libcuda: this process, and a GPU that it may have, are not touched.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import msgspec

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.children import Child, EndedError, cores, do_all
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.frontend.file_cache import CacheError
from cudnn_bindgen.frontend.planning.constants import NOTHING, Constants
from cudnn_bindgen.frontend.planning.frontend import frontend_version
from cudnn_bindgen.frontend.planning.options import HEURISTICS, PlanOptions
from cudnn_bindgen.frontend.planning.plan_cache import PlanCache, plan_digest

# Longer than any plan took that was seen (9 s for a norm on one core), shorter than a day.
SECONDS = 300

_STUB = "cudnn_bindgen.frontend.planning.driver_stub"
# Says to a planner in which folder its cuDNN is.
CUDNN = "CUDNN_BINDGEN_PLANNER_CUDNN"
INSTALL = "pip install 'cudnn-bindgen[plan]' brings one; --cudnn names another"
LIBRARY = "libcudnn.so.9"
# Where packages have it, from a folder that holds packages.
_CUDNN = ("nvidia/cudnn/lib", "nvidia/cudnn_jit/lib")
# Of cuBLAS, which the full cuDNN looks for before it plans.
_BESIDE = ("nvidia/cublas/lib", "nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")

# What cuDNN says that it does not find, and what brings it.
_REMEDIES = {
    name: f"{what} is missing: unpack {package}-cu12 or -cu13, as cuDNN's, beside it"
    for name, what, package in (
        ("cublasLt", "cuBLAS", "nvidia-cublas"),
        ("libnvrtc", "NVRTC", "nvidia-cuda-nvrtc"),
    )
}

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Cudnn:
    """A cuDNN to plan with: the folder of its libraries, and others that it looks for."""

    folder: Path
    beside: tuple[Path, ...] = ()


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A plan to be made: of a graph's file as `read_input` takes it, for a device.

    A Python plan may be for the device that it names.
    """

    graph: bytes
    properties: str = ""
    file: str = ""
    reading: ReadOptions = ReadOptions()
    constants: Constants = NOTHING
    options: PlanOptions = HEURISTICS
    seconds: int = SECONDS


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A plan file and what is odd about it; or what a PlanError says."""

    plan: bytes = b""
    told: tuple[str, ...] = ()
    problem: str = ""
    path: str = ""
    hint: str = ""


def find_cudnn(directory: Path) -> Cudnn:
    """Return the cuDNN in an unpacked wheel, another environment, or a folder of libraries.

    Raises
    ------
    PlanError
        There is none, or several.
    """
    roots = (directory, *directory.glob("lib/python3*/site-packages"))
    found = [
        Cudnn(folder, _beside(root))
        for root in roots
        for folder in (root, root / "lib", *(root / place for place in _CUDNN))
        if (folder / LIBRARY).exists()
    ]
    if len(found) != 1:
        several = f": {', '.join(str(cudnn.folder) for cudnn in found)}" if found else ""
        raise PlanError(
            f"--cudnn: expected one {LIBRARY} in {directory}, got {len(found)}{several}",
            hint="unpack nvidia-cudnn-cu13, or the smaller nvidia-cudnn-jit-cu13, there",
        )
    return found[0]


def own_cudnn() -> Cudnn | None:
    """Return the cuDNN that is installed beside this package; None for the system's."""
    for root in map(Path, sys.path):
        for place in _CUDNN:
            if (root / place / LIBRARY).exists():
                return Cudnn(root / place, _beside(root))
    return None


def use_cache(
    tasks: Mapping[Key, Task], cudnn: Cudnn | None, jobs: int | None = None
) -> Mapping[Key, Answer | PlanError]:
    """Do as `make_plans` does, but take from the cache what was made before, byte for byte."""
    if cudnn is None:  # nobody knows which it will be
        return make_plans(tasks, cudnn, jobs)
    cache, made_by = PlanCache(), _describe_planner(cudnn)
    names = {
        key: plan_digest(made_by + msgspec.json.encode(task, order="sorted"))
        for key, task in tasks.items()
    }
    found: dict[Key, Answer | PlanError] = {}
    for key, name in names.items():
        with suppress(_AbsentError, CacheError):
            found[key] = Answer(plan=cache.use(name, _absent, Path.read_bytes))
    made = make_plans({key: task for key, task in tasks.items() if key not in found}, cudnn, jobs)
    for key, answer in made.items():
        # What is odd about a plan is said whenever it is used.
        if isinstance(answer, Answer) and not answer.told:
            with suppress(CacheError):
                cache.use(names[key], partial(bytes, answer.plan), Path.read_bytes)
    found.update(made)
    return {key: found[key] for key in tasks}


class _AbsentError(Exception):
    """A plan is not in the cache."""


def _absent() -> bytes:
    raise _AbsentError


def _describe_planner(cudnn: Cudnn) -> bytes:
    """Return what decides a plan, besides its task."""
    # The small and the full cuDNN of a version begin with the same library.
    libraries = [(path.name, path.stat().st_size) for path in cudnn.folder.glob("libcudnn*")]
    first = hashlib.sha256((cudnn.folder / LIBRARY).read_bytes()).hexdigest()
    compiler = None
    with suppress(PackageNotFoundError):
        compiler = version("nvidia-cutlass-dsl")
    has_torch = importlib.util.find_spec("torch") is not None  # without it no engine is traced
    return msgspec.json.encode(
        [sorted(libraries), first, frontend_version(), compiler, has_torch, __version__]
    )


def make_plans(
    tasks: Mapping[Key, Task], cudnn: Cudnn | None, jobs: int | None = None
) -> Mapping[Key, Answer | PlanError]:
    """Have plans made, by as many processes as there are cores, and return what came of each.

    Raises
    ------
    PlanError
        The stub of the driver was not built.
    """
    answers: dict[Key, Answer | PlanError] = {}
    environment = _environment(cudnn)
    planners = [
        Child("cudnn_bindgen.frontend.planning.planner", environment)
        for _ in range(min(jobs or cores(), len(tasks)))
    ]

    def keep(key: Key, done: Future[Answer]) -> None:
        try:
            answers[key] = done.result()
        except PlanError as error:
            error.file = tasks[key].file
            answers[key] = error

    do_all({key: partial(_make, task) for key, task in tasks.items()}, planners, "planning", keep)
    return {key: answers[key] for key in tasks}


def _make(task: Task, planner: Child) -> Answer:
    try:
        text, said = planner.ask(msgspec.json.encode(task))
    except EndedError as error:
        raise PlanError(f"planning ended: {error}") from None
    answer = msgspec.json.decode(text, type=Answer)
    if answer.problem:
        # What cuDNN, the dynamic linker and the stub print names what they miss.
        problem = "; ".join((answer.problem, *_last_lines(said)))
        remedies = (remedy for name, remedy in _REMEDIES.items() if name in problem)
        raise PlanError(problem, path=answer.path, hint=next(remedies, answer.hint))
    return answer


def _last_lines(said: str) -> Iterator[str]:
    lines = (line for line in said.splitlines() if not line.startswith(" "))  # of a traceback
    yield from list(dict.fromkeys(lines))[-3:]


def _beside(root: Path) -> tuple[Path, ...]:
    return tuple(root / place for place in _BESIDE if (root / place).is_dir())


def _environment(cudnn: Cudnn | None) -> dict[str, str]:
    stub = find_stub()
    folders = [] if cudnn is None else [cudnn.folder, *cudnn.beside]
    paths = [*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        **os.environ,
        CUDNN: "" if cudnn is None else str(cudnn.folder),
        "LD_PRELOAD": str(stub),
        "LD_LIBRARY_PATH": ":".join(paths),
        "CUDNN_FRONTEND_CUDART_LIB_NAME": str(stub),
        # What cuDNN leaves as it was in memory ends up in plans.
        "PYTHONHASHSEED": "0",
    }


def find_stub() -> Path:
    """Return the stub of the driver.

    Raises
    ------
    PlanError
        It was not built.
    """
    found = importlib.util.find_spec(_STUB)
    if found is None or found.origin is None:
        raise PlanError(
            "expected cudnn-bindgen with its stub of the CUDA driver, got one without",
            hint="install it again: pip install --force-reinstall 'cudnn-bindgen[plan]'",
        )
    return Path(found.origin)
