"""Emitted operators above compiled modules and the stand-in libraries, end to end.

test_torch_process.py runs this file in a process of its own, where every tensor of PyTorch says
that it is on the stand-in's device (device_tensors.py): operators get and compiled code makes plain
ones.

The stand-in's results are linear: output k is (k + 1) * sum((j + 1) ** 2 * input j). With one input
that counts, its gradient is a plan as well.
"""

from __future__ import annotations

import gc
import importlib
import io
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import ubjson

from cudnn_bindgen.cli import main
from cudnn_bindgen.runtime.errors import CudnnError, OperandError
from cudnn_bindgen.runtime.handle import held_bytes
from support import device_tensors
from support.cases import chain, planned, scalar, tensor
from support.standin import Standin, expected_outputs, plan_text

DIM, STRIDE, COUNT = (3, 4), (1, 3), 12
WORKSPACE = 1000
NAMESPACE = "standin"


def column_major(uid: int, name: str) -> dict[str, Any]:
    return tensor(uid, name, dim=[*DIM], stride=[*STRIDE], data_type="DOUBLE")


def plan(tensors: list[dict[str, Any]], outputs: list[int], **text: Any) -> bytes:
    document = planned(chain(tensors, outputs))
    document["cudnn_backend_data"] = plan_text(
        outputs=outputs, count=COUNT, workspace=WORKSPACE, **text
    )
    return bytes(ubjson.dumpb(document))


