"""Plans of kernels against the stand-in, whose one kernel computes y = factor * x."""

from __future__ import annotations

import ctypes
import json
import random
import struct
from typing import Any

import msgspec
import pytest
from support.documents import DATA, document, node, packed_kernels, plan_document, tensor, to_ubjson
from support.standin import Standin

import cudnn_bindgen
from cudnn_bindgen.codegen.bind.bundle import write_bundle
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelLaunch, KernelPlan, TensorMap
from cudnn_bindgen.runtime.errors import BindingError, DriverError, PlanMismatchError

COUNT = 40
MAP, SMALL = bytes(128), struct.pack("<Qq", 0, COUNT)
CODE = b"stand-in code: scale"
X, Y = 1, 2


def tensor_map(source: int | None, offset: int = 0, **fields: Any) -> TensorMap:
    shape: dict[str, Any] = {"dims": [COUNT], "strides": [], "box": [8], "element_strides": [1]}
    modes = {"interleave": 0, "swizzle": 3, "l2_promotion": 0, "fill": 0}
    return TensorMap(
        **({"data_type": 7, "source": source, "offset": offset} | shape | modes | fields)
    )


def scale(factor: float, map_number: int, target: int | None, **fields: Any) -> KernelLaunch:
    """Write factor times what a tensor map is of."""
    whole = {
        "binary": 0,
        "kernel": "scale",
        "grid": (2, 1, 1),
        "block": (32, 1, 1),
        "shared": 1024,
        "attributes": [(4, struct.pack("<3I", 2, 1, 1))],
        "parameters": [MAP, SMALL, struct.pack("<f", factor)],
        "addresses": [(1, 0, target, 0)],
        "tensor_maps": [(0, 0, map_number)],
    }
    return KernelLaunch(**(whole | fields))


TRIPLE = KernelPlan(
    engine=20517,
    name="scale",
    knobs={},
    sm=90,
    sm_count=132,
    binaries=[CODE],
    tensor_maps=[tensor_map(X)],
    launches=[scale(3.0, 0, Y)],
    workspace_size=0,
)
# Through the workspace, from its sixteenth byte on.
TWICE = msgspec.structs.replace(
    TRIPLE,
    tensor_maps=[tensor_map(X), tensor_map(None, 16)],
    launches=[
        scale(2.0, 0, None, addresses=[(1, 0, None, 16)]),
        scale(0.5, 1, Y, attributes=[]),
    ],
    workspace_size=16 + 4 * COUNT,
)


def plan_file(plan: KernelPlan = TRIPLE, **fields: Any) -> bytes:
    """Of y = RELU(x), which no kernel here computes."""
    operands = [tensor(uid, name, dim=[COUNT], stride=[1], data_type="FLOAT") for uid, name in
                ((X, "x"), (Y, "y"))]  # fmt: skip
    relu = node("POINTWISE", {"IN_0": X}, {"OUT_0": Y}, mode="RELU_FWD")
    text = json.loads(msgspec.json.encode(plan)) | fields
    whole = plan_document(document([relu], operands), **{KEY: json.dumps(text)})
    del whole["cudnn_backend_data"]
    return to_ubjson(whole)


def test_a_module_for_packed_operands_of_any_size_takes_none() -> None:
    file = DATA / "plans" / "cudnn-9.19-sm90" / "sdpa_thd.plan"
    plan = packed_kernels(msgspec.structs.replace(TRIPLE, launches=[scale(3.0, 0, 11)]))
    module = cudnn_bindgen.load(file.read_bytes(), name="packed")
    with pytest.raises(PlanMismatchError, match="is for packed operands as large as declared, her"):
        module.load_plan(plan)
    assert cudnn_bindgen.load(plan, name="packed_too").OPERANDS == module.OPERANDS


