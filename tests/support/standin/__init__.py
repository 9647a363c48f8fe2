"""Stand-ins for libcudnn.so.9 and libcuda.so.1, and what a test needs to control them.

`standin.h` describes how the two libraries fit together. `Standin` drives them through ctypes; the
code under test finds them by SONAME, as it would find the real ones in a process that uses torch.
A process that has loaded the stand-ins cannot use the real libraries any more, and vice versa.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .graphs import LAUNCHES, LEAVING, GraphCalls
from .overrides import Declared, Overridable, OverrideCalls

__all__ = [
    "CAPTURE_GLOBAL",
    "CAPTURE_RELAXED",
    "CAPTURE_THREAD_LOCAL",
    "LAUNCHES",
    "LEAVING",
    "Declared",
    "Overridable",
    "Paths",
    "Standin",
    "build",
    "expected_outputs",
    "plan_text",
    "rounded",
]

CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = range(3)
"""Capture modes, of a capture and of a thread (`cuThreadExchangeStreamCaptureMode`)."""

_SOURCES = Path(__file__).parent
_FLAGS = (
    *("-O2", "-g", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"),
    "-ffp-contract=off",  # fused multiply-adds would round differently from expected_outputs
    *shlex.split(os.environ.get("CFLAGS", "")),
)


_LIVE = ("handle", "plan", "pack", "memory", "stream", "graph", "exec", "function", "object")


class Paths(NamedTuple):
    cudnn: Path
    driver: Path


def build(directory: str | os.PathLike[str]) -> Paths:
    """Compile both libraries into `directory` unless they are there and newer than their sources.

    Several processes may do so at once: each writes files of its own and moves them into place.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = Paths(directory / "libcudnn.so.9", directory / "libcuda.so.1")
    _compile("cudnn text launches device overrides", paths.cudnn, "lists")
    _compile("driver bookkeeping streams memory work graphs execs libraries", paths.driver)
    return paths


def _compile(names: str, path: Path, cpp: str = "") -> None:
    c_files = [_SOURCES / f"{name}.c" for name in names.split()]
    cpp_files = [_SOURCES / f"{name}.cpp" for name in cpp.split()]
    sources = [*c_files, *cpp_files, *_SOURCES.glob("*.h")]
    if path.exists() and path.stat().st_mtime >= max(file.stat().st_mtime for file in sources):
        return
    cc, cxx = (os.environ.get(name, default) for name, default in (("CC", "gcc"), ("CXX", "g++")))
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        output = Path(scratch) / path.name
        objects = [str(Path(scratch) / f"{file.stem}.o") for file in cpp_files]
        for file, target in zip(cpp_files, objects, strict=True):
            _run([cxx, "-std=c++17", *_FLAGS, "-c", str(file), "-o", target], path)
        command = [cc, "-std=c11", *_FLAGS, "-shared", f"-Wl,-soname,{path.name}"]
        command += [*map(str, c_files), *objects, "-o", str(output), "-ldl"]
        _run([*command, "-lstdc++"] if objects else command, path)
        output.replace(path)


