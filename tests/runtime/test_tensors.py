"""`run` with right arguments: what it takes, what it launches, what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support import device_tensors, tensor_cases  # noqa: E402
from support.cases import CASES, COUNT, EMPTY, POISON, Case  # noqa: E402
from support.device_tensors import DATA_TYPES, DeviceTensor, make_tensor, on_device, strided  # noqa: E402
from support.producers import Array, OldProducer, Producer  # noqa: E402
from support.standin import Standin  # noqa: E402

from cudnn_bindgen.codegen.bind.binding import bind  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402

Load = Callable[[str], ModuleType]

ALL = CASES | tensor_cases.CASES
# Not by way of torch: operands of no more than a few bytes, or plans that read elsewhere.
WHOLE = ["thd", "norm", "kinds", "in_place"]


@pytest.fixture(autouse=True)
def default_stream() -> Iterator[None]:
    device_tensors.set_stream(0)
    device_tensors.set_device(0)
    yield
    device_tensors.set_stream(0)
    device_tensors.set_device(0)


class Tensors:
    """A case's operands as tensors, and what a call must leave in the outputs."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.case = case
        self.by_name = {
            operand.name: make_tensor(_stored(operand), seed + operand.slot)
            for operand in case.operands
        }
        self.outputs = [operand.name for operand in case.operands if operand.role == "output"]
        self.scalars = {scalar.argument: 1.5 for scalar in case.binding.scalars}
        for tensor in self.by_name.values():
            # Small numbers, so that the stand-in's sums say something.
            doubles(tensor)[:] = torch.randn(COUNT, dtype=torch.float64)
        self.poison()

    @property
    def inputs(self) -> list[DeviceTensor]:
        return [item for name, item in self.by_name.items() if name not in self.outputs]

    @property
    def all(self) -> list[DeviceTensor]:
        return list(self.by_name.values())

    def poison(self) -> None:
        for name in self.outputs:
            doubles(self.by_name[name])[:] = POISON

    def expected(self) -> dict[str, list[float]]:
        """What one call leaves in each output."""
        values: dict[int, Any] = {
            operand.uid: doubles(self.by_name[operand.name]).tolist()
            for operand in self.case.operands
        }
        for scalar in self.case.binding.scalars:
            values[scalar.uid] = self.scalars[scalar.argument]
        names = {operand.uid: operand.name for operand in self.case.operands}
        return {names[uid]: result for uid, result in self.case.expected(values).items()}

    def check(self, expected: dict[str, list[float]]) -> None:
        for name in self.outputs:
            assert doubles(self.by_name[name]).tolist() == expected[name], name


