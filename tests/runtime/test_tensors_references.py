"""`run` keeps nothing: references, memory and cuDNN's objects after many calls and refusals."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support import device_tensors  # noqa: E402
from support.cases import CASES, EMPTY  # noqa: E402
from support.device_tensors import DeviceTensor, make_tensor  # noqa: E402
from support.leaks import State, repeat  # noqa: E402
from support.producers import Array, OldProducer, Producer  # noqa: E402
from support.standin import Standin  # noqa: E402

from cudnn_bindgen.codegen.bind.binding import bind  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.runtime.errors import CudnnError, OperandError  # noqa: E402

Load = Callable[[str], ModuleType]

NAME = "norm"
"""Three inputs, three outputs and a scalar; the outputs are large, so that a leak shows."""


# A launch record has one for each of 32 sets of addresses that come again, and one for all others.
EXECUTABLES = 33

EMPTY_OPERANDS = bind(read_graph(EMPTY)).operands


@pytest.fixture
def served() -> str:
    return "loaded"  # empty and scalars are modules


@pytest.fixture
def norm(load_case: Load) -> ModuleType:
    return load_case(NAME)


@pytest.fixture(scope="module")
def tensors() -> list[DeviceTensor]:
    return [make_tensor(argument) for argument in CASES[NAME].binding.operands]


@pytest.fixture
def managed() -> Iterator[None]:
    """Let the exchange API hand out managed tensors alone."""
    device_tensors.set_direct(False)
    yield
    device_tensors.set_direct(True)


# Calls that work


@pytest.mark.parametrize("policy", ["direct"], indirect=True)  # nothing is launched
def test_a_million_calls(load: Load, standin: Standin) -> None:
    """Of a graph without elements: operands are read and checked, and that is all of it."""
    module = load("empty")
    arguments = [make_tensor(argument) for argument in EMPTY_OPERANDS]
    repeat(1000, module.run, *arguments)
    state = State(standin, arguments)
    repeat(1_000_000, module.run, *arguments)
    state.check()


def test_calls_that_launch(load: Load, standin: Standin, policy: str) -> None:
    """A tenth of a million: with the stand-in's work a million takes more than ten seconds."""
    module = load("scalars")
    arguments = [make_tensor(argument) for argument in CASES["scalars"].binding.operands]
    scalars = {argument.argument: 2 for argument in CASES["scalars"].binding.scalars}
    repeat(1000, module.run, *arguments, **scalars)
    state = State(standin, [*arguments, scalars])
    repeat(100_000, module.run, *arguments, **scalars)
    state.check()
    assert module.launch_path() == policy


@pytest.mark.parametrize("kind", [Producer, OldProducer, Array, "managed", "addresses"])
def test_other_ways_to_read(
    norm: ModuleType, tensors: list[DeviceTensor], standin: Standin, kind: Any, request: Any
) -> None:
    arguments: list[Any] = list(tensors)
    if kind == "managed":
        request.getfixturevalue("managed")
    elif kind == "addresses":
        arguments = [tensor.data_ptr() for tensor in tensors]
    else:
        arguments = [kind(tensor) for tensor in tensors]
    count = 5_000 if kind in (Producer, OldProducer) else 20_000
    repeat(500, norm.run, *arguments, eps=1.0)
    state = State(standin, [*tensors, *arguments])
    repeat(count, norm.run, *arguments, eps=1.0)
    state.check()


def test_outputs_that_are_allocated(
    norm: ModuleType, tensors: list[DeviceTensor], standin: Standin
) -> None:
    inputs = tensors[:3]
    repeat(500, norm.run, *inputs, eps=1.0)
    state = State(standin, inputs)
    repeat(5_000, norm.run, *inputs, eps=1.0)
    state.check(EXECUTABLES)
    outputs = norm.run(*inputs, eps=1.0)
    # Of the tuple, the loop and getrefcount itself.
    assert [sys.getrefcount(output) for output in outputs] == [3, 3, 3]
    assert sys.getrefcount(outputs) == 2


def test_what_is_passed_and_returned(norm: ModuleType, tensors: list[DeviceTensor]) -> None:
    before = [sys.getrefcount(tensor) for tensor in tensors]
    returned = norm.run(*tensors, eps=1.0)
    assert all(one is other for one, other in zip(returned, tensors[3:], strict=True))
    held = [sys.getrefcount(tensor) for tensor in tensors]
    assert held == [*before[:3], *(count + 1 for count in before[3:])]
    del returned
    assert [sys.getrefcount(tensor) for tensor in tensors] == before


