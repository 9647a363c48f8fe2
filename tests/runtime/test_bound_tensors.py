"""Bound calls with tensors: what is checked when, what is made, what is held."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support import device_tensors  # noqa: E402
from support.cases import CASES  # noqa: E402
from support.device_tensors import DeviceTensor, HostTensor, on_device  # noqa: E402
from support.families import case_of  # noqa: E402
from support.producers import Array, Producer  # noqa: E402
from support.standin import Standin  # noqa: E402

from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402
from runtime.test_tensors import ALL, WHOLE, Tensors, default_stream, load_any  # noqa: E402

Load = Callable[[str], ModuleType]

__all__ = ["default_stream"]  # a fixture
in_place = pytest.fixture(name="in_place")(lambda load: load("in_place"))


@pytest.fixture
def served() -> str:
    return "module"


@pytest.fixture
def tensors() -> Tensors:
    return Tensors(ALL["in_place"])


@pytest.mark.parametrize("name", WHOLE)
def test_tensors_launch_what_run_does(load: Load, load_case: Load, name: str) -> None:
    module, tensors = load_any(load, load_case, name), Tensors(ALL[name])
    call = module.bind(**tensors.by_name, **tensors.scalars)
    for seed in range(4):
        other = Tensors(ALL[name], seed)
        expected = other.expected()
        for operand, tensor in other.by_name.items():
            setattr(call, operand, tensor)
        returned = call()
        other.check(expected)
        whole = returned if len(other.outputs) > 1 else (returned,)
        assert [*map(id, whole)] == [id(other.by_name[output]) for output in other.outputs]
        assert call() is returned, "no tuple is made again"


def test_outputs_are_made_once(in_place: Any, tensors: Tensors) -> None:
    call = in_place.bind(*tensors.inputs)
    made = call()
    assert type(made) is DeviceTensor
    assert call() is made is call.result
    tensors.by_name["result"] = made
    tensors.check(tensors.expected())
    call.result = None
    assert call() is call.result is not made


def test_layout_type_and_place_are_checked_when_set(in_place: Any, tensors: Tensors) -> None:
    call = in_place.bind(**tensors.by_name)
    expected = tensors.expected()
    x = tensors.by_name["x"]
    for wrong, said in (
        (x.double(), "FLOAT"),
        (x.t(), "16"),
        (x[:8], "16"),
        (x.as_subclass(HostTensor), "CUDA"),
    ):
        with pytest.raises(OperandError, match=f"^x: .*{said}"):
            call.x = wrong
        assert call.x is x
        tensors.poison()
        call()
        tensors.check(expected)


def test_overlaps_are_checked_by_the_next_call(in_place: Any, tensors: Tensors) -> None:
    call = in_place.bind(**tensors.by_name)
    row, result = tensors.by_name["row"], tensors.by_name["result"]
    call.row = result[:1]
    for _ in range(2):
        with pytest.raises(OperandError, match=r"^result: .*row"):
            call()
    call.row = row
    call()
    # Two operands are exchanged in two steps, the first of which alone would overlap.
    call.row, call.y = row, result
    call.result = tensors.by_name["y"]
    call()


def test_devices_are_compared_by_the_next_call(in_place: Any, tensors: Tensors) -> None:
    call = in_place.bind(**tensors.by_name)
    device_tensors.set_device(1)
    with pytest.raises(OperandError, match="device"):
        in_place.bind(**tensors.by_name)()
    device_tensors.set_device(0)
    call()


@pytest.mark.parametrize("how", ["call", "module"])
def test_checks_can_be_off(in_place: Any, tensors: Tensors, how: str) -> None:
    if how == "module":
        in_place.set_checks(False)
    call = in_place.bind(**tensors.by_name, check=how == "module")
    call.x = tensors.by_name["x"].t()
    call()
    with pytest.raises(OperandError, match=r"^x: .*uid"):
        call.x = 0


@pytest.mark.parametrize("policy", ["direct"], indirect=True)  # reads the log of executions
def test_the_stream_is_the_frameworks_at_each_call(
    in_place: Any, tensors: Tensors, standin: Standin
) -> None:
    call = in_place.bind(**tensors.by_name)
    fixed = in_place.bind(**tensors.by_name, stream=2)
    for stream in (0, 1, 0):
        device_tensors.set_stream(stream)
        call()
        fixed()
        call(stream=1)
    used = [int(line.split()[4], 16) for line in standin.log("cudnnBackendExecute")]
    assert used == [0, 2, 1, 1, 2, 1, 0, 2, 1]


@pytest.mark.parametrize("kind", [Producer, Array])
def test_other_protocols(in_place: Any, tensors: Tensors, kind: Any) -> None:
    expected = tensors.expected()
    call = in_place.bind(**{name: kind(tensor) for name, tensor in tensors.by_name.items()})
    gc.collect()
    call()
    tensors.check(expected)


def test_what_is_bound_is_held_and_let_go(in_place: Any, tensors: Tensors) -> None:
    call = in_place.bind(**tensors.by_name)
    old = tensors.by_name["x"]
    gone = weakref.ref(old)
    new = tensors.by_name["x"] = on_device(old.clone())
    del old
    assert gone() is not None
    call.x = new
    assert gone() is None
    expected = tensors.expected()
    new.as_strided_((4,), (1,))  # it was read when it was set
    call()
    assert call.x is new
    tensors.check(expected)


def test_a_workspace_that_is_a_tensor(load_case: Load) -> None:
    module, tensors = load_case("thd"), Tensors(CASES["thd"])
    size = module.workspace_size()
    memory = on_device(torch.empty(size + 128, dtype=torch.uint8))
    memory = memory[-memory.data_ptr() % 128 :]
    call = module.bind(**tensors.by_name, workspace=memory[:size])
    expected = tensors.expected()
    call()
    tensors.check(expected)
    call.workspace = memory[: size - 1]
    with pytest.raises(OperandError, match=f"workspace: expected at least {size} bytes"):
        call()
    call.workspace = None
    call()


def test_tensors_choose_the_member_of_a_family(load: Load) -> None:
    rows = load("rows")
    cases = [case_of("rows", m) for m in (16, 32)]
    every = [Tensors(case) for case in cases]
    calls = [rows.bind(*tensors.inputs, **tensors.scalars) for tensors in every]
    for call, tensors in zip(calls, every, strict=True):
        expected = tensors.expected()
        [output] = tensors.outputs
        tensors.by_name[output] = call()
        tensors.check(expected)
    with pytest.raises(OperandError):
        setattr(calls[0], next(iter(every[0].by_name)), every[1].inputs[0])


def test_what_is_let_go_may_set_operands(in_place: Any, tensors: Tensors) -> None:
    """A finalizer runs in the middle of setting, and of the call that drops the old outputs."""
    call = in_place.bind(**tensors.by_name)
    homes = dict(tensors.by_name)
    gone = []

    class Watched(DeviceTensor):
        def __del__(self) -> None:
            call.y = homes["y"]
            gone.append(call())

    device_tensors.adopt(Watched)
    call.x = homes["x"].clone().as_subclass(Watched)
    call.x = homes["x"]
    call.result = homes["result"].clone().as_subclass(Watched)
    call.result = homes["result"]
    device_tensors.adopt(DeviceTensor)
    call()
    assert len(gone) == 2
    expected = tensors.expected()
    assert call() is homes["result"]
    tensors.check(expected)