# y, aux = (1, 2) * (x + 4 w + 100 gain + 101 shift)
GAIN = {"data_type": "FLOAT", "is_pass_by_value": True, "dim": [1]}
FORWARD = plan(
    [
        *(column_major(uid, name) for uid, name in ((1, "x"), (2, "w"), (3, "y"), (4, "aux"))),
        tensor(5, "gain", **GAIN),
        tensor(6, "shift", pass_by_value=scalar("FLOAT", 0.5), **GAIN),
    ],
    [3, 4],
    inputs=[1, 2],
    scalars=[(5, "float"), (6, "float")],
)
# dx, dw = (1, 2) * dy: right for x; w and aux are bound, but not read.
BACKWARD = plan(
    [
        *(column_major(uid, name) for uid, name in ((1, "dy"), (2, "w"), (3, "aux"))),
        *(column_major(uid, name) for uid, name in ((4, "dx"), (5, "dw"))),
    ],
    [4, 5],
    inputs=[1],
    other=[2, 3],
)


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with both modules compiled and their operators beside them."""
    directory = tmp_path_factory.mktemp("site")
    folder = directory / "standin_package"
    for name, data in (("linear", FORWARD), ("linear_bwd", BACKWARD)):
        (directory / f"{name}.plan").write_bytes(data)
    command = ["build", str(directory / "linear.plan"), "--directory", str(folder)]
    command += ["--torch", "--torch-namespace", NAMESPACE]
    command += ["--backward", str(directory / "linear_bwd.plan")]
    main(command, standalone_mode=False)
    (folder / "__init__.py").touch()
    return folder


@pytest.fixture(scope="session")
def imported(package: Path, library: Standin) -> ModuleType:
    """The operators, from within their package; PyTorch registers them once in a process."""
    device_tensors.pretend_everywhere()
    align_workspaces()
    sys.path.insert(0, str(package.parent))
    return importlib.import_module("standin_package.linear_torch")


def align_workspaces() -> None:
    """Align bytes as CUDA's allocators do; PyTorch's for the CPU aligns to 64."""
    empty = torch.empty

    def aligned(*size: Any, **options: Any) -> torch.Tensor:
        if options.get("dtype") != torch.uint8 or not isinstance(size[0], int):
            return empty(*size, **options)
        memory = empty(size[0] + 128, **options)
        start = -memory.data_ptr() % 128
        return memory[start : start + size[0]]

    torch.empty = aligned


@pytest.fixture
def linear(imported: ModuleType, standin: Standin) -> Iterator[ModuleType]:
    modules = [sys.modules[f"standin_package.{name}"] for name in ("linear", "linear_bwd")]
    for module in modules:
        module.load_plan()
        module.set_launch_policy("direct")
    torch._dynamo.reset()
    yield imported
    for module in modules:
        module.close()


def make(seed: int, *, requires_grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.rand(4, 3, dtype=torch.float64, generator=generator).t()
    return made.requires_grad_(requires_grad)


def expected(x: torch.Tensor, w: torch.Tensor, gain: float, shift: float) -> list[torch.Tensor]:
    arrays = [tensor.detach().t().flatten().tolist() for tensor in (x, w)]
    results = expected_outputs(arrays, [gain, shift], [], 2)
    return [torch.tensor(result, dtype=torch.float64).view(4, 3).t() for result in results]


def assert_same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def executed(standin: Standin) -> list[list[str]]:
    return [line.split() for line in standin.log("cudnnBackendExecute")]


def test_eager(linear: ModuleType, standin: Standin) -> None:
    x, w = make(1), make(2)
    for kwargs, values in (
        ({"gain": 2.0}, (2.0, 0.5)),
        ({"gain": 0.25, "shift": -3.0}, (0.25, -3.0)),
    ):
        outputs = linear.linear(x, w, **kwargs)
        assert_same(outputs, tuple(expected(x, w, *values)))
        assert [output.stride() for output in outputs] == [STRIDE, STRIDE]
        given = [torch.zeros_like(output) for output in outputs]
        assert linear.linear_out(x, w, *given, **kwargs) is None
        assert_same(given, expected(x, w, *values))
    assert len(executed(standin)) == 4


def test_through_torch_ops(linear: ModuleType) -> None:
    x, w = make(1), make(2)
    operators = torch.ops.standin
    assert_same(operators.linear(w=w, x=x, gain=1.0), tuple(expected(x, w, 1.0, 0.5)))
    outputs = [torch.zeros_like(x), torch.zeros_like(x)]
    operators.linear_out(x, w, *outputs, shift=0.0, gain=1.0)
    assert_same(outputs, expected(x, w, 1.0, 0.0))


def test_the_workspace_is_pytorchs(linear: ModuleType, standin: Standin) -> None:
    for _ in range(3):
        linear.linear(make(1), make(2), gain=1.0)
    assert held_bytes() == 0
    assert all(int(line[-1], 16) % 128 == 0 for line in executed(standin))


def test_the_current_stream_is_used(linear: ModuleType, standin: Standin) -> None:
    stream = standin.stream()
    device_tensors.set_stream(stream)
    try:
        linear.linear(make(1), make(2), gain=1.0)
    finally:
        device_tensors.set_stream(0)
    assert standin.log("cudnnSetStream")[-1].split()[-1] == hex(stream)
    linear.linear(make(1), make(2), gain=1.0)
    assert standin.log("cudnnSetStream")[-1].split()[-1] == hex(0)
    standin.destroy_stream(stream)


def test_nothing_is_kept(linear: ModuleType) -> None:
    x, w = make(1), make(2)
    outputs = linear.linear(x, w, gain=1.0)
    assert [sys.getrefcount(output) for output in outputs] == [3, 3]  # tuple, list, argument
    del outputs
    counts = [sys.getrefcount(tensor) for tensor in (x, w)]
    for _ in range(3):
        linear.linear(x, w, gain=1.0)
        linear.linear_out(x, w, torch.zeros_like(x), torch.zeros_like(x), gain=1.0)
    assert [sys.getrefcount(tensor) for tensor in (x, w)] == counts
    leaf = make(3, requires_grad=True)
    linear.linear(leaf, w, gain=1.0)[0].sum().backward()
    gone = weakref.ref(leaf)
    del leaf
    gc.collect()
    assert gone() is None


def test_host_tensors_are_refused_by_name(linear: ModuleType) -> None:
    x, w = make(1), make(2).as_subclass(device_tensors.HostTensor)
    with pytest.raises(OperandError, match=r"^w: expected memory of a CUDA device, got host mem"):
        linear.linear(x, w, gain=1.0)
    linear.linear(x, make(2), gain=1.0)


WRONG: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "dtype": (lambda x: x.float(), "x: expected DOUBLE .*, got float32"),
    "layout": (lambda x: x.contiguous(), "x: expected dims .*"),
    "size": (lambda x: x[:2], "x: expected dims .*"),
    "expanded": (lambda x: x[:, :1].expand(DIM), "x: expected dims .*"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_operands_are_checked(linear: ModuleType, standin: Standin, wrong: str) -> None:
    """When they run, and before that when a program is compiled, in the same words."""
    change, message = WRONG[wrong]
    with pytest.raises(OperandError) as caught:
        linear.linear(change(make(1)), make(2), gain=1.0)
    assert re.match(message, str(caught.value))
    call = torch.compile(linear.linear, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match=re.escape(f"OperandError('{caught.value}')")):
        call(change(make(1)), make(2), gain=1.0)
    assert not executed(standin)
    assert_same(call(make(1), make(2), gain=1.0), tuple(expected(make(1), make(2), 1.0, 0.5)))


def test_a_failing_call_leaves_the_next_one_alone(linear: ModuleType, standin: Standin) -> None:
    standin.fail("cudnnBackendExecute", status=5000)
    with pytest.raises(CudnnError):
        linear.linear(make(1), make(2), gain=1.0)
    linear.linear(make(1), make(2), gain=1.0)


def samples() -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    operators = torch.ops.standin
    x, w, y, aux = (make(seed) for seed in range(4))
    yield operators.linear.default, (x, w, 2.0), {}
    yield operators.linear.default, (x, w, 2.0, 3.0), {}
    yield operators.linear_out.default, (x, w, y, aux, 2.0), {}
    yield operators.linear_bwd.default, (y, w, aux), {}
    yield operators.linear_bwd_out.default, (y, w, aux, x.clone(), y.clone()), {}


@pytest.mark.parametrize("index", range(5))
def test_opcheck(linear: ModuleType, index: int) -> None:
    operator, args, kwargs = list(samples())[index]
    results = torch.library.opcheck(operator, args, kwargs)
    assert set(results.values()) == {"SUCCESS"}


def test_opcheck_where_an_output_has_no_gradient(linear: ModuleType) -> None:
    """The last of its tests sends gradients into all outputs, which is refused, as it must be."""
    args = (make(1, requires_grad=True), make(2), 2.0)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    operator = torch.ops.standin.linear.default
    results = torch.library.opcheck(operator, args, test_utils=tests)
    assert set(results.values()) == {"SUCCESS"}
    with pytest.raises(Exception, match="aux: expected no gradient"):
        torch.library.opcheck(operator, args)


def test_fake_tensors_are_as_real_ones(linear: ModuleType) -> None:
    real = linear.linear(make(1), make(2), gain=1.0)
    with torch._subclasses.FakeTensorMode() as mode:
        x, w = (mode.from_tensor(make(seed)) for seed in (1, 2))
        fake = linear.linear(x, w, gain=1.0)
        linear.linear_out(x, w, *fake, gain=1.0)
    for one, other in zip(real, fake, strict=True):
        for what in (torch.Tensor.stride, torch.Tensor.size, lambda x: (x.dtype, x.device)):
            assert what(one) == what(other)


def model(linear: ModuleType, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Something before the operator and something behind it."""
    y, aux = linear.linear((x * 2).sin(), w.abs(), gain=1.5)
    return y * 3 + aux.detach()