def test_a_workspace_and_a_stream(
    norm: ModuleType, tensors: list[DeviceTensor], standin: Standin
) -> None:
    class Stream:
        cuda_stream = 2

    stream, block = Stream(), device_tensors.strided((4096,), (1,), torch.uint8)
    named = {"workspace": block, "stream": stream, "eps": 1.0}
    repeat(500, norm.run, *tensors, **named)
    state = State(standin, [*tensors, stream, block])
    repeat(20_000, norm.run, *tensors, **named)
    state.check()


def test_python_allocates_nothing_that_stays(norm: ModuleType, tensors: list[DeviceTensor]) -> None:
    arguments = [Producer(tensor) for tensor in tensors[:3]]
    repeat(500, norm.run, *arguments, *tensors[3:], eps=1.0)
    gc.collect()
    tracemalloc.start()
    try:
        repeat(100, norm.run, *arguments, *tensors[3:], eps=1.0)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        repeat(2000, norm.run, *arguments, *tensors[3:], eps=1.0)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 4096
    finally:
        tracemalloc.stop()


# Calls that fail


class Broken:
    """An object whose `__dlpack__` fails after others were taken."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise RuntimeError("no memory to share")


def of_another_type(tensor: torch.Tensor) -> Any:
    other = {2: torch.int16, 4: torch.int32}[tensor.itemsize]
    return device_tensors.on_device(tensor.view(other))


def of_another_shape(tensor: torch.Tensor) -> Any:
    return device_tensors.on_device(tensor.flatten()[1:])


def on_the_host(tensor: torch.Tensor) -> Any:
    return tensor.as_subclass(torch.Tensor)


WRONG = {
    "object": lambda _: object(),
    "broken": lambda _: Broken(),
    "null": lambda _: 0,
    "type": of_another_type,
    "shape": of_another_shape,
    "host": on_the_host,
}


@pytest.mark.parametrize("slot", range(6))
@pytest.mark.parametrize("wrong", WRONG)
def test_an_operand_that_is_refused(
    norm: ModuleType, tensors: list[DeviceTensor], standin: Standin, wrong: str, slot: int
) -> None:
    """What was taken of the operands before it, and after it, is given back."""
    arguments: list[Any] = [Producer(tensor) for tensor in tensors]
    refused = WRONG[wrong](tensors[slot])
    right, arguments[slot] = arguments[slot], refused
    argument = norm.OPERANDS[slot].argument.removesuffix("_ptr")

    def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(OperandError, match=f"^{argument}: "):
                norm.run(*arguments, eps=1.0)

    fail(20)
    state = State(standin, [*tensors, *arguments, right])
    fail(200)
    state.check()
    assert standin.calls("cudnnBackendExecute") + standin.calls("cuGraphLaunch") == 0
    arguments[slot] = right
    norm.run(*arguments, eps=1.0)
    assert [item.alive for item in arguments] == [0] * 6


@pytest.mark.parametrize("name", ["workspace", "stream", "eps"])
def test_another_argument_that_is_refused(
    norm: ModuleType, tensors: list[DeviceTensor], standin: Standin, name: str
) -> None:
    arguments = [*map(Producer, tensors[:3]), *tensors[3:]]
    wrong = object()
    named = {"eps": 1.0, name: wrong}

    def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(OperandError, match=f"^{name}: "):
                norm.run(*arguments, **named)

    fail(20)
    state = State(standin, [*tensors, *arguments, wrong])
    fail(200)
    state.check()


def test_outputs_that_were_allocated_for_a_call_that_fails(
    norm: ModuleType, tensors: list[DeviceTensor], standin: Standin
) -> None:
    inputs = [*tensors[:2], Producer(tensors[2])]
    overlapping = of_another_shape(tensors[3])  # refused when the others have been made

    def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(OperandError, match=r"^inv_variance: "):
                norm.run(*inputs, inv_variance=overlapping, eps=1.0)

    fail(20)
    state = State(standin, [*tensors, *inputs, overlapping])
    fail(1000)
    state.check()


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_cudnn_that_refuses(
    norm: ModuleType, tensors: list[DeviceTensor], standin: Standin
) -> None:
    inputs = [*tensors[:2], Producer(tensors[2])]

    def fail(times: int) -> None:
        for _ in range(times):
            standin.fail("cudnnBackendExecute", status=5000)
            with pytest.raises(CudnnError):
                norm.run(*inputs, eps=1.0)

    norm.run(*inputs, eps=1.0)
    fail(20)
    state = State(standin, [*tensors, *inputs])
    fail(1000)
    state.check()
    norm.run(*inputs, eps=1.0)
    state.check()
