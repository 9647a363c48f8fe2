"""`run` with wrong tensors: the operand, what was expected, what came; nothing reaches cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support import device_tensors, tensor_cases  # noqa: E402
from support.cases import CASES, Case  # noqa: E402
from support.device_tensors import DeviceTensor, on_device, strided  # noqa: E402
from support.producers import Array, Producer  # noqa: E402
from support.standin import Standin  # noqa: E402

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError  # noqa: E402
from runtime.test_tensors import Tensors  # noqa: E402

Load = Callable[[str], ModuleType]
Wrong = Callable[[DeviceTensor], Any]


@pytest.fixture
def served() -> str:
    return "loaded"  # in_place and kinds are modules


@pytest.fixture(autouse=True)
def device_zero() -> Iterator[None]:
    yield
    device_tensors.set_device(0)


class Refusing:
    """A module, right tensors for it, and a look at what reaches the libraries."""

    def __init__(self, module: ModuleType, case: Case, standin: Standin) -> None:
        self.module, self.standin = module, standin
        self.tensors = Tensors(case)
        self.expected = self.tensors.expected()
        self.call()

    def call(self) -> None:
        """Make a right call, with the right result."""
        self.tensors.poison()
        self.module.run(**self.tensors.by_name, **self.tensors.scalars)
        self.tensors.check(self.expected)

    def refuse(self, name: str, wrong: Any, **named: Any) -> OperandError:
        """Make a call with one wrong operand; then the right one works."""
        before = self.standin.log()
        arguments = self.tensors.by_name | self.tensors.scalars | {name: wrong} | named
        with pytest.raises(OperandError) as caught:
            self.module.run(**arguments)
        assert self.standin.log() == before
        self.call()
        return caught.value


@pytest.fixture
def refusing(load: Load, load_case: Load, standin: Standin) -> Callable[[str], Refusing]:
    def refusing(name: str) -> Refusing:
        if name in CASES:
            return Refusing(load_case(name), CASES[name], standin)
        return Refusing(load(name), tensor_cases.CASES[name], standin)

    return refusing


def shifted(tensor: DeviceTensor, count: int) -> DeviceTensor:
    """The same dims and strides, so many elements on."""
    start = tensor.storage_offset() + count
    return tensor.as_strided(tensor.shape, tensor.stride(), start)


ANY: dict[str, tuple[Wrong, str]] = {
    "host": (lambda t: t.as_subclass(torch.Tensor), "memory of a CUDA device, got host memory"),
    "meta": (
        lambda t: on_device(torch.empty(t.shape, device="meta")),
        "Cannot pack tensors on meta",
    ),
    "sparse": (lambda t: torch.eye(3).to_sparse(), "a tensor with device memory"),
    "none": (lambda t: None, "a tensor, or a device address as int, got None"),
    "text": (lambda t: "q", "a tensor, or a device address as int, got 'q'"),
    "number": (lambda t: 1.5, "a tensor, or a device address as int, got 1.5"),
    "flag": (lambda t: True, "a tensor, or a device address as int, got True"),
    "list": (lambda t: [1], "a tensor, or a device address as int, got an object of type list"),
    "negative": (lambda t: -1, "an address from 0 to 2**64 - 1, got -1"),
    "null": (lambda t: 0, "got address 0"),
    "complex": (lambda t: on_device(torch.zeros(4, dtype=torch.complex64)), "got complex64"),
    "wide": (lambda t: on_device(torch.zeros(t.shape, dtype=torch.float64)), "got float64"),
    "odd address": (lambda t: t.data_ptr() + 1, "a multiple of"),
    "too long": (
        lambda t: strided((*t.shape, 3), (*(3 * s for s in t.stride()), 1), t.dtype),
        "dims",
    ),
}


@pytest.mark.parametrize("kind", ANY)
@pytest.mark.parametrize("name", ["thd", "norm", "kinds", "in_place"])
def test_each_operand_is_checked(refusing: Callable[[str], Refusing], name: str, kind: str) -> None:
    call = refusing(name)
    make, message = ANY[kind]
    for operand, tensor in call.tensors.by_name.items():
        if kind == "none" and operand in call.tensors.outputs:
            continue  # it is made
        if operand == "swizzled" and kind == "too long":
            continue  # more than declared is allowed
        error = call.refuse(operand, make(tensor))
        assert error.argument == operand
        assert message in str(error)
        assert str(error).startswith(f"{operand}: expected ")


LAYOUTS: dict[str, tuple[str, str, Wrong, str]] = {
    "transposed square": (
        "kinds",
        "square",
        lambda t: t.mT,
        "dims [1, 16, 16] with strides [256, 16, 1], got dims [1, 16, 16] with strides "
        "[256, 1, 16], the same extents in another order of memory; try square.mT",
    ),
    "row-major image": (
        "kinds",
        "image",
        lambda t: strided(t.shape, (128, 16, 4, 1), t.dtype),
        "try image.contiguous(memory_format=torch.channels_last)",
    ),
    "rows without their padding": (
        "kinds",
        "rows",
        lambda t: strided((32, 8), (8, 1), t.dtype),
        "dims [32, 8, 1, 1] with strides [24, 1, 1, 1], got dims [32, 8] with strides [8, 1]",
    ),
    "broadcast made real": (
        "kinds",
        "broadcast",
        lambda t: strided((4, 16, 16), (256, 16, 1), t.dtype),
        "strides [0, 16, 1]",
    ),
    "half of the packed elements": (
        "kinds",
        "fp4",
        lambda t: t[:, :16],
        ", 2 elements in each of the tensor's, got dims [16, 16]",
    ),
    "bytes that are no bits": (
        "kinds",
        "mask",
        lambda t: strided((16, 512), (512, 1), t.dtype),
        "8 elements in each of the tensor's",
    ),
    "too few swizzled elements": (
        "kinds",
        "swizzled",
        lambda t: t[:, :64],
        "dims [1, 128, 4] (dense, this many elements or more), got dims [1, 64, 4]",
    ),
    "swizzled with gaps": (
        "kinds",
        "swizzled",
        lambda t: strided((1, 128, 4), (1024, 8, 1), t.dtype),
        "dense",
    ),
    "other heads": (
        "thd",
        "q",
        lambda t: strided((200, 4, 128), (512, 128, 1), t.dtype),
        "dims [*, 8, *, 128] with strides [*, 128, 1024, 1] (any number of tokens)",
    ),
    "tokens apart": (
        "thd",
        "o",
        lambda t: strided((20, 8, 128), (2048, 128, 1), t.dtype),
        "any number of tokens",
    ),
    "one offset less": ("thd", "q_ragged_offset", lambda t: t[:-1], "dims [65, 1, 1, 1]"),
}


@pytest.mark.parametrize("which", LAYOUTS)
def test_layouts(refusing: Callable[[str], Refusing], which: str) -> None:
    name, operand, make, message = LAYOUTS[which]
    call = refusing(name)
    error = call.refuse(operand, make(call.tensors.by_name[operand]))
    assert error.argument == operand
    assert message in str(error)


TAKEN: dict[str, tuple[str, str, Wrong]] = {
    "without its axis of extent 1": ("kinds", "square", lambda t: t[0]),
    "an axis of extent 1 with another stride": (
        "kinds",
        "square",
        lambda t: t.as_strided((1, 16, 16), (7, 16, 1), t.storage_offset()),
    ),
    "the image as rows of pixels": ("kinds", "image", lambda t: t.permute(0, 2, 3, 1)),
    "an axis that is split": ("kinds", "rows", lambda t: t[:, :, 0, 0].unflatten(0, (4, 8))),
    "raw bytes for fp8": ("kinds", "fp8", lambda t: t.view(torch.uint8)),
    "raw bytes for fp4": ("kinds", "fp4", lambda t: t.view(torch.uint8)),
    "swizzled, flat and longer": (
        "kinds",
        "swizzled",
        lambda t: strided((1024,), (1,), t.dtype),
    ),
    "tokens": ("thd", "q", lambda t: strided((200, 8, 128), (1024, 128, 1), t.dtype)),
    "tokens with joined heads": ("thd", "q", lambda t: strided((200, 1024), (1024, 1), t.dtype)),
    "one token": ("thd", "q", lambda t: strided((8, 128), (128, 1), t.dtype)),
    "lengths as a vector": ("thd", "seq_len_q", lambda t: t.flatten()),
    "requires a gradient": ("norm", "x", lambda t: t.clone().requires_grad_()),
}


@pytest.mark.parametrize("which", TAKEN)
def test_other_views_of_the_same_memory_are_taken(load: Load, load_case: Load, which: str) -> None:
    name, operand, make = TAKEN[which]
    module = load_case(name) if name in CASES else load(name)
    tensors = Tensors(CASES[name] if name in CASES else tensor_cases.CASES[name])
    view = make(tensors.by_name[operand])
    tensors.by_name[operand] = view
    expected = tensors.expected()
    module.run(**tensors.by_name, **tensors.scalars)
    tensors.check(expected)


def test_another_device(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("thd")
    device_tensors.set_device(1)
    with pytest.raises(OperandError) as caught:
        call.module.run(**call.tensors.by_name)
    device_tensors.set_device(0)
    call.call()
    assert str(caught.value) == (
        "q: expected memory of CUDA device 0, which is current, got memory of device 1: "
        "make that one current, or move the tensor"
    )


def test_two_devices_in_a_call(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("thd")
    elsewhere = Producer(call.tensors.by_name["k"].as_subclass(torch.Tensor))
    elsewhere.exported.tensor.device_id = 1
    error = call.refuse("k", elsewhere)
    assert str(error) == "k: expected memory of CUDA device 0, as q is, got memory of device 1"


def test_outputs_that_must_not_be_written(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("thd")
    plain = call.tensors.by_name["o"].as_subclass(torch.Tensor)
    read_only = Producer(plain)
    read_only.exported.flags = 1
    assert "memory that can be written" in str(call.refuse("o", read_only))
    array = Array(plain)
    array.__cuda_array_interface__ |= {"data": (plain.data_ptr(), True)}
    assert "memory that can be written" in str(call.refuse("o", array))
    call.module.run(**call.tensors.by_name | {"q": _read_only_input(call)})


def _read_only_input(call: Refusing) -> Producer:
    producer = Producer(call.tensors.by_name["q"].as_subclass(torch.Tensor))
    producer.exported.flags = 1
    return producer


# Memory that two operands share


def test_an_output_that_is_an_input(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("thd")
    error = call.refuse("o", call.tensors.by_name["q"])
    assert (
        str(error) == "o: expected memory that no other operand uses, got memory that q uses, too"
    )


def test_an_output_that_begins_within_another(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("in_place")
    whole = strided((24, 16), (16, 1), torch.float32)
    for first, second in ((whole[:16], whole[8:]), (whole[8:], whole[:16])):
        error = call.refuse("result", first, x=second)
        assert str(error) == (
            "result: expected memory that no other operand uses but an operand that it may replace "
            "element by element, got memory that x uses, too"
        )


def test_an_output_that_broadcasts_from_itself(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("in_place")
    out = call.tensors.by_name["result"]
    assert call.refuse("row", out[:1]).argument == "result"


def test_what_the_graph_may_replace(load: Load) -> None:
    module = load("in_place")
    for name in ("x", "y"):
        tensors = Tensors(tensor_cases.IN_PLACE)
        expected = tensors.expected()
        tensors.by_name["result"] = tensors.by_name[name]
        assert module.run(**tensors.by_name) is tensors.by_name[name]
        tensors.check(expected)


def test_interleaved_operands_share_nothing(load: Load) -> None:
    module = load("in_place")
    tensors = Tensors(tensor_cases.IN_PLACE)
    columns = strided((16, 2, 4, 4), (32, 16, 4, 1), torch.float32)
    # Rows of x and of the result in turn: neither is dense, so the layouts are refused, not this.
    with pytest.raises(OperandError, match=r"^x: expected dims"):
        module.run(**tensors.by_name | {"x": columns[:, 0], "result": columns[:, 1]})


# Workspace, stream, and what is no call of run


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        (
            lambda size: strided((size - 1,), (1,), torch.uint8),
            "at least 4096 bytes, got 4095 bytes",
        ),
        (lambda size: strided((0,), (1,), torch.uint8), "at least 4096 bytes, got 0 bytes"),
        (lambda size: strided((size, 2), (4, 1), torch.uint8), "a contiguous tensor, got one with"),
        (lambda size: strided((size,), (0,), torch.uint8), "a contiguous tensor, got one with"),
        (lambda size: strided((size + 8,), (1,), torch.uint8)[8:], "a multiple of 128, got 0x"),
        (lambda size: strided((size,), (1,), torch.uint8).data_ptr() + 8, "a multiple of 128"),
        (lambda size: torch.zeros(size, dtype=torch.uint8), "memory of a CUDA device, got host"),
        (lambda size: "workspace", "a tensor, or a device address as int"),
    ],
)
def test_workspace(
    refusing: Callable[[str], Refusing], workspace: Callable[[int], Any], message: str
) -> None:
    call = refusing("kinds")
    error = call.refuse("workspace", workspace(call.module.workspace_size()))
    assert error.argument == "workspace"
    assert message in str(error)


@pytest.mark.parametrize("slot", range(12))
def test_workspace_that_is_an_operand(refusing: Callable[[str], Refusing], slot: int) -> None:
    """Inputs, too: the plan overwrites them."""
    call = refusing("thd")
    size = call.module.workspace_size()
    name, tensor = list(call.tensors.by_name.items())[slot]
    reach = sum((dim - 1) * step for dim, step in zip(tensor.shape, tensor.stride(), strict=True))
    end = 2 * size + (reach + 1) * tensor.element_size()
    arena = strided((end + size,), (1,), torch.uint8)
    usable = arena[2 * size : end].view(tensor.dtype)
    moved = on_device(usable.as_strided(tensor.shape, tensor.stride(), usable.storage_offset()))
    assert moved.data_ptr() == arena.data_ptr() + 2 * size
    for first in (2 * size, 2 * size - 128, (end - 1) // 128 * 128):
        block = arena[first : first + size]
        error = call.refuse("workspace", block, **{name: moved})
        assert str(error) == (
            f"workspace: expected memory that no operand uses, got memory that {name} uses, too"
        )
    beside = {"workspace": arena[size : 2 * size], name: moved}
    call.module.run(**call.tensors.by_name | call.tensors.scalars | beside)
    shared = {"workspace": arena[2 * size : 3 * size], name: moved}
    call.module.run(**call.tensors.by_name | call.tensors.scalars | shared, check=False)
    shared["workspace"] = arena.data_ptr() + 2 * size
    call.module.run(**call.tensors.by_name | call.tensors.scalars | shared)


@pytest.mark.parametrize("stream", ["0", -1, 1.5, True, object(), [0]])
def test_streams(refusing: Callable[[str], Refusing], stream: Any) -> None:
    assert refusing("thd").refuse("stream", stream).argument == "stream"


def test_a_stream_protocol_of_the_future(refusing: Callable[[str], Refusing]) -> None:
    class Newer:
        __cuda_stream__ = (1, 0)

    assert "version 0 of __cuda_stream__, got 1" in str(refusing("thd").refuse("stream", Newer()))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(2), "a host tensor of one element"),
        (torch.zeros(1, device="meta"), "a host tensor of one element"),
        ("1.5", "a number"),
        (None, "a number"),
    ],
)
def test_scalars(refusing: Callable[[str], Refusing], value: Any, message: str) -> None:
    error = refusing("norm").refuse("eps", value)
    assert isinstance(error, OperandTypeError)
    assert error.argument == "eps"
    assert message in str(error)


def test_a_scalar_in_device_memory(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("norm")
    value = Producer(torch.ones(1))
    assert "in device memory" in str(call.refuse("eps", value))


def test_outputs_cannot_be_made_from_addresses_alone(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("thd")
    addresses = {name: tensor.data_ptr() for name, tensor in call.tensors.by_name.items()}
    before = call.standin.log()
    with pytest.raises(OperandError) as caught:
        call.module.run(**addresses | {"o": None})
    assert str(caught.value) == (
        "o: expected a tensor, where no input is one to take the framework of, got None"
    )
    assert call.standin.log() == before


def test_an_array_on_another_stream(refusing: Callable[[str], Refusing]) -> None:
    call = refusing("thd")
    array = Array(call.tensors.by_name["k"].as_subclass(torch.Tensor))
    array.__cuda_array_interface__ |= {"stream": 2}
    error = call.refuse("k", array)
    assert "stream 1, that of the call, got one on stream 2" in str(error)
    array.__cuda_array_interface__ |= {"stream": 1}
    call.module.run(**call.tensors.by_name | {"k": array})


@pytest.mark.parametrize(
    "broken",
    [
        {"typestr": ">f4"},
        {"typestr": "<M8"},
        {"typestr": "f"},
        {"shape": "no"},
        {"shape": (2**70,)},
        {"strides": (1,)},
        {"strides": (3, 1, 1, 1)},
        {"data": 5},
        {"shape": (1,) * 65, "strides": None},
    ],
)
def test_broken_array_interfaces(refusing: Callable[[str], Refusing], broken: Any) -> None:
    call = refusing("thd")
    array = Array(call.tensors.by_name["k"].as_subclass(torch.Tensor))
    array.__cuda_array_interface__ |= broken
    assert call.refuse("k", array).argument == "k"


def test_a_producer_that_fails(refusing: Callable[[str], Refusing]) -> None:
    class Failing:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not today")

    error = refusing("thd").refuse("v", Failing())
    assert str(error) == (
        "v: expected a tensor that can be shared, got an object of type Failing: not today"
    )