def _stored(operand: Any) -> Any:
    """The operand as torch holds it, several elements in one where there is no type for one."""
    import dataclasses

    pack = {"FP4_E2M1": 2, "BOOLEAN": 8}.get(operand.data_type, 1)
    dim = (*operand.dim[:-1], operand.dim[-1] // pack)
    stride = (*(step // pack for step in operand.stride[:-1]), operand.stride[-1])
    return dataclasses.replace(operand, dim=dim, stride=stride)


def doubles(tensor: torch.Tensor) -> torch.Tensor:
    """The COUNT doubles that the stand-in sees at a tensor's address."""
    plain = tensor.as_subclass(torch.Tensor)
    storage = plain.untyped_storage()
    start = plain.storage_offset() * plain.itemsize
    whole = torch.empty(0, dtype=torch.uint8).set_(storage)
    return whole[start : start + 8 * COUNT].view(torch.float64)


def load_any(load: Load, load_case: Load, name: str) -> ModuleType:
    return load_case(name) if name in CASES else load(name)


@pytest.mark.parametrize("name", WHOLE)
def test_tensors_launch_what_their_addresses_do(
    load: Load, load_case: Load, policy: str, name: str
) -> None:
    module = load_any(load, load_case, name)
    for seed in range(5):
        tensors = Tensors(ALL[name], 100 * seed)
        expected = tensors.expected()
        returned = module.run(*tensors.all, **tensors.scalars)
        tensors.check(expected)
        whole = returned if len(tensors.outputs) > 1 else (returned,)
        assert [*map(id, whole)] == [id(tensors.by_name[output]) for output in tensors.outputs]
        tensors.poison()
        module.run(**tensors.by_name, **tensors.scalars)
        tensors.check(expected)
        assert module.launch_path() == policy


@pytest.mark.parametrize("name", WHOLE)
def test_outputs_that_are_left_out_are_made(load: Load, load_case: Load, name: str) -> None:
    module = load_any(load, load_case, name)
    tensors = Tensors(ALL[name])
    expected = tensors.expected()
    returned = module.run(*tensors.inputs, **tensors.scalars)
    whole = returned if len(tensors.outputs) > 1 else (returned,)
    for output, made in zip(tensors.outputs, whole, strict=True):
        like = tensors.by_name[output]
        assert type(made) is DeviceTensor
        assert (made.dtype, made.shape, made.stride()) == (like.dtype, like.shape, like.stride())
        assert doubles(made).tolist() == expected[output]


def test_one_output_may_be_given_and_another_made(load_case: Load) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    expected = tensors.expected()
    o, stats = module.run(*tensors.inputs, stats=tensors.by_name["stats"])
    assert stats is tensors.by_name["stats"]
    assert doubles(o).tolist() == expected["o"]
    tensors.check({"o": [POISON] * COUNT, "stats": expected["stats"]})


def test_addresses_pass_for_tensors(load_case: Load) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    expected = tensors.expected()
    addresses = [tensor.data_ptr() for tensor in tensors.all]
    assert module.run(*addresses) == tuple(addresses[-2:])
    tensors.check(expected)
    tensors.poison()
    module.run(tensors.by_name["q"], *addresses[1:])
    tensors.check(expected)


class Address:
    """An object that tells its address alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()


class Index:
    """A number that is no int, as NumPy's are."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __index__(self) -> int:
        return self.tensor.data_ptr()


@pytest.mark.parametrize("kind", [Producer, OldProducer, Array, Address, Index])
def test_other_ways_to_hold_memory(load_case: Load, kind: type) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    expected = tensors.expected()
    wrapped = [kind(tensor.as_subclass(torch.Tensor)) for tensor in tensors.all]
    assert module.run(*wrapped) == tuple(wrapped[-2:])
    tensors.check(expected)


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_a_type_without_a_function_that_borrows(
    load_case: Load, standin: Standin, policy: str
) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    expected = tensors.expected()
    stream = standin.stream()
    device_tensors.set_stream(stream)
    device_tensors.set_direct(False)
    try:
        module.run(*tensors.all)
    finally:
        device_tensors.set_direct(True)
    tensors.check(expected)
    assert standin.log("cudnnSetStream")[-1].split()[-1] == hex(stream)
    standin.destroy_stream(stream)


def test_row_major_tensors_may_have_no_strides(load: Load) -> None:
    module, tensors = load("in_place"), Tensors(tensor_cases.IN_PLACE)
    expected = tensors.expected()
    device_tensors.set_strides(False)
    try:
        module.run(*tensors.all)
        tensors.poison()
        with pytest.raises(
            ValueError, match=r"^row: expected dims \[1, 16\] with strides \[16, 1\]"
        ):
            module.run(**tensors.by_name | {"row": tensors.by_name["x"]})
    finally:
        device_tensors.set_strides(True)
    module.run(*tensors.all)
    tensors.check(expected)


class Stranger(torch.Tensor):
    """A framework that has the exchange API, but no strided allocation."""

    new_empty_strided = property()  # type: ignore[assignment]


def test_outputs_are_made_by_the_exchange_api_of_other_frameworks(load: Load) -> None:
    module, tensors = load("in_place"), Tensors(tensor_cases.IN_PLACE)
    expected = tensors.expected()
    device_tensors.adopt(Stranger)
    inputs = [item.as_subclass(Stranger) for item in tensors.inputs]
    assert not hasattr(inputs[0], "new_empty_strided")
    made = module.run(*inputs)
    assert (made.dtype, made.shape) == (torch.float32, (16, 16))
    assert doubles(made).tolist() == expected["result"]


@pytest.mark.parametrize("policy", ["direct"], indirect=True)
def test_the_stream_of_the_framework_and_of_the_caller(
    load_case: Load, standin: Standin, policy: str
) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    streams = [standin.stream() for _ in range(4)]

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, streams[1]

    class OldProtocol:
        __cuda_stream__ = (0, streams[1])

    class Torch:
        cuda_stream = streams[2]

    class CuPy:
        ptr = streams[3]

    device_tensors.set_stream(streams[0])
    for given, expected in [
        (None, 0),
        (Protocol(), 1),
        (None, 0),
        (OldProtocol(), 1),
        (Torch(), 2),
        (CuPy(), 3),
        (streams[1], 1),
    ]:
        module.run(*tensors.all, stream=given)
        assert standin.log("cudnnSetStream")[-1].split()[-1] == hex(streams[expected])
    for stream in streams:
        standin.destroy_stream(stream)


@pytest.mark.parametrize("where", ["given", "address", "own"])
def test_workspace(load: Load, where: str) -> None:
    module, tensors = load("kinds"), Tensors(tensor_cases.KINDS)
    expected = tensors.expected()
    size = module.workspace_size()
    assert size > 0
    memory = strided((size,), (1,), torch.uint8)
    workspace = {"given": memory, "address": memory.data_ptr(), "own": None}[where]
    module.run(*tensors.all, workspace=workspace)
    tensors.check(expected)


def test_memory_that_is_larger_than_needed_is_workspace(load: Load) -> None:
    module, tensors = load("kinds"), Tensors(tensor_cases.KINDS)
    expected = tensors.expected()
    workspace = strided((module.workspace_size(), 2), (2, 1), torch.float32)
    module.run(*tensors.all, workspace=workspace)
    tensors.check(expected)


def test_scalars_are_numbers_or_host_tensors_of_one_element(load_case: Load) -> None:
    numpy = pytest.importorskip("numpy")
    module, tensors = load_case("norm"), Tensors(CASES["norm"])
    expected = tensors.expected()
    for value in (
        1.5,
        numpy.float32(1.5),
        numpy.array(1.5),
        torch.tensor([1.5]),
        torch.tensor(1.5),
    ):
        tensors.poison()
        module.run(*tensors.all, eps=value)
        tensors.check(expected)


def test_an_empty_graph_needs_no_gpu(load: Load, standin: Standin) -> None:
    module = load("empty")
    operands = bind(read_graph(EMPTY)).operands
    tensors = [on_device(torch.empty(o.dim, dtype=DATA_TYPES[o.data_type])) for o in operands]
    standin.fail("cuCtxGetCurrent", status=3)
    assert module.run(*tensors) is tensors[-1]
    made = module.run(*(t for t, o in zip(tensors, operands, strict=True) if o.role == "input"))
    assert tuple(made.shape) == operands[-1].dim


def test_checks_can_be_turned_off(load_case: Load) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    expected = tensors.expected()
    q, *others = tensors.all
    wrong = q.view(torch.float16)
    module.run(wrong, *others, check=False)
    tensors.check(expected)
    module.set_checks(False)
    module.run(wrong, *others)
    module.set_checks(True)
    with pytest.raises(ValueError, match=r"^q: expected BFLOAT16 \(bfloat16\), got float16$"):
        module.run(wrong, *others)


def test_overridden_shapes_are_what_counts(product: ModuleType) -> None:
    def tensors(rows: int) -> list[DeviceTensor]:
        shapes = [(1, rows, 4), (1, 4, 8), (1, rows, 8), (rows, 2)]
        made = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
        made = [strided(t.shape, t.stride(), torch.float64) for t in made]
        for item in made:
            item.as_subclass(torch.Tensor).copy_(torch.ones(item.shape))
        return made

    overrides = product.Overrides()
    overrides.set(M=5)
    product.run(*tensors(12), alpha=0.5)
    product.run(*tensors(5), alpha=0.5, overrides=overrides)
    with pytest.raises(ValueError, match=r"^a: expected dims \[1, 5, 4\] with strides"):
        product.run(*tensors(12), alpha=0.5, overrides=overrides)
    with pytest.raises(ValueError, match=r"^a: expected dims \[1, 12, 4\] with strides"):
        product.run(*tensors(5), alpha=0.5)
    c, d = product.run(*tensors(5)[:2], alpha=0.5, overrides=overrides)
    assert (c.shape, d.shape) == ((1, 5, 8), (5, 2))