def _run(command: list[str], path: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{path.name} does not compile:\n{done.stderr}")


class Standin(GraphCalls, OverrideCalls):
    """Both libraries, loaded for the whole process, so that any later dlopen by SONAME finds them.

    Integers stand for streams, contexts and addresses.
    """

    _loaded: Standin | None = None
    _load_lock = threading.Lock()

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.driver = ctypes.CDLL(str(paths.driver), mode=ctypes.RTLD_GLOBAL)
        self.cudnn = ctypes.CDLL(str(paths.cudnn), mode=ctypes.RTLD_GLOBAL)
        self.driver.standin_log.restype = ctypes.c_size_t
        self.driver.standin_new_context.restype = ctypes.c_void_p
        for name in ("calls", "live", "violations", "captured_nodes"):
            self.driver[f"standin_{name}"].restype = ctypes.c_long

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Standin:
        """Build and load, or return what this process has loaded, whatever `directory` was then.

        A second copy would have a second state, and nobody could tell which one is meant.
        """
        with cls._load_lock:
            if cls._loaded is None:
                cls._loaded = cls(build(directory))
            return cls._loaded

    # Bookkeeping

    def reset(self) -> None:
        """Forget counts, failures, log, violations, captures and settings; objects stay alive."""
        self.cudnn.standin_reset()

    def fail(self, call: str, nth: int = 1, *, status: int) -> None:
        """Let the `nth` next call of `call` return `status` once, and do nothing else."""
        if self.driver.standin_fail(call.encode(), nth, status) != 0:
            raise ValueError(f"no call {call!r}, nth {nth} below 1, or too many failures")

    def calls(self, call: str) -> int:
        """How often `call` has succeeded."""
        return self._count("calls", call)

    def live(self, kind: str) -> int:
        """How many of a kind exist.

        Kinds are 'handle', 'plan', 'pack', 'memory', 'stream', 'graph', 'exec', 'function' and
        'object' (a user object).
        """
        return self._count("live", kind)

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Let what the block leaves alive not count: for tests of the stand-in itself."""
        before = {kind: self.live(kind) for kind in _LIVE}
        try:
            yield
        finally:
            for kind, count in before.items():
                self.driver.standin_set_live(kind.encode(), ctypes.c_long(count))

    def violations(self, kind: str | None = None) -> int:
        """How often callers did what they must never do.

        'shared': a handle or an executable graph on two threads at once. 'destroyed': use after
        destroy, of a plan by a graph too, or destroy while in use. 'memory': device memory freed
        twice, used after free, overrun, or workspace of another context; in a graph also memory
        that is not mapped. 'overrides': an address that no vector of vectors stands at, or vectors
        changed or freed after they were given to a pack and before its execution. 'absent': a
        function that the version set is too old to have. None: all of these. 'stale stream' is
        apart: the handle was last given a stream that is destroyed and whose address another stream
        now has.
        """
        if kind is None:
            return int(self.driver.standin_violations(None))
        return self._count("violations", kind)

    def _count(self, what: str, name: str) -> int:
        count = int(self.driver[f"standin_{what}"](name.encode()))
        if count < 0:
            raise ValueError(f"standin_{what}: unknown name {name!r}")
        return count

    def log(self, *names: str) -> list[str]:
        """Return the successful calls that change something, as 'name argument ...', oldest first.

        Pointers and streams are printed as hex(), sizes and values in decimal. With `names`, only
        the calls of these names.
        """
        size = self.driver.standin_log(None, 0) + 4096  # other threads may add lines meanwhile
        text = ctypes.create_string_buffer(size)
        self.driver.standin_log(text, ctypes.c_size_t(size))
        lines = text.value.decode().splitlines()
        return [line for line in lines if not names or line.split()[0] in names]

    # Settings

    def set_version(self, version: int) -> None:
        self.cudnn.standin_set_version(ctypes.c_size_t(version))

    def set_device_count(self, count: int) -> None:
        if self.driver.standin_set_device_count(count) != 0:
            raise ValueError(f"device count {count}: expected 0 to 8")

    def set_device_sm(self, device: int, major: int, minor: int) -> None:
        if self.driver.standin_set_device_sm(device, major, minor) != 0:
            raise ValueError(f"device {device}: expected 0 to 7")

    def set_device_sm_count(self, device: int, count: int) -> None:
        if self.driver.standin_set_device_sm_count(device, count) != 0:
            raise ValueError(f"device {device}: expected 0 to 7")

    def set_execute_delay(self, seconds: float) -> None:
        """Let every cudnnBackendExecute and cuGraphLaunch last so long, to make races visible."""
        self.driver.standin_set_execute_delay(ctypes.c_long(round(seconds * 1e6)))

    # Contexts

    def retain_context(self, device: int = 0) -> int:
        """Return the primary context of `device`, without making it current."""
        context = ctypes.c_void_p()
        self._check("cuInit", 0)
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context.value or 0

    def new_context(self, device: int = 0) -> int:
        """Make a context that is not primary; a process has room for 56 of them."""
        context = self.driver.standin_new_context(device)
        if context is None:
            raise RuntimeError(f"no new context on device {device}")
        return int(context)

    def current_context(self) -> int | None:
        context = ctypes.c_void_p()
        self._check("cuInit", 0)
        self._check("cuCtxGetCurrent", ctypes.byref(context))
        return context.value

    def set_context(self, context: int | None) -> None:
        """Make `context` current on this thread, or with None leave the thread without one."""
        self._check("cuInit", 0)
        self._check("cuCtxSetCurrent", ctypes.c_void_p(context))

    @contextmanager
    def context(self, device: int = 0) -> Iterator[int]:
        """Make the primary context of `device` current on this thread for the block."""
        previous = self.current_context()
        context = self.retain_context(device)
        self.set_context(context)
        try:
            yield context
        finally:
            self.set_context(previous)

    # Streams and captures

    def stream(self, *, blocking: bool = False, priority: int | None = None) -> int:
        """Create a stream in the current context; priorities reach from 0 down to -5."""
        stream = ctypes.c_void_p()
        flags = 0 if blocking else 1
        if priority is None:
            self._check("cuStreamCreate", ctypes.byref(stream), flags)
        else:
            self._check("cuStreamCreateWithPriority", ctypes.byref(stream), flags, priority)
        return stream.value or 0

    def destroy_stream(self, stream: int) -> None:
        """Destroy `stream`; the next stream to be created gets its address."""
        self._check("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def stream_id(self, stream: int) -> int:
        value = ctypes.c_ulonglong()
        self._check("cuStreamGetId", ctypes.c_void_p(stream), ctypes.byref(value))
        return value.value

    def synchronize(self, stream: int) -> None:
        self._check("cuStreamSynchronize", ctypes.c_void_p(stream))

    def begin_capture(self, stream: int, mode: int = CAPTURE_GLOBAL) -> None:
        self._check("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), mode)

    def end_capture(self, stream: int) -> int:
        """End the capture and return cuStreamEndCapture's status: 0, or 901 if it was disturbed.

        The graph is dropped; `end_capture_graph` keeps it.
        """
        status, graph = self.end_capture_graph(stream)
        self.drop_graph(graph)
        return status

    def is_capturing(self, stream: int) -> bool:
        state = ctypes.c_int()
        self._check("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(state))
        return state.value != 0

    def captured_nodes(self, stream: int) -> int:
        """How many launches the capture on `stream` holds, or the last one that ended held."""
        return int(self.driver.standin_captured_nodes(ctypes.c_void_p(stream)))

    @contextmanager
    def capture_mode(self, mode: int) -> Iterator[None]:
        """Exchange this thread's capture mode for the block."""
        value = ctypes.c_int(mode)
        self._check("cuThreadExchangeStreamCaptureMode", ctypes.byref(value))
        try:
            yield
        finally:
            self._check("cuThreadExchangeStreamCaptureMode", ctypes.byref(value))

    # Memory

    def alloc(self, size: int) -> int:
        address = ctypes.c_void_p()
        self._check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def free(self, address: int) -> None:
        self._check("cuMemFree_v2", ctypes.c_void_p(address))

    def _check(self, call: str, *arguments: object) -> None:
        status = self.driver[call](*arguments)
        if status != 0:
            name = ctypes.c_char_p()
            self.driver.cuGetErrorName(status, ctypes.byref(name))
            raise RuntimeError(f"{call}: {(name.value or b'?').decode()} ({status})")


def plan_text(
    *,
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (),
    scalars: Sequence[tuple[int, str]] = (),
    workspace: int = 0,
    count: int = 1,
    parts: Sequence[int] = (),
    other: Sequence[int] = (),
    launch: str = "plain",
    overridable: Overridable | None = None,
    version: int = 91900,
    sm: int = 900,
) -> str:
    """Return the text of an execution plan that the stand-in can run.

    The lists hold uids; a scalar is (uid, 'float' | 'half' | 'bfloat16' | 'double' | 'int32' |
    'int64'). Inputs and outputs are arrays of `count` doubles, parts of `count` floats; the other
    operands are bound, but not read, and may be null. `workspace` bytes are overwritten with 0xA5.
    `launch` is one of `LAUNCHES`: it never changes what a direct execution computes. A plan without
    `overridable` refuses overrides.
    """
    return json.dumps(
        {
            "cudnnVersion": version,
            "GPUProfile": {"deviceVer": sm},
            "standin": {
                "workspace": workspace,
                "count": count,
                "inputs": list(inputs),
                "outputs": list(outputs),
                "parts": list(parts),
                "scalars": [list(scalar) for scalar in scalars],
                "other": list(other),
                "launch": launch,
                **(overridable.members() if overridable else {}),
            },
        },
        separators=(",", ":"),
    )


def expected_outputs(
    inputs: Sequence[Sequence[float]],
    scalars: Sequence[float],
    parts: Sequence[Sequence[float]],
    n_outputs: int,
    *,
    count: int = 1,
    digest: int = 0,
) -> list[list[float]]:
    """Return what the stand-in writes to its outputs, to the last bit.

    Scalars and parts are expected as the library sees them: see `rounded`. `count` matters only
    where there is no array to tell it. `digest` is `Overridable.digest_of` the call.
    """
    for array in (*inputs, *parts):
        count = len(array)
    outputs: list[list[float]] = [[] for _ in range(n_outputs)]
    for i in range(count):
        total = float(digest)
        for j, array in enumerate(inputs):
            total += (j + 1) ** 2 * array[i]
        for m, scalar in enumerate(scalars):
            total += (100 + m) * float(scalar)
        for p, array in enumerate(parts):
            total += (1000 + p) * array[i]
        for k, output in enumerate(outputs):
            output.append((k + 1) * total)
    return outputs


def rounded(value: float, data_type: str) -> float:
    """Return `value` as a scalar of `data_type` holds it, rounded to nearest even."""
    if data_type in ("int32", "int64"):
        return float(int(value))
    if data_type == "bfloat16":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        # Rounds at once from float, which is exact for the short values that tests use.
        bits += 0x7FFF + (bits >> 16 & 1)
        return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0])
    code = {"half": "<e", "float": "<f", "double": "<d"}[data_type]
    return float(struct.unpack(code, struct.pack(code, value))[0])
