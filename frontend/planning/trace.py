"""What an engine of the frontend's own launches, written down without a GPU: its kernel plan.

The engine runs on the stub of the driver (driver_stub.c), which tells of each call. It is executed
several times, each time with other addresses. So each word of a kernel's parameters is a constant,
or the address of an operand plus an offset; a word that is neither refuses the trace.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.kernel_plan import KernelLaunch, TensorMap
from cudnn_bindgen.frontend.planning.device_code import read_code, read_parameters
from cudnn_bindgen.frontend.planning.device_properties import DeviceProperties
from cudnn_bindgen.frontend.planning.frontend import Module
from cudnn_bindgen.frontend.planning.trace_words import (
    APART,
    Execution,
    LaunchCall,
    MapCall,
    find_launches,
)

# The proof of a word is that it follows so many random addresses.
_EXECUTIONS = 4
_PAGE = 4096

# Of a CUtensorMap, and of a CUlaunchAttribute and where its value begins, in bytes.
_MAP = 128
_ATTRIBUTE, _VALUE = 72, 8
# The attributes that kernels are launched with, and how many bytes each value has.
_COOPERATIVE, _CLUSTER, _OVERLAP = 2, 4, 6
_WIDTHS = {_COOPERATIVE: 4, _CLUSTER: 12, _OVERLAP: 4}

_PACKAGES = ("cutlass", "tvm_ffi", "torch")
_INSTALL = (
    "pip install 'cudnn-bindgen[plan]' nvidia-cutlass-dsl apache-tvm-ffi torch; a CPU build of "
    "PyTorch is enough"
)


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_size_t),
        ("attributes", ctypes.c_size_t),
        ("count", ctypes.c_uint),
    )


class Trace:
    """Listens to the stub of this process."""

    def __init__(self, stub: str, device: DeviceProperties) -> None:
        self.device = device
        self._stub = stub
        self._library = ctypes.CDLL(stub)
        self._codes: list[bytes] = []
        self._sizes: list[Mapping[str, tuple[int, ...]]] = []
        self._kernels: list[tuple[int, str]] = []
        self._execution: Execution | None = None
        self._problem: Exception | None = None

    def offer(self, frontend: Module) -> None:
        """Have the frontend offer its own engines for the stub's device, as for the current one.

        It asks cuDNN what that is, which asks for more than a stub has.
        """
        describe = frontend.create_device_properties
        frontend.create_device_properties = lambda asked: describe(
            self.device.text if isinstance(asked, int) else asked
        )

    def prepare(self) -> None:
        """Have engines compile for the stub's device, and link what they compiled with the stub.

        Raises
        ------
        PlanError
            What they compile with is not installed.
        """
        needed = (*_PACKAGES, "elftools")
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            raise PlanError(f"the frontend's own engines need {missing[0]}", hint=_INSTALL)
        compiler, functions, torch = map(importlib.import_module, _PACKAGES)
        _describe(self.device, torch.cuda)
        provider = compiler.runtime.ExternalBinaryModule.load_provider
        compiler.runtime.load_module = lambda path, **_: _Object(
            path, provider, functions, self._stub
        )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Raise PlanError if an engine calls what no kernel plan has."""
        kind = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t))
        told = kind(self._hear)
        self._library.cudnn_bindgen_trace(told)
        try:
            yield
        finally:
            self._library.cudnn_bindgen_trace(None)
        if self._problem:
            problem, self._problem = self._problem, None
            raise problem

    def record(
        self, uids: Sequence[int], execute: Callable[[Mapping[int, int], int, int], None]
    ) -> tuple[list[bytes], list[KernelLaunch], list[TensorMap]]:
        """Execute several times, and return device code, launches and tensor maps.

        `execute` is called with an address for each of `uids`, one for the workspace, and a stream.

        Raises
        ------
        PlanError
            The engine does something else than to launch kernels on its stream, or a kernel takes
            what is neither a constant nor an address of an operand.
        """
        executions = []
        for _ in range(1 + _EXECUTIONS):
            numbers = secrets.SystemRandom().sample(range(1, 128), len(uids) + 2)
            *places, stream = (
                number * APART + secrets.randbelow(APART // _PAGE // 2) * _PAGE
                for number in numbers
            )
            self._execution = Execution(dict(zip((*uids, None), places, strict=True)), stream)
            with self.listening():
                execute(dict(zip(uids, places, strict=False)), places[-1], stream)
            executions.append(self._execution)
        self._execution = None
        # The first leaves out: the padding of its parameters is what compiling left on the stack.
        return self._codes, *find_launches(executions[1:])

    def _hear(self, call: bytes, arguments: Sequence[int]) -> int:
        try:
            return self._note(call.decode(), arguments)
        except Exception as error:  # `listening` raises it: here it would be lost
            self._problem = self._problem or error
            return 0

    def _note(self, call: str, arguments: Sequence[int]) -> int:
        """Write a call down, and return what it gives; handles count from 1."""
        if call == "load":
            self._codes.append(read_code(arguments[0]))
            self._sizes.append(read_parameters(self._codes[-1]))
            return len(self._codes)
        if call == "kernel":
            self._kernels.append((arguments[0] - 1, ctypes.string_at(arguments[1]).decode()))
            return len(self._kernels)
        if self._execution is not None and call == "launch":
            self._execution.launches.append(
                self._read_launch(self._execution.stream, *arguments[:3])
            )
        elif self._execution is not None and call == "tensor map":
            self._execution.maps.append(_read_map(arguments))
        else:
            raise PlanError(f"expected an engine that launches kernels alone, got a call of {call}")
        return 0

    def _read_launch(self, stream: int, place: int, kernel: int, parameters: int) -> LaunchCall:
        config = _Config.from_address(place)
        if config.stream != stream:
            raise PlanError("expected all kernels on the stream of the call, got one on another")
        binary, name = self._kernels[kernel - 1]
        sizes = self._sizes[binary].get(name, ())
        places = (ctypes.c_size_t * len(sizes)).from_address(parameters)
        return LaunchCall(
            (binary, name),
            _three(config.grid),
            _three(config.block),
            config.shared,
            tuple(_read_attributes(config)),
            tuple(map(ctypes.string_at, places, sizes)),
        )


def _describe(device: DeviceProperties, cuda: Any) -> None:
    """Have PyTorch, which may be a build without CUDA, say that it is this device."""
    properties = SimpleNamespace(
        name=device.device_name,
        major=device.sm // 10,
        minor=device.sm % 10,
        multi_processor_count=device.multi_processor_count,
        total_memory=device.total_global_mem,
        L2_cache_size=device.l2_cache_size,
        shared_memory_per_block_optin=device.max_shared_memory_per_block_optin,
    )
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.get_device_properties = lambda device=None: properties
    cuda.get_device_capability = lambda device=None: (properties.major, properties.minor)


class _Object:
    """An object file that an engine has compiled, linked with the stub in place of CUDA."""

    def __init__(self, path: str, provider: Any, functions: Any, stub: str) -> None:
        libraries = [stub, functions.libinfo.find_libtvm_ffi()]
        content = Path(path).read_bytes()
        self._engine = provider.execution_engine_constructor(content, libraries, True)
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        place = self._engine.lookup(f"__tvm_ffi_{name}")
        return self._functions.Function.__from_extern_c__(place, keep_alive_object=self._engine)


def _read_attributes(config: _Config) -> Iterator[tuple[int, bytes]]:
    for index in range(config.count):
        place = config.attributes + index * _ATTRIBUTE
        number = ctypes.c_int.from_address(place).value
        if number not in _WIDTHS:
            raise PlanError(f"expected launch attributes that are known, got number {number}")
        value = ctypes.string_at(place + _VALUE, _WIDTHS[number])
        if any(value):  # else it is off
            yield number, value


def _read_map(arguments: Sequence[int]) -> MapCall:
    place, data_type, rank, address, dims, strides, box, element_strides = arguments[:8]
    content = secrets.token_bytes(_MAP)
    ctypes.memmove(place, content, _MAP)
    interleave, swizzle, promotion, fill = (_int(arguments[index]) for index in range(8, 12))
    rank = _int(rank)
    return MapCall(
        address,
        content,
        _int(data_type),
        tuple((ctypes.c_uint64 * rank).from_address(dims)),
        tuple((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
        tuple((ctypes.c_uint32 * rank).from_address(box)),
        tuple((ctypes.c_uint32 * rank).from_address(element_strides)),
        (interleave, swizzle, promotion, fill),
    )


def _int(argument: int) -> int:
    """Return an int that was passed where a pointer would be: its upper half may be anything."""
    return argument & 0xFFFFFFFF


def _three(numbers: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = numbers
    return x, y, z