class Operands:
    """x of random numbers, y of a number that nothing computes; each set has its own memory."""

    def __init__(self) -> None:
        self.memory = [ctypes.create_string_buffer(4 * COUNT + 32) for _ in range(2)]
        self.addresses = [(ctypes.addressof(each) + 15) // 16 * 16 for each in self.memory]
        self.fill()

    def fill(self) -> None:
        self.values = [float(random.randint(-1000, 1000)) for _ in range(COUNT)]
        self.array(0)[:] = self.values
        self.array(1)[:] = [77.5] * COUNT

    def array(self, index: int) -> Any:
        return (ctypes.c_float * COUNT).from_address(self.addresses[index])

    def check(self, factor: float) -> None:
        assert list(self.array(1)) == [factor * value for value in self.values]


@pytest.fixture
def load(standin: Standin) -> Any:
    loaded = []

    def load(plan: bytes) -> Any:
        loaded.append(cudnn_bindgen.load(plan, name="scaled"))
        return loaded[-1]

    yield load
    for module in loaded:
        module.close()


CASES = {"one": (TRIPLE, 3.0), "two through the workspace": (TWICE, 1.0)}


@pytest.mark.parametrize("policy", ["direct", "record", "auto"])
@pytest.mark.parametrize(("plan", "factor"), CASES.values(), ids=CASES)
def test_calls(
    load: Any, standin: Standin, stream: int, policy: str, plan: KernelPlan, factor: float
) -> None:
    module = load(plan_file(plan))
    module.set_launch_policy(policy)
    sets = [Operands() for _ in range(3)]
    for _ in range(8):
        for operands in sets:
            operands.fill()
            module.execute(*operands.addresses, stream=stream)
            operands.check(factor)
    stats = module.launch_stats()
    assert stats["reason"] == ""
    if policy == "direct":
        assert stats["direct"] == 24
    else:
        assert stats["recorded"] >= 1
        assert stats["record_patched"] > 0
    assert standin.violations() == 0


def test_workspace_of_the_caller(load: Any, standin: Standin) -> None:
    module = load(plan_file(TWICE))
    operands = Operands()
    assert module.workspace_size() == TWICE.workspace_size
    memory = ctypes.create_string_buffer(TWICE.workspace_size + 512)
    place = (ctypes.addressof(memory) + 255) // 256 * 256
    module.execute(*operands.addresses, workspace_ptr=place)
    operands.check(1.0)
    doubled = (ctypes.c_float * COUNT).from_address(place + 16)
    assert list(doubled) == [2 * value for value in operands.values]


def test_a_capture_outlives_the_plan(load: Any, standin: Standin, stream: int) -> None:
    module = load(plan_file())
    operands = Operands()
    standin.begin_capture(stream)
    module.execute(*operands.addresses, stream=stream)
    status, graph = standin.end_capture_graph(stream)
    assert status == 0
    executable = standin.instantiate(graph)
    module.close()
    operands.fill()
    standin.launch(executable, stream)
    operands.check(3.0)
    assert standin.violations() == 0
    standin.destroy_exec(executable)
    standin.destroy_graph(graph)


def test_code_is_loaded_once_a_process(load: Any, standin: Standin) -> None:
    operands = Operands()
    for _ in range(3):
        module = load(plan_file())
        module.execute(*operands.addresses)
        module.close()
    assert standin.calls("cuLibraryLoadData") <= 1


def test_a_bundle_for_two_gpus(load: Any, standin: Standin) -> None:
    for_other = plan_file(sm=100, sm_count=148)
    module = load(write_bundle([("here", plan_file()), ("there", for_other)]))
    operands = Operands()
    module.execute(*operands.addresses)
    operands.check(3.0)


def test_for_another_gpu(load: Any, standin: Standin) -> None:
    operands = Operands()
    with pytest.raises(PlanMismatchError, match="the plan is for SM 100, here is SM 90"):
        load(plan_file(sm=100)).execute(*operands.addresses)
    message = "for a number of multiprocessors of 114, here is a number of multiprocessors of 132"
    with pytest.raises(PlanMismatchError, match=message):
        load(plan_file(sm_count=114)).execute(*operands.addresses)


def launches(**fields: Any) -> dict[str, Any]:
    return {"launches": json.loads(msgspec.json.encode([scale(1.0, 0, Y, **fields)]))}


REFUSED = {
    "no such binary": (launches(binary=1), "expected one of the binaries, got number 1"),
    "an address past the end": (
        launches(addresses=[(1, 9, Y, 0)]),
        "expected an address inside of parameter 1, got one at 9",
    ),
    "an address of no parameter": (
        launches(addresses=[(3, 0, Y, 0)]),
        "expected an address inside of parameter 3, got one at 0",
    ),
    "a map in a number": (
        launches(tensor_maps=[(2, 0, 0)]),
        "expected one of the tensor maps, aligned, inside of parameter 2, got number 0 at 0",
    ),
    "no such map": (launches(tensor_maps=[(0, 0, 1)]), "got number 1 at 0"),
    "too many parameters": (
        launches(parameters=[b"1234"] * 65, addresses=[], tensor_maps=[]),
        "expected at most 64 parameters of 1048576 bytes in all, got 65 of 260",
    ),
    "a long attribute": (
        launches(attributes=[(4, bytes(65))]),
        "expected an attribute of at most 64 bytes, got 65",
    ),
    "axes that differ": (
        {"tensor_maps": json.loads(msgspec.json.encode([tensor_map(X, box=[1, 2])]))},
        "tensor map 0: expected 1 to 5 axes everywhere, got 1 dims",
    ),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_laid_out_as_it_says(load: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BindingError) as caught:
        load(plan_file(**fields))
    assert str(caught.value).startswith("scaled: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"binaries": ["bm90IGNvZGU="]}, "cuLibraryLoadData: .* (200)"),
        (launches(kernel="other"), "cuLibraryGetKernel: .* (500)"),
        (launches(shared=300_000), "cuKernelSetAttribute: .* (1)"),
        (launches(parameters=[MAP, SMALL]), "cuKernelGetParamInfo: .* (1)"),
        (launches(parameters=[MAP, SMALL, b"12345678"]), "cuKernelGetParamInfo: .* (1)"),
    ],
)
def test_what_the_driver_refuses_comes_before_a_launch(
    load: Any, standin: Standin, fields: dict[str, Any], message: str
) -> None:
    operands, before = Operands(), standin.calls("cuLaunchKernelEx")
    with pytest.raises(DriverError, match=message.replace("(", r"\(").replace(")", r"\)")):
        load(plan_file(**fields)).execute(*operands.addresses)
    assert standin.calls("cuLaunchKernelEx") == before
    assert list(operands.array(1)) == [77.5] * COUNT


@pytest.mark.parametrize("call", ["cuTensorMapEncodeTiled", "cuLaunchKernelEx"])
def test_a_launch_that_fails(load: Any, standin: Standin, call: str) -> None:
    module, operands = load(plan_file()), Operands()
    module.execute(*operands.addresses)
    standin.fail(call, status=719)
    with pytest.raises(DriverError, match=rf"{call}: .*719"):
        module.execute(*operands.addresses)
    module.execute(*operands.addresses)
    operands.check(3.0)


def test_each_device_has_its_own(load: Any, standin: Standin) -> None:
    module = load(plan_file())
    for device in range(2):
        with standin.context(device):
            operands = Operands()
            module.execute(*operands.addresses)
            operands.check(3.0)
    assert standin.calls("cuKernelGetFunction") == 2
