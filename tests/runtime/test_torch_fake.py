"""Operators of PyTorch refuse fake tensors as they would refuse real ones, in `run`'s words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.documents import DATA

torch = pytest.importorskip("torch")

from support import device_tensors  # noqa: E402
from support.torch_siblings import operators  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

from cudnn_bindgen.codegen.bind.binding import Binding, bind  # noqa: E402
from cudnn_bindgen.codegen.bind.data import data_of  # noqa: E402
from cudnn_bindgen.codegen.read.graph import read_graph  # noqa: E402
from cudnn_bindgen.module_data import RUNTIME_ABI  # noqa: E402
from cudnn_bindgen.runtime import binding as runtime  # noqa: E402
from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402

GRAPHS = {
    "sdpa": "frontends/1.32.0/sdpa_causal.json",
    "thd": "plans/cudnn-9.19-sm90/sdpa_thd.plan",
    "norm": "plans/cudnn-9.19-sm90/layernorm.plan",
}
BINDINGS = {name: bind(read_graph((DATA / path).read_bytes())) for name, path in GRAPHS.items()}
TOKENS = 256
# Shapes that callers really pass, where they are not the declared ones.
RAGGED = {"q": (TOKENS, 8, 128), "k": (65536, 2, 128), "v": (65536, 2, 128)}


@pytest.fixture(scope="module", params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.contextmanager
def emitted(name: str, folder: Path) -> Iterator[tuple[ModuleType, Any]]:
    """The operators' module, and a Binding that checks devices as well."""
    binding = BINDINGS[name]
    with operators(folder, (name, binding, lambda *_: None)) as (module, siblings, _):
        siblings[name]._binding = found = serve(name, binding)
        yield module, found


def serve(name: str, binding: Binding) -> Any:
    return runtime.Binding(name, RUNTIME_ABI, data_of(binding, "graph.json"))


@pytest.fixture(scope="module")
def made(graph: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModuleType, Any]]:
    with emitted(graph, tmp_path_factory.mktemp(graph)) as pair:
        yield pair


def right(name: str) -> dict[str, tuple[tuple[int, ...], tuple[int, ...], Any]]:
    """Dims, strides and dtype of each input."""
    found = {}
    for one in BINDINGS[name].operands:
        dtype = device_tensors.DATA_TYPES[one.data_type]
        dim, stride = one.dim, one.stride
        if name == "thd" and one.name in RAGGED:
            dim = RAGGED[one.name]
            stride = (dim[1] * dim[2], dim[2], 1)
        if one.role == "input":
            found[one.name] = (dim, stride, dtype)
    return found


def fake(dim: tuple[int, ...], stride: tuple[int, ...], dtype: Any, device: str = "cuda") -> Any:
    return torch.empty_strided(dim, stride, dtype=dtype, device=device)


def refusal(call: Callable[..., object], *tensors: Any, **options: Any) -> str:
    with pytest.raises(OperandError) as caught:
        call(*tensors, **options)
    return str(caught.value)


