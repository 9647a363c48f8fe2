"""The process that loads or runs what may be broken: libraries, compilers, a user's module.

A question is a line of JSON, and so is the answer: an object, whose `error` says what went wrong.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from cudnn_bindgen.codegen.children import Child, EndedError, serve

Answer = dict[str, Any]

LIBRARY = "libcudnn.so.9"


# Seconds for an answer: a slow disk and eight GPUs take 20.
LIMIT = 60


def ask(question: str, *arguments: object, environment: Mapping[str, str] | None = None) -> Answer:
    """Have a new process answer; whatever ends it is its answer. If it hangs, `hangs` is there."""
    child = Child("cudnn_bindgen.doctor.probe", environment)
    answers: SimpleQueue[Answer] = SimpleQueue()
    task = json.dumps([question, *arguments]).encode()
    # A daemon: what waits in a driver cannot be ended, and the report must not wait for it.
    threading.Thread(target=_wait, args=(child, task, answers), daemon=True).start()
    try:
        return answers.get(timeout=LIMIT)
    except Empty:
        return {"error": f"no answer in {LIMIT} s: it hangs", "hangs": True}
    finally:
        child.end(signal.SIGKILL)


def _wait(child: Child, task: bytes, answers: SimpleQueue[Answer]) -> None:
    with child:
        try:
            answer, _ = child.ask(task)
            answers.put(json.loads(answer))
        except (EndedError, OSError, ValueError) as error:
            answers.put({"error": f"a process that tried ended: {error}"})


def main() -> None:
    """Answer what `ask` asks."""
    serve(_answer)


def _answer(line: bytes) -> bytes:
    question, *arguments = json.loads(line)
    try:
        found = _QUESTIONS[question](*arguments)
    # Whatever loading a broken thing raises is what there is to say of it.
    except (Exception, SystemExit) as error:
        found = {"error": str(error) or type(error).__name__, "kind": type(error).__name__}
    return json.dumps(found).encode()


def _compiler() -> Answer:
    from cudnn_bindgen.codegen.compile import compiler_version

    return {"version": compiler_version()}


def _cudnn(path: str) -> Answer:
    library = ctypes.CDLL(path)
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return {"version": library.cudnnGetVersion(), "path": _loaded(LIBRARY) or path}


def _cudnn_of_calls() -> Answer:
    # A .pyx without a stub.
    from cudnn_bindgen.runtime.library import cudnn_version  # type: ignore[import-not-found]

    return {"version": cudnn_version(), "path": _loaded(LIBRARY)}


def _loaded(name: str) -> str:
    """Return the file of a library that this process has loaded."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    files = (line.split(maxsplit=5)[-1] for line in lines)
    return next((file for file in files if Path(file).name.startswith(name)), "")


def _driver() -> Answer:
    # Here, as below: each of several processes imports only what it is asked for.
    from cudnn_bindgen.frontend.planning.driver import read_all

    devices = read_all()
    return {
        "version": devices[0].driver_ver,
        "gpus": [
            {
                "name": device.device_name,
                "sm": device.sm,
                "sm_count": device.multi_processor_count,
                "memory": device.total_global_mem,
            }
            for device in devices
        ],
    }


def _frontend() -> Answer:
    from cudnn_bindgen.frontend.planning.frontend import load_frontend

    frontend = load_frontend()
    return {"version": str(frontend.__version__), "path": str(frontend.__file__)}


def _cuda_runtime() -> Answer:
    from cuda.pathfinder import (  # type: ignore[import-untyped]
        load_nvidia_dynamic_lib,
    )

    found = load_nvidia_dynamic_lib("cudart")
    return {"path": str(found.abs_path), "how": str(found.found_via)}


def _module(name: str, path: str) -> Answer:
    module = _load(name, path)
    if not hasattr(module, "FINGERPRINT"):
        raise TypeError("expected a module that cudnn-bindgen emitted, got another")
    # Of a family, of a chain, or the module's own.
    graphs = [member.graph for member in _members(module).values()]
    graphs = graphs or [*getattr(module, "GRAPH", {}).get("links", {}).values()]
    return {
        "path": str(module.__file__),
        "fingerprint": module.FINGERPRINT,
        "graphs": [
            {"source": graph["source"], "plans": [[*plan] for plan in graph.get("plans", ())]}
            for graph in graphs or [module.GRAPH]
        ],
    }


def _launch(name: str, path: str) -> Answer:
    """Say what a call launches, of a family's first graph with a plan."""
    module = _load(name, path)
    keys = [key for key, member in _members(module).items() if member.graph.get("plans")]
    return {"nodes": len(module.launch_nodes(*next(iter(keys), ())))}


def _members(module: Any) -> Mapping[tuple[int, ...], Any]:
    members: Mapping[tuple[int, ...], Any] = getattr(module, "MEMBERS", {})
    return members


def _load(name: str, path: str) -> Any:
    if not path:
        # Last, so that nothing there stands in for a module of Python's.
        sys.path.append(os.getcwd())  # noqa: PTH109
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("expected an extension module, got another file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_QUESTIONS: dict[str, Callable[..., Answer]] = {
    "compiler": _compiler,
    "cudnn": _cudnn,
    "cudnn of calls": _cudnn_of_calls,
    "driver": _driver,
    "frontend": _frontend,
    "CUDA runtime": _cuda_runtime,
    "module": _module,
    "launch": _launch,
}