def mutating(linear: ModuleType, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Outputs that are views of one block, read before and after."""
    block = torch.zeros(2, 4, 3, dtype=x.dtype)
    before = block.sum()
    linear.linear_out(x, w, block[0].t(), block[1].t(), gain=1.5)
    return before, block.clone(), w + 1


# PyTorch's inductor imports what PyTorch's torch.jit warns of.
INDUCTOR = pytest.param(
    "inductor",
    {},
    marks=pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is dep:DeprecationWarning"),
)
BACKENDS = [("aot_eager", {}), ("aot_eager", {"dynamic": True}), INDUCTOR]


@pytest.mark.parametrize(("backend", "options"), BACKENDS, ids=str)
@pytest.mark.parametrize("function", [model, mutating])
def test_compiled_code_is_eager_code(
    linear: ModuleType, backend: str, options: dict[str, Any], function: Any
) -> None:
    compiled = torch.compile(function, fullgraph=True, backend=backend, **options)
    for seed in (1, 3):
        x, w = make(seed), make(seed + 1)
        torch.testing.assert_close(compiled(linear, x, w), function(linear, x, w))


@pytest.mark.parametrize(("backend", "options"), BACKENDS, ids=str)
def test_compiled_training(linear: ModuleType, backend: str, options: dict[str, Any]) -> None:
    compiled = torch.compile(model, fullgraph=True, backend=backend, **options)
    for seed in (1, 3):
        leaves = [make(seed, requires_grad=True), make(seed + 1, requires_grad=True)]
        found = torch.autograd.grad(compiled(linear, *leaves).pow(2).sum(), leaves)
        wanted = torch.autograd.grad(model(linear, *leaves).pow(2).sum(), leaves)
        torch.testing.assert_close(found, wanted)


def test_gradients_come_from_the_backward_module(linear: ModuleType, standin: Standin) -> None:
    x, w = make(1, requires_grad=True), make(2, requires_grad=True)
    y, _ = linear.linear(x, w, gain=1.0)
    y.backward(make(3))
    assert_same(x.grad, make(3))
    assert_same(w.grad, 2 * make(3))
    assert len(executed(standin)) == 2
    assert torch.autograd.gradcheck(lambda x: linear.linear(x, make(2), gain=1.0)[0], (x,))


def test_mutation_that_compiled_code_must_not_lose(linear: ModuleType) -> None:
    def function(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, aux: torch.Tensor) -> Any:
        total = y.sum()
        linear.linear_out(x, w, y, aux, gain=1.0)
        return total, y.sum()

    def run(call: Any) -> Any:
        tensors = [make(1), make(2), torch.ones(4, 3).double().t(), torch.ones(4, 3).double().t()]
        return call(*tensors), tensors

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(run(compiled), run(function))


def test_compiled_code_refuses_to_lose_gradients(linear: ModuleType) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y, aux = torch.zeros(4, 3).double().t(), torch.zeros(4, 3).double().t()
        linear.linear_out(x * 1, w, y, aux, gain=1.0)
        return y

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="linear_out: expected no tensor that requires gradien"):
        compiled(make(1, requires_grad=True), make(2))
    torch._dynamo.reset()
    with torch.no_grad():
        compiled(make(1, requires_grad=True), make(2))


class Layer(torch.nn.Module):
    def __init__(self, linear: ModuleType) -> None:
        super().__init__()
        self.linear = linear.linear
        self.w = torch.nn.Parameter(make(2).t())  # saving warns of parameters that are views

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, aux = self.linear(x, self.w.t(), gain=1.5)
        return y + aux.detach()


# PyTorch copies specifications of a kind that it deprecates.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning")
@pytest.mark.parametrize("strict", [False, True], ids=["traced", "strict"])
def test_export(linear: ModuleType, strict: bool) -> None:
    layer = Layer(linear)
    program = torch.export.export(layer, (make(1),), strict=strict)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert "standin.linear.default" in targets
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for loaded in (program, torch.export.load(file), program.run_decompositions()):
        with torch.no_grad():
            assert_same(loaded.module()(make(5)), layer(make(5)))


def test_tags(linear: ModuleType) -> None:
    tags = torch.ops.standin.linear.default.tags
    assert torch.Tag.pt2_compliant_tag in tags
    assert torch.Tag.needs_exact_strides in tags


def test_threads(linear: ModuleType, on_thread: Callable[..., Any]) -> None:
    def call() -> Any:
        return linear.linear(make(1), make(2), gain=1.0)

    assert_same(on_thread(call), tuple(expected(make(1), make(2), 1.0, 0.5)))