WRONG: dict[str, Callable[[Any, Any, Any], tuple[Any, Any, Any]]] = {
    "dtype": lambda dim, stride, dtype: (dim, stride, torch.float64),
    "a type that no graph has": lambda dim, stride, dtype: (dim, stride, torch.float8_e4m3fnuz),
    "one row more": lambda dim, stride, dtype: ((*dim[:-1], dim[-1] + 1), stride, dtype),
    "no axes": lambda dim, stride, dtype: ((), (), dtype),
    "expanded": lambda dim, stride, dtype: (dim, (0,) * len(dim), dtype),
    "gaps": lambda dim, stride, dtype: (dim, tuple(2 * step for step in stride), dtype),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_words_are_those_of_a_real_call(
    made: tuple[ModuleType, Any], graph: str, wrong: str
) -> None:
    module, binding = made
    operator = getattr(module, graph)
    options = {"eps": 1.0} if graph == "norm" else {}
    for name in right(graph):
        forms = right(graph)
        forms[name] = WRONG[wrong](*forms[name])
        tensors = [device_tensors.strided(*form) for form in forms.values()]
        outputs = [device_tensors.make_tensor(one) for one in BINDINGS[graph].operands]
        outputs = outputs[len(tensors) :]
        expected = refusal(binding.run, *tensors, *outputs, **options)
        assert expected.startswith(f"{name}: expected ")
        with FakeTensorMode():
            tensors = [fake(*form) for form in forms.values()]
            assert refusal(operator, *tensors, **options) == expected


def test_what_a_real_call_takes_passes(made: tuple[ModuleType, Any], graph: str) -> None:
    module, binding = made
    options = {"eps": 1.0} if graph == "norm" else {}
    with FakeTensorMode():
        tensors = [fake(*form) for form in right(graph).values()]
        outputs = getattr(module, graph)(*tensors, **options)
        getattr(module, f"{graph}_out")(*tensors, *outputs, **options)
        wrong = [fake((2, 3), (3, 1), torch.float64), *outputs[1:]]
        with pytest.raises(OperandError):
            getattr(module, f"{graph}_out")(*tensors, *wrong, **options)
        binding.set_checks(False)
        getattr(module, f"{graph}_out")(*tensors, *wrong, **options)
        binding.set_checks(True)
    meta = [fake(*form, device="meta") for form in right(graph).values()]
    assert getattr(module, graph)(*meta, **options)[0].device.type == "meta"


def test_devices(tmp_path: Path) -> None:
    with emitted("sdpa", tmp_path) as (module, _), FakeTensorMode():
        q, k, v = (fake(*form) for form in right("sdpa").values())
        assert refusal(module.sdpa, q, k, fake(*right("sdpa")["v"], device="cpu")) == (
            "v: expected memory of a CUDA device, got host memory: to trace without a GPU, make "
            'model and example inputs of device "meta", or in FakeTensorMode of device "cuda" '
            "(docs/torch.md)"
        )
        other = fake(*right("sdpa")["k"], device="cuda:1")
        assert refusal(module.sdpa, q, other, v) == (
            "k: expected memory of CUDA device 0, as q is, got memory of device 1"
        )


class Layer(torch.nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, *tensors: Any) -> Any:
        return self.operator(*tensors)[0]


@pytest.mark.parametrize("strict", [False, True], ids=["traced", "strict"])
def test_export(tmp_path: Path, strict: bool) -> None:
    def export(*tensors: Any, **options: Any) -> Any:
        return torch.export.export(Layer(module.sdpa), tensors, strict=strict, **options)

    with emitted("sdpa", tmp_path) as (module, _), FakeTensorMode():
        q, k, v = (fake(*form) for form in right("sdpa").values())
        nodes = export(q, k, v).graph.nodes
        assert "sdpa.default" in " ".join(str(node.target) for node in nodes)
        with pytest.raises(RuntimeError, match=r"q: expected dims \[2, 8, 256, 64\] with strides"):
            export(k, k, v)
        batch = {"tensors": ({0: torch.export.Dim("batch")}, None, None)}
        with pytest.raises(Exception, match="specialized it to be a constant"):
            export(q, k, v, dynamic_shapes=batch)


class Scaled(Layer):
    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        self.scale = torch.nn.Linear(64, 64, dtype=torch.bfloat16)

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return super().forward(self.scale(q), k, v)


def test_a_model_is_exported_without_a_gpu(sdpa: Any, tmp_path: Path) -> None:
    """By docs/torch.md; here the operator computes on the CPU, so the program is moved there."""
    from torch.export.passes import move_to_device_pass

    trained = Scaled(sdpa)
    with torch.device("meta"):
        tensors = tuple(torch.empty(dim, dtype=dtype) for dim, _, dtype in right("sdpa").values())
        program = torch.export.export(Scaled(sdpa), tensors)
    program.state_dict.update(trained.state_dict(keep_vars=True))
    program.example_inputs = None
    torch.export.save(program, tmp_path / "model.pt2")
    moved = move_to_device_pass(torch.export.load(tmp_path / "model.pt2"), "cpu")
    values = {node.meta["val"].device.type for node in moved.graph.find_nodes(op="placeholder")}
    assert values == {"cpu"}
    q, k, v = (torch.rand(dim).to(dtype) for dim, _, dtype in right("sdpa").values())
    assert torch.equal(moved.module()(q, k, v), trained(q, k, v))


def compiled(function: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


@pytest.fixture
def sdpa(tmp_path: Path) -> Iterator[Any]:
    """An operator that takes tensors of the CPU."""

    def compute(q: Any, *_: Any) -> Any:
        return q * 1, q[..., :1].float()

    with operators(tmp_path, ("sdpa", BINDINGS["sdpa"], compute)) as (module, _, _):
        yield module.sdpa


def qkv() -> list[Any]:
    return [torch.zeros(dim, dtype=dtype) for dim, _, dtype in right("sdpa").values()]


def test_a_dim_that_pytorch_takes_for_dynamic_becomes_the_declared_one(sdpa: Any) -> None:
    call = compiled(sdpa, dynamic=True)
    assert call(*qkv())[0].shape == (2, 8, 256, 64)
    q, k, v = qkv()
    with pytest.raises(RuntimeError, match=r"q: expected dims \[2, 8, 256, 64\].* got dims \[1,"):
        call(q[:1], k, v)
    q, k, v = qkv()
    torch._dynamo.mark_dynamic(q, 0)
    with pytest.raises(Exception, match="specialized it to be a constant"):
        compiled(sdpa)(q, k, v)


def test_strides_that_a_decomposition_changes_are_restored_later(sdpa: Any) -> None:
    """Inductor does; here it is enough that such a program is compiled."""
    from torch._dynamo.backends.common import aot_autograd

    def sin(x: Any) -> Any:
        return torch.cos(x.transpose(1, 2).contiguous()).transpose(1, 2)

    traced: list[Any] = []

    def compile_forward(graph: Any, _: Any) -> Any:
        traced.append(graph)
        return lambda *_: [torch.zeros(())]

    backend = aot_autograd(
        fw_compiler=compile_forward, decompositions={torch.ops.aten.sin.default: sin}
    )
    torch._dynamo.reset()
    q, k, v = qkv()
    torch.compile(lambda q: sdpa(q.sin(), k, v)[0], fullgraph=True, backend=backend)(q)
    values = [node.meta.get("val") for node in traced[0].graph.nodes]
    strides = [value.stride() for value in values if isinstance(value, torch.Tensor)]
    assert (131072, 64, 512, 1) in strides


def test_dims_that_depend_on_data(sdpa: Any) -> None:
    def chosen(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return sdpa(q[mask], k, v)

    def checked(q: Any, k: Any, v: Any, mask: Any) -> Any:
        rows = q[mask]
        torch._check(rows.shape[0] == 2)
        return sdpa(rows, k, v)

    mask = torch.tensor([True, True])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        with pytest.raises(RuntimeError, match=r"q: expected .* got u0, which depends on data"):
            compiled(chosen)(*qkv(), mask)
        assert compiled(checked)(*qkv(), mask)[0].shape == (2, 8, 256, 64)


def test_tokens_stay_dynamic(tmp_path: Path) -> None:
    """One compiled program takes any number of tokens; heads are fixed."""
    made: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(1)
        return graph.forward

    def tensors(tokens: int, heads: int = 8) -> list[Any]:
        found = right("thd")
        found["q"] = ((tokens, heads, 128), (heads * 128, 128, 1), torch.bfloat16)
        found["k"] = found["v"] = ((512, 2, 128), (256, 128, 1), torch.bfloat16)
        return [torch.zeros(dim, dtype=dtype) for dim, _, dtype in found.values()]

    with operators(tmp_path, ("thd", BINDINGS["thd"], lambda *_: None)) as (module, siblings, _):
        siblings["thd"].run = lambda *_, **__: None
        torch._dynamo.reset()
        call = torch.compile(module.thd, fullgraph=True, backend=backend, dynamic=True)
        for tokens in (100, 101, 200):  # not 64, as there are sequences
            call(*tensors(tokens))
        assert len(made) == 1
        with pytest.raises(RuntimeError, match=r"q: expected dims \[\*, 8, \*, 128\]"):
            torch.compile(module.thd, fullgraph=True, backend=backend)(*tensors(64, heads=7))
