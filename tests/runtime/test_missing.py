"""Machines on which something is missing: each module imports, and the first call says what it is.

In processes of their own, which have none of the stand-in libraries loaded.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.standin import Paths

from cudnn_bindgen.module_data import RUNTIME_ABI
from cudnn_bindgen.runtime.errors import RuntimeAbiError

PROGRAM = """
import ctypes, sys, thd
if "no gpu" in sys.argv:
    ctypes.CDLL("libcuda.so.1").standin_set_device_count(0)
assert len(thd.FINGERPRINT) == 32
operands = [16 * slot for slot in range(1, 13)]
calls = {"execute": lambda: thd.execute(*operands), "workspace_size": thd.workspace_size}
for call in [calls[sys.argv[1]]] * 2:
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).replace("\\n", " "))
thd.close()
"""


def has_library(name: str) -> bool:
    """Whether this machine has a real one."""
    program = f"import ctypes; ctypes.CDLL({name!r})"
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def has_driver() -> bool:
    return has_library("libcuda.so.1")


@pytest.fixture(scope="module")
def has_cudnn() -> bool:
    try:
        installed = importlib.util.find_spec("nvidia.cudnn") is not None
    except ModuleNotFoundError:
        installed = False
    return installed or has_library("libcudnn.so.9")


def hide(library: Path, function: str) -> None:
    """Take a function's name out of a library, as if the library were too old to have it."""
    name = b"\0%s\0" % function.encode()
    library.write_bytes(library.read_bytes().replace(name, b"\0" + b"?" * len(function) + b"\0"))


def call(builds: Any, libraries: Path, function: str = "execute", *arguments: str) -> str:
    """Call twice in a new process, and return what both calls raised alike."""
    builds.path("thd")
    environment = os.environ | {
        "PYTHONPATH": str(builds.directory),
        "LD_LIBRARY_PATH": str(libraries),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, function, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    assert first == second
    return first


@pytest.mark.parametrize("function", ["execute", "workspace_size"])
def test_no_driver(builds: Any, tmp_path: Path, has_driver: bool, function: str) -> None:
    if has_driver:
        pytest.skip("this machine has a driver")
    raised = call(builds, tmp_path, function)
    assert raised.startswith("LibraryNotFoundError no NVIDIA driver: libcuda.so.1: ")
    assert "can be built and imported without a GPU" in raised


def test_no_cudnn(builds: Any, own_standin: Paths, has_cudnn: bool) -> None:
    if has_cudnn:
        pytest.skip("this machine has cuDNN")
    own_standin.cudnn.unlink()
    raised = call(builds, own_standin.cudnn.parent)
    assert raised.startswith("LibraryNotFoundError no cuDNN 9 found; install nvidia-cudnn-cu12 or")
    assert "the process: no libcudnn.so.9 loaded" in raised
    assert f"LD_LIBRARY_PATH: no {own_standin.cudnn}" in raised
    assert "cuda-pathfinder: " in raised


def test_a_cudnn_that_cannot_be_loaded(builds: Any, own_standin: Paths, has_cudnn: bool) -> None:
    if has_cudnn:
        pytest.skip("this machine has cuDNN")
    own_standin.cudnn.write_bytes(b"no library")
    assert f"LD_LIBRARY_PATH: {own_standin.cudnn}: " in call(builds, own_standin.cudnn.parent)


@pytest.mark.parametrize("function", ["execute", "workspace_size"])
def test_a_cudnn_that_is_too_old(builds: Any, own_standin: Paths, function: str) -> None:
    hide(own_standin.cudnn, "cudnnBackendFinalize")
    assert call(builds, own_standin.cudnn.parent, function) == (
        "LibraryNotFoundError libcudnn.so.9 has no cudnnBackendFinalize: it is too old"
    )


def test_a_driver_that_is_too_old(builds: Any, own_standin: Paths) -> None:
    hide(own_standin.driver, "cuThreadExchangeStreamCaptureMode")
    assert call(builds, own_standin.cudnn.parent) == (
        "LibraryNotFoundError libcuda.so.1 has no cuThreadExchangeStreamCaptureMode: it is too old"
    )


def test_a_driver_without_stream_ids(builds: Any, own_standin: Paths) -> None:
    """CUDA before 12.0."""
    builds.path("thd")
    hide(own_standin.driver, "cuStreamGetId")
    program = (
        "from support.standin import Paths, Standin; import thd\n"
        f"libraries = Standin(Paths{(*map(str, own_standin),)})\n"
        "with libraries.context():\n"
        "    operands = [libraries.alloc(128) for _ in thd.OPERANDS]\n"
        "    for stream in (0, 2, libraries.stream(), 2, 0):\n"
        "        thd.execute(*operands, stream=stream)\n"
        "blocks = [line.split()[-1] for line in libraries.log('cudnnBackendExecute')]\n"
        "print(*map(blocks.index, blocks), libraries.violations())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(builds.directory), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["0", "1", "2", "1", "0", "0"], done.stderr


@pytest.mark.parametrize("function", ["execute", "workspace_size"])
def test_no_gpu(builds: Any, standin_paths: Paths, function: str) -> None:
    raised = call(builds, standin_paths.cudnn.parent, function, "no gpu")
    assert raised == "DriverError cuInit: CUDA_ERROR_NO_DEVICE (100)"


def test_a_module_for_another_runtime(builds: Any, load: Callable[[str], ModuleType]) -> None:
    with builds.lock("other_abi"):
        files = builds.emit("other_abi")
        text = files["other_abi.pyx"]
        here = f"Binding(__name__, {RUNTIME_ABI},"
        assert here in text
        files["other_abi.pyx"] = text.replace(here, "Binding(__name__, 99,")
        builds.compile("other_abi", files)
    with pytest.raises(
        RuntimeAbiError, match=f"for runtime ABI 99, this is {RUNTIME_ABI}: emit and build it"
    ):
        load("other_abi")
