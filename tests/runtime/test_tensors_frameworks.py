"""`run` with frameworks that are not installed here: what of their interfaces it uses, imitated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support import tensor_cases  # noqa: E402
from support.cases import CASES  # noqa: E402
from support.device_tensors import DeviceTensor, on_device, strided  # noqa: E402
from support.producers import Producer  # noqa: E402
from support.standin import Standin  # noqa: E402

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError  # noqa: E402
from cudnn_bindgen.runtime.lifetimes import record_stream  # noqa: E402
from runtime.test_tensors import Tensors, doubles  # noqa: E402

Load = Callable[[str], ModuleType]


class CuPy(ModuleType):
    """The part of CuPy that `run` uses: dtype, memory, arrays with strides, the current stream."""

    def __init__(self, stream: int) -> None:
        super().__init__("cupy")
        self.cuda = SimpleNamespace(
            alloc=lambda size: torch.empty(max(size, 128), dtype=torch.uint8),
            get_current_stream=lambda: SimpleNamespace(ptr=stream),
        )

        class Array(Producer):
            """`cupy.ndarray(shape, dtype, memptr, strides)`, strides in bytes."""

            def __init__(self, shape: Any, dtype: Any, memory: Any, strides: Any) -> None:
                steps = [step // dtype.itemsize for step in strides]
                super().__init__(memory.view(dtype.type).as_strided(tuple(shape), steps))

        Array.__module__, Array.__name__ = "cupy", "ndarray"
        self.ndarray = Array

    def dtype(self, name: str) -> Any:
        if name == "bfloat16":
            raise TypeError(f"data type {name!r} not understood")
        return SimpleNamespace(type=getattr(torch, name), itemsize=getattr(torch, name).itemsize)

    def array(self, tensor: torch.Tensor) -> Any:
        """Return an array over a tensor's memory."""
        made = self.ndarray.__new__(self.ndarray)
        Producer.__init__(made, tensor.as_subclass(torch.Tensor))
        return made


@pytest.fixture
def cupy(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> Any:
    stream = standin.stream()
    module = CuPy(stream)
    monkeypatch.setitem(sys.modules, "cupy", module)
    yield module
    standin.destroy_stream(stream)


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_cupy(load: Load, standin: Standin, cupy: Any, policy: str) -> None:
    module, tensors = load("in_place"), Tensors(tensor_cases.IN_PLACE)
    expected = tensors.expected()
    result = module.run(*(cupy.array(tensor) for tensor in tensors.inputs))
    assert type(result) is cupy.ndarray
    assert (result.tensor.shape, result.tensor.stride()) == ((16, 16), (16, 1))
    assert doubles(result.tensor).tolist() == expected["result"]
    stream = cupy.cuda.get_current_stream().ptr
    assert standin.log("cudnnSetStream")[-1].split()[-1] == hex(stream)


def test_a_type_that_cupy_lacks(load_case: Load, cupy: Any) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    arrays = [cupy.array(tensor) for tensor in tensors.inputs]
    with pytest.raises(
        OperandError, match=r"^o: expected a tensor; CuPy has no bfloat16, got None$"
    ):
        module.run(*arrays)


def test_a_framework_that_cannot_make_outputs(load: Load) -> None:
    module, tensors = load("in_place"), Tensors(tensor_cases.IN_PLACE)
    inputs = [Producer(tensor.as_subclass(torch.Tensor)) for tensor in tensors.inputs]
    message = r"^result: expected a tensor; Producer has no way to make one, got None$"
    with pytest.raises(OperandError, match=message):
        module.run(*inputs)


def test_strides_that_the_exchange_api_cannot_make(load: Load) -> None:
    module, tensors = load("strided_output"), Tensors(tensor_cases.STRIDED_OUTPUT)
    inputs = [Producer(tensor.as_subclass(torch.Tensor)) for tensor in tensors.inputs]
    with pytest.raises(OperandError, match=r"can make no strides \[1, 16\] for it, got None$"):
        module.run(*inputs)
    assert module.run(*tensors.inputs).stride() == (1, 16)


# record_stream


def test_record_stream_is_for_pytorch_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[tuple[Any, Any]] = []
    recorded: list[tuple[Any, Any]] = []

    def external(stream: Any, device: Any) -> str:
        streams.append((stream, device))
        return f"stream {stream}"

    monkeypatch.setattr(torch.cuda, "ExternalStream", external)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda self, stream: recorded.append((self, stream))
    )
    one, other = torch.zeros(1), torch.zeros(2)
    record_stream(5, one, None, 1234, other)
    record_stream(SimpleNamespace(cuda_stream=7), one)
    record_stream(5)
    assert streams == [(5, one.device), (5, other.device), (7, one.device)]
    assert [(id(tensor), stream) for tensor, stream in recorded] == [
        (id(one), "stream 5"),
        (id(other), "stream 5"),
        (id(one), "stream 7"),
    ]
    with pytest.raises(OperandTypeError, match="expected PyTorch tensors, got 'q'"):
        record_stream(5, one, "q")
    assert len(recorded) == 3


def test_the_imitations_are_tensors_of_the_standin() -> None:
    """What the tests above rely on."""
    tensor = strided((2, 3), (3, 1), torch.float32)
    assert type(tensor) is DeviceTensor
    assert on_device(torch.zeros(2)).__dlpack_device__() == (1, 0)  # PyTorch's own, on the host
