"""The process that plans for `deviceless`: NVIDIA's frontend and cuDNN on a stub of the driver.

It imports the frontend once, and makes each plan in a fork of itself. So no plan ends it, and what
a plan holds does not depend on those before it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from contextlib import suppress

import msgspec

from cudnn_bindgen.codegen.children import describe_status, serve
from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.graph import dotted
from cudnn_bindgen.codegen.read.dialects.python_plan import read_head
from cudnn_bindgen.codegen.read.dialects.python_plan import recognise as is_python_plan
from cudnn_bindgen.frontend.planning.device_properties import DeviceProperties
from cudnn_bindgen.frontend.planning.deviceless import CUDNN, INSTALL, LIBRARY, Answer, Task
from cudnn_bindgen.frontend.planning.driver import attributes_of
from cudnn_bindgen.frontend.planning.frontend import Module, backend_version, load_frontend
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_any
from cudnn_bindgen.frontend.planning.python_plan import convert, find_device
from cudnn_bindgen.frontend.planning.trace import Trace

# personality(2).
_SAME_ADDRESSES = 0x0040000
_ASK = 0xFFFFFFFF


def main() -> None:
    """Make the plans that `make_plans` asks for."""
    _fix_addresses()
    stub = os.environ.pop("LD_PRELOAD")
    failure: PlanError | None = None
    try:
        _load_cudnn(load_frontend())
    except PlanError as error:
        failure = error

    def answer(line: bytes) -> bytes:
        if failure is not None:
            return msgspec.json.encode(_refusal(failure))
        return _in_fork(msgspec.json.decode(line, type=Task), stub)

    serve(answer)


def _load_cudnn(frontend: Module) -> None:
    """Have the frontend call the cuDNN that was asked for, and no other.

    Raises
    ------
    PlanError
        It does not, or there is none.
    """
    folder, expected = os.environ.get(CUDNN), None
    if folder:
        try:
            library = ctypes.CDLL(f"{folder}/{LIBRARY}")
        except OSError as error:
            raise PlanError(f"cuDNN does not load: {error}", hint=INSTALL) from None
        expected = int(library.cudnnGetVersion())
        with suppress(AttributeError):  # older ones look into their own environment first
            frontend._pybind_module._set_dlhandle_cudnn(library._handle)
    try:
        found = backend_version(frontend)
    except PlanError as error:
        raise PlanError(f"expected cuDNN, got none: {error.problem}", hint=INSTALL) from None
    if expected is not None and found != expected:
        raise PlanError(
            f"expected frontend {frontend.__version__} to call cuDNN {dotted(expected)} of {folder}"
            f", got {found and dotted(found)}"
        )


def _fix_addresses() -> None:
    """Start again without random addresses, where that may be: cuDNN leaves some in a plan."""
    libc = ctypes.CDLL(None)
    before = libc.personality(ctypes.c_ulong(_ASK))
    if before < 0 or before & _SAME_ADDRESSES:
        return
    if libc.personality(ctypes.c_ulong(before | _SAME_ADDRESSES)) >= 0:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - ourselves


def _in_fork(task: Task, stub: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="cudnn-bindgen-") as folder:
        # What the frontend's own engines compile: the user's cache is for real GPUs, and trusted.
        os.environ["CUDNN_FRONTEND_COMPILED_CACHE"] = folder
        return _fork(task, stub)


def _fork(task: Task, stub: str) -> bytes:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reader)
            signal.alarm(task.seconds)
            found = msgspec.json.encode(_answer(task, stub))
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(found)
            status = 0
        finally:
            if status:
                sys.excepthook(*sys.exc_info())
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0 and found:
        return found
    if status == -signal.SIGALRM:
        return msgspec.json.encode(Answer(problem=f"planning took longer than {task.seconds} s"))
    how = f"with {describe_status(status)}" if status else "without a word"
    return msgspec.json.encode(Answer(problem=f"planning ended {how}"))


def _answer(task: Task, stub: str) -> Answer:
    try:
        properties = task.properties or find_device(read_head(task.graph))
    except (GraphFormatError, PlanError) as error:
        return _refusal(error)
    device = msgspec.json.decode(properties, type=DeviceProperties)
    _describe(device, stub)
    trace = Trace(stub, device)
    told: list[str] = []
    try:
        if is_python_plan(task.graph):
            return Answer(plan=convert(task.graph, trace, is_trusted=task.reading.trusts_code))
        plan = make_plan(
            read_any(task.graph, task.constants, task.file, task.reading),
            task.constants,
            task.options,
            told.append,
            properties=properties,
            trace=None if task.options.only_cudnn else trace,
        )
    except (GraphFormatError, PlanError) as error:
        return _refusal(error)
    return Answer(plan=plan, told=tuple(told))


def _refusal(error: GraphFormatError | PlanError) -> Answer:
    return Answer(problem=error.problem, path=error.path, hint=error.hint)


def _describe(device: DeviceProperties, stub: str) -> None:
    """Have the stub say that it is this device."""
    attributes = (ctypes.c_int * 256)()
    for number, value in attributes_of(device).items():
        attributes[number] = value
    ctypes.CDLL(stub).cudnn_bindgen_describe(
        attributes,
        ctypes.c_size_t(device.total_global_mem),
        device.driver_ver,
        device.device_name.encode(),
    )
