"""NVIDIA's libraries: each cuDNN that can be found and which one is taken, driver, frontend."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.graph import dotted
from cudnn_bindgen.doctor.finding import Finding, Verdict, hung
from cudnn_bindgen.doctor.probe import LIBRARY, ask
from cudnn_bindgen.frontend.planning.deviceless import find_stub, own_cudnn

_QUESTIONS = ("cudnn of calls", "driver", "frontend", "CUDA runtime")
_PATH = "LD_LIBRARY_PATH"
# Where packages have it, below a folder that holds packages.
_PACKAGES = {
    "nvidia/cudnn/lib": "package nvidia-cudnn",
    "nvidia/cudnn_jit/lib": "package nvidia-cudnn-jit",
    "torch/lib": "PyTorch",
}
_CUDNN = "pip install 'cudnn-bindgen[cudnn13]' or [cudnn12], as the driver's CUDA"
_PLAN = "pip install 'cudnn-bindgen[plan]'"
_NO_GPU = "install NVIDIA's driver; --for, emit and build need none, calls do"


class Found(NamedTuple):
    """What of NVIDIA's is here: the version of cuDNN that calls take, 0 for none, and the GPUs."""

    cudnn: int
    gpus: Sequence[tuple[int, int]]


class _Cudnn(NamedTuple):
    place: str
    path: str
    version: int
    error: str


def find_libraries(is_called: bool) -> tuple[list[Finding], Found]:
    """Return what there is; `is_called`: of a machine that modules run on."""
    lacking: Verdict = "problem" if is_called else "warn"
    findings: list[Finding] = []
    here = [*_cudnns()]
    for one in here:
        if one.error:
            remedy = "install it again, or take it out of where it is found"
            findings.append(Finding("cuDNN", f"{one.place}: {one.error}", "problem", remedy))
        else:
            said = f"{dotted(one.version)} of {one.place}: {one.path}"
            findings.append(Finding("cuDNN", said))
    with ThreadPoolExecutor() as pool:  # each waits for a process
        taken, driver, frontend, runtime = pool.map(ask, _QUESTIONS)
    findings += hung("cuDNN of calls", taken) or _describe_taken(taken, here, lacking)
    findings.append(_describe_planner(here))
    gpus = driver.get("gpus", [])
    findings += hung("driver", driver) or _describe_driver(driver, lacking)
    findings += hung("frontend", frontend) or [_describe_frontend(frontend)]
    path = runtime.get("path")
    found = f"{path} ({runtime['how']})" if path else "none; only plan without --for needs it"
    findings += hung("CUDA runtime", runtime) or [Finding("CUDA runtime", found)]
    return findings, Found(taken.get("version", 0), [(gpu["sm"], gpu["sm_count"]) for gpu in gpus])


def _cudnns() -> Iterator[_Cudnn]:
    """Yield each cuDNN once, in the order in which a program would come across them."""
    seen = set()
    for place, path in _places():
        real = os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            found = ask("cudnn", path)
            yield _Cudnn(place, path, found.get("version", 0), found.get("error", ""))
    others = {name: value for name, value in os.environ.items() if name != _PATH}
    found = ask("cudnn", LIBRARY, environment=others)
    if "hangs" in found:
        yield _Cudnn("the system", LIBRARY, 0, found["error"])
    elif "error" not in found and os.path.realpath(found["path"]) not in seen:
        yield _Cudnn("the system", found["path"], found["version"], "")


def _places() -> Iterator[tuple[str, str]]:
    folders = [(_PATH, Path(one)) for one in os.environ.get(_PATH, "").split(os.pathsep) if one]
    folders += [
        (name, Path(root, place))
        for root in dict.fromkeys(sys.path)
        for place, name in _PACKAGES.items()
    ]
    below = {"CONDA_PREFIX": "lib", "CUDA_HOME": "lib64", "CUDA_PATH": "lib64"}
    folders += [(name, Path(os.environ[name], below[name])) for name in below if name in os.environ]
    for name, folder in folders:
        if (folder / LIBRARY).exists():
            yield name, str(folder / LIBRARY)


def _describe_taken(
    taken: Mapping[str, Any], here: Sequence[_Cudnn], lacking: Verdict
) -> Iterator[Finding]:
    what = "cuDNN of calls"
    if "error" in taken:
        # A file that is there, but is none or too old, is wrong whatever is done here.
        is_there = any(one.place == _PATH for one in here)
        yield Finding(what, taken["error"], "problem" if is_there else lacking, _CUDNN)
        return
    real = os.path.realpath(taken["path"])
    place = next((one.place for one in here if os.path.realpath(one.path) == real), "elsewhere")
    why = f"the first in {_PATH}" if place == _PATH else f"found by cuda-pathfinder: {place}"
    yield Finding(
        what,
        f"{dotted(taken['version'])}: {why}. A program that has loaded another, as PyTorch does, "
        "keeps that one",
    )
    versions = dict.fromkeys(one.version for one in here if one.version)
    if len(versions) > 1:
        yield Finding(
            "cuDNN versions",
            f"{' and '.join(map(dotted, versions))} are here, and a plan is for one of them",
            "warn",
            "--cudnn DIR of plan, emit and build plans with the one that calls take",
        )


def _describe_planner(here: Sequence[_Cudnn]) -> Finding:
    what = "cuDNN of --for"
    try:
        find_stub()
    except PlanError as error:
        return Finding(what, error.problem, "problem", error.hint)
    cudnn = own_cudnn()
    path = "" if cudnn is None else os.path.realpath(cudnn.folder / LIBRARY)
    version = next((one.version for one in here if os.path.realpath(one.path) == path), 0)
    if version:
        return Finding(what, f"{dotted(version)}: installed beside cudnn-bindgen")
    if here:
        return Finding(what, f"none beside cudnn-bindgen, so the system's or {_PATH}'s")
    return Finding(what, "none", "warn", _PLAN)


def _describe_driver(driver: Mapping[str, Any], lacking: Verdict) -> Iterator[Finding]:
    if "error" in driver:
        yield Finding("driver", driver["error"].partition(" (")[0], lacking, _NO_GPU)
        return
    version = driver["version"]
    yield Finding("driver", f"for CUDA {version // 1000}.{version % 1000 // 10}")
    for number, gpu in enumerate(driver["gpus"]):
        size = f"{gpu['memory'] / 2**30:.0f} GiB"
        kind = f"sm_{gpu['sm']}:{gpu['sm_count']}"
        yield Finding(f"GPU {number}", f"{gpu['name']}, {kind} for --for, {size}")


def _describe_frontend(frontend: Mapping[str, Any]) -> Finding:
    if "error" not in frontend:
        return Finding("frontend", f"{frontend['version']}: {frontend['path']}")
    problem, _, remedy = frontend["error"].partition(" (pip install")
    is_absent = "No module named 'cudnn'" in problem
    found = "not installed; plan, --for and accelerate need it" if is_absent else problem
    remedy = f"pip install{remedy.rstrip(')')}" if remedy else _PLAN
    return Finding("frontend", found, "warn" if is_absent else "problem", remedy)
