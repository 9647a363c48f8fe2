"""Gradients by emitted operators against PyTorch's own, for layouts that callers really have."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.documents import Document, bind_document, document, node, scalar
from support.documents import tensor as declared

torch = pytest.importorskip("torch")

from support.torch_siblings import operators  # noqa: E402
from torch.nn import functional  # noqa: E402

from cudnn_bindgen.codegen.bind.binding import Binding  # noqa: E402
from cudnn_bindgen.runtime import torch_autograd, torch_operator  # noqa: E402

B, H, S, D = 2, 3, 8, 4
EPSILON = 1e-5


def strides(dim: Sequence[int], order: Sequence[int] | None = None) -> list[int]:
    """Packed strides; `order` names the axes from the outermost to the innermost."""
    result, step = [0] * len(dim), 1
    for axis in reversed(order or range(len(dim))):
        result[axis], step = step, step * dim[axis]
    return result


def double(uid: int, name: str, dim: Sequence[int], order: Sequence[int] | None = None) -> Document:
    return declared(uid, name, dim=[*dim], stride=strides(dim, order), data_type="DOUBLE")


def one_node(
    tag: str,
    inputs: dict[str, tuple[Any, ...]],
    outputs: dict[str, tuple[Any, ...]],
    scalars: Sequence[tuple[str, Document]] = (),
) -> Binding:
    """One node of tensors in double precision; each is (name, dim) or (name, dim, order)."""
    ports = {**inputs, **outputs}
    uids = {port: number for number, port in enumerate(ports, 1)}
    items = [double(uids[port], *given) for port, given in ports.items()]
    added = {port: 100 + number for number, (port, _) in enumerate(scalars)}
    items += [item | {"uid": added[port]} for port, item in scalars]
    taken = {port: uids[port] for port in inputs} | added
    return bind_document(document([node(tag, taken, {p: uids[p] for p in outputs})], items))


# Attention. Memory is [b, s, h, d], axes are [b, h, s, d], as models have it.

BSHD = (0, 2, 1, 3)
HEADS = (B, H, S, D)
STATS = (B, H, S, 1)


def attend(q, k, v):
    scores = q @ k.transpose(-1, -2) / D**0.5
    stats = scores.logsumexp(-1, keepdim=True)
    return (scores - stats).exp() @ v, stats


def attend_backward(q, k, v, o, do, stats):
    p = (q @ k.transpose(-1, -2) / D**0.5 - stats).exp()
    dp = do @ v.transpose(-1, -2)
    ds = p * (dp - (do * o).sum(-1, keepdim=True)) / D**0.5
    return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ do


def attention(*, is_swapped: bool) -> list[tuple[str, Binding, Any]]:
    """SDPA and its gradient; `is_swapped`: K, and V in the gradient, as lowering leaves them."""
    plain = {name: (name, HEADS, BSHD) for name in "QKVO"}
    swapped = {name: (name, (B, H, D, S), (0, 3, 1, 2)) for name in "KV"} if is_swapped else {}

    def back(x):
        return x.transpose(-1, -2) if is_swapped else x

    forward = one_node(
        "SDPA",
        {"Q": plain["Q"], "K": swapped.get("K", plain["K"]), "V": plain["V"]},
        {"O": plain["O"], "Stats": ("stats", STATS)},
    )
    saved = {**plain, **swapped, "dO": ("dO", HEADS, BSHD), "Stats": ("lse", STATS)}
    backward = one_node(
        "SDPA_BWD", saved, {f"d{name}": (f"d{name}", HEADS, BSHD) for name in "QKV"}
    )
    return [
        ("attention", forward, lambda q, k, v: attend(q, back(k), v)),
        (
            "attention_bwd",
            backward,
            lambda q, k, v, o, do, stats: attend_backward(q, back(k), back(v), o, do, stats),
        ),
    ]


@pytest.fixture(params=[False, True], ids=["plain", "swapped"])
def attn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    forward, backward = attention(is_swapped=request.param)
    with operators(tmp_path, forward, [backward]) as (module, siblings, namespace):
        module.siblings, module.namespace = siblings, namespace
        yield module


def heads(seed: int, *, requires_grad: bool = True) -> torch.Tensor:
    """[b, h, s, d] over memory [b, s, h, d]."""
    generator = torch.Generator().manual_seed(seed)
    memory = torch.randn(B, S, H, D, dtype=torch.float64, generator=generator)
    return memory.transpose(1, 2).requires_grad_(requires_grad)


def qkv() -> list[torch.Tensor]:
    return [heads(seed) for seed in (1, 2, 3)]


def reference(tensors: Sequence[torch.Tensor], weight: torch.Tensor) -> list[torch.Tensor]:
    """The gradients that PyTorch computes for sum(attention * weight)."""
    copies = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    o = functional.scaled_dot_product_attention(*copies)
    return list(torch.autograd.grad((o * weight).sum(), copies))


def test_gradients_are_those_of_pytorch(attn: Any) -> None:
    tensors, weight = qkv(), heads(9, requires_grad=False)
    o, stats = attn.attention(*tensors)
    torch.testing.assert_close(o, functional.scaled_dot_product_attention(*tensors))
    assert o.stride() == tuple(strides(HEADS, BSHD))
    assert stats.stride() == tuple(strides(STATS))
    (o * weight).sum().backward()
    for tensor, expected in zip(tensors, reference(tensors, weight), strict=True):
        torch.testing.assert_close(tensor.grad, expected)


def test_gradcheck(attn: Any) -> None:
    assert torch.autograd.gradcheck(lambda *tensors: attn.attention(*tensors)[0], qkv())


LOSSES = {
    "expanded": lambda o: o.sum(),
    "transposed": lambda o: (o.transpose(1, 2).contiguous() * torch.arange(D)).sum(),
    "contiguous": lambda o: (o.contiguous() ** 2).sum(),
    "flattened": lambda o: (o.transpose(1, 2).reshape(B, S, H * D) ** 2).sum(),
    "a part of it": lambda o: o[:, 1:, ::2].pow(2).sum(),
    "joined": lambda o: torch.cat([torch.ones(1, H, S, D), o]).pow(3).sum(),
    "twice": lambda o: o.sum() * o.pow(2).sum(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_that_arrive_in_other_layouts(attn: Any, loss: str) -> None:
    tensors = qkv()
    LOSSES[loss](attn.attention(*tensors)[0]).backward()
    copies = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    o = functional.scaled_dot_product_attention(*copies)
    expected = torch.autograd.grad(LOSSES[loss](o), copies)
    for tensor, gradient in zip(tensors, expected, strict=True):
        torch.testing.assert_close(tensor.grad, gradient)
    arrived = attn.siblings["attention_bwd"].calls[-1][4]
    assert arrived.stride() == tuple(strides(HEADS, BSHD))
    assert arrived.storage_offset() == 0


VIEWS = {
    "of its memory": lambda x: x.transpose(1, 2).contiguous(),
    "flat": lambda x: x.transpose(1, 2).reshape(B, S, H * D),
    "joined": lambda x: x.transpose(1, 2).reshape(B * S, H, D),
    "split": lambda x: x.transpose(1, 2).reshape(B, 2, S // 2, H, D, 1),
    "swapped": lambda x: x.transpose(-1, -2),
}


@pytest.mark.parametrize("view", VIEWS)
def test_gradients_come_in_the_shape_that_was_passed(attn: Any, view: str) -> None:
    tensors, weight = qkv(), heads(9, requires_grad=False)
    passed = [VIEWS[view](tensor.detach()).requires_grad_() for tensor in tensors]
    (attn.attention(*passed)[0] * weight).sum().backward()
    for tensor, expected in zip(passed, reference(tensors, weight), strict=True):
        assert tensor.grad.shape == tensor.shape
        torch.testing.assert_close(tensor.grad, VIEWS[view](expected))


def test_only_what_is_needed_is_returned(attn: Any) -> None:
    q, k, v = qkv()
    k = k.detach()
    attn.attention(q, k, v)[0].sum().backward()
    assert q.grad is not None
    assert v.grad is not None
    assert k.grad is None


def test_a_gradient_of_the_statistics_is_refused(attn: Any) -> None:
    o, stats = attn.attention(*qkv())
    with pytest.raises(RuntimeError, match=r"^stats: expected no gradient, .* stats\.detach\(\)"):
        (o.sum() + stats.sum()).backward()
    o, stats = attn.attention(*qkv())
    with pytest.raises(RuntimeError, match=r"^stats: expected no gradient"):
        stats.sum().backward()
    o, stats = attn.attention(*qkv())
    (o.sum() + stats.detach().sum()).backward()


def test_there_is_no_second_derivative(attn: Any) -> None:
    q, k, v = qkv()
    o, _ = attn.attention(q, k, v)
    [gradient] = torch.autograd.grad(o.pow(2).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="attention_bwd: no gradient is defined"):
        gradient.sum().backward()


def test_a_saved_tensor_that_changed_is_noticed(attn: Any) -> None:
    q, k, v = qkv()
    o, _ = attn.attention(q, k, v)
    with torch.no_grad():
        k.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_outputs_that_are_given_take_no_gradients(attn: Any) -> None:
    q, k, v = qkv()
    o, stats = (output.detach().zero_() for output in attn.attention(q, k, v))
    with pytest.raises(RuntimeError, match="attention_out: expected no tensor that requires grad"):
        attn.attention_out(q, k, v, o, stats)
    assert not o.any()
    with torch.no_grad():
        attn.attention_out(q, k, v, o, stats)
    torch.testing.assert_close(o, functional.scaled_dot_product_attention(q, k, v))


def test_writing_outputs_tells_autograd(attn: Any) -> None:
    q, k, v = (tensor.detach() for tensor in qkv())
    o, stats = attn.attention(q, k, v)
    versions = [tensor._version for tensor in (q, o, stats)]
    weight = torch.ones_like(o, requires_grad=True)
    loss = (o * weight).sum()  # saves o
    attn.attention_out(q, k, v, o, stats)
    assert [tensor._version for tensor in (q, o, stats)] == [
        versions[0],
        versions[1] + 1,
        versions[2] + 1,
    ]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_mode(attn: Any) -> None:
    with torch.inference_mode():
        o, stats = attn.attention(*qkv())
        attn.attention_out(*qkv(), o, stats)
    assert o.is_inference()


def test_autocast_does_not_touch_operands(attn: Any) -> None:
    tensors = qkv()
    with torch.autocast("cpu", torch.bfloat16):
        o, stats = attn.attention(*tensors)
        assert [o.dtype, stats.dtype] == [torch.float64, torch.float64]
    o.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_training_is_eager_training(attn: Any, backend: str, dynamic: bool) -> None:
    weight = heads(9, requires_grad=False)

    def step(x: torch.Tensor, project: torch.Tensor) -> torch.Tensor:
        q, k, v = (x @ project).view(B, S, 3, H, D).permute(2, 0, 3, 1, 4).unbind()
        q, k, v = (one.transpose(1, 2).contiguous().transpose(1, 2) for one in (q, k, v))
        return (attn.attention(q, k, v)[0] * weight).sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic)
    generator = torch.Generator().manual_seed(5)
    project = torch.randn(8, 3 * H * D, dtype=torch.float64, generator=generator)
    project.requires_grad_()
    for _ in range(2):
        x = torch.randn(B, S, 8, dtype=torch.float64, generator=generator).requires_grad_()
        expected = torch.autograd.grad(step(x, project), (x, project))
        found = torch.autograd.grad(compiled(x, project), (x, project))
        torch.testing.assert_close(found, expected)


def test_statistics_that_compiled_code_returns_must_be_detached(attn: Any) -> None:
    torch._dynamo.reset()
    tensors = qkv()
    refused = torch.compile(lambda *x: attn.attention(*x), fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="stats: expected no gradient"):
        refused(*tensors)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def detached(*x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        o, stats = attn.attention(*x)
        return o, stats.detach()

    detached(*tensors)[0].sum().backward()
    assert all(tensor.grad is not None for tensor in tensors)


# Convolution: two backward modules.

IMAGE, FILTER, RESULT = (2, 2, 4, 3), (3, 2, 3, 3), (2, 3, 4, 3)
NHWC = (0, 2, 3, 1)


@pytest.fixture
def conv(tmp_path: Path) -> Iterator[Any]:
    x, w, y = ((n, d, NHWC) for n, d in (("", IMAGE), ("", FILTER), ("", RESULT)))
    forward = one_node("CONV_FPROP", {"X": x, "W": w}, {"Y": y})
    dgrad = one_node("CONV_DGRAD", {"DY": y, "W": w}, {"DX": x})
    wgrad = one_node("CONV_WGRAD", {"DY": y, "X": x}, {"DW": w})
    with operators(
        tmp_path,
        ("conv", forward, lambda x, w: functional.conv2d(x, w, padding=1)),
        [
            ("dgrad", dgrad, lambda dy, w: torch.nn.grad.conv2d_input(IMAGE, w, dy, padding=1)),
            ("wgrad", wgrad, lambda dy, x: torch.nn.grad.conv2d_weight(x, FILTER, dy, padding=1)),
        ],
    ) as (module, siblings, namespace):
        module.siblings, module.namespace = siblings, namespace
        yield module


def channels_last(dim: Sequence[int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(*dim, dtype=torch.float64, generator=generator)
    return made.to(memory_format=torch.channels_last).requires_grad_()


def test_convolution(conv: Any) -> None:
    x, w = channels_last(IMAGE, 1), channels_last(FILTER, 2)
    assert conv.conv(x, w).is_contiguous(memory_format=torch.channels_last)
    assert torch.autograd.gradcheck(conv.conv, (x, w))


def test_opcheck_with_gradients(conv: Any) -> None:
    operators = getattr(torch.ops, conv.namespace)
    x, w, y = (channels_last(dim, seed) for seed, dim in enumerate((IMAGE, FILTER, RESULT)))
    for operator, args in (
        (operators.conv, (x, w)),
        (operators.dgrad, (y.detach(), w.detach())),
        (operators.wgrad_out, (y.detach(), x.detach(), w.detach())),
    ):
        results = torch.library.opcheck(operator.default, args)
        assert set(results.values()) == {"SUCCESS"}


def test_a_gradient_that_nobody_needs_is_not_computed(conv: Any) -> None:
    x, w = channels_last(IMAGE, 1).detach(), channels_last(FILTER, 2)
    conv.conv(x, w).sum().backward()
    calls = {name: len(sibling.calls) for name, sibling in conv.siblings.items()}
    assert calls == {"conv": 1, "dgrad": 0, "wgrad": 1}


# Layer normalisation: a scalar, flattened inputs, and outputs that may stay unused.

ROWS, COLUMNS = 6, 16


@pytest.fixture
def norm(tmp_path: Path) -> Iterator[Any]:
    x, row, stat = (ROWS, COLUMNS, 1, 1), (1, COLUMNS, 1, 1), (ROWS, 1, 1, 1)
    default = {"index": 4, "value": EPSILON}
    forward = one_node(
        "LAYER_NORM",
        {"X": ("x", x), "SCALE": ("scale", row), "BIAS": ("bias", row)},
        {"Y": ("y", x), "MEAN": ("mean", stat), "INV_VARIANCE": ("rstd", stat)},
        [("EPSILON", scalar(1, "eps", default))],
    )
    backward = one_node(
        "LAYER_NORM_BPROP",
        {
            "DY": ("dy", x),
            "X": ("x", x),
            "SCALE": ("scale", row),
            "MEAN": ("mean", stat),
            "INV_VARIANCE": ("rstd", stat),
        },
        {"DX": ("dx", x), "DSCALE": ("dscale", row), "DBIAS": ("dbias", row)},
        [("EPSILON", scalar(1, "eps"))],
    )

    def normalise(x, scale, bias, eps):
        mean = x.mean(1, keepdim=True)
        rstd = (x.var(1, unbiased=False, keepdim=True) + eps).rsqrt()
        return (x - mean) * rstd * scale + bias, mean, rstd

    def gradients(dy, x, scale, mean, rstd, eps):
        assert eps == 0.25
        found = torch.ops.aten.native_layer_norm_backward(
            *(t.reshape(ROWS, COLUMNS) for t in (dy, x)),
            *([COLUMNS], mean.reshape(ROWS, 1), rstd.reshape(ROWS, 1)),
            *(scale.reshape(COLUMNS), torch.zeros(COLUMNS, dtype=x.dtype), [True] * 3),
        )
        dims = ((ROWS, COLUMNS, 1, 1), (1, COLUMNS, 1, 1), (1, COLUMNS, 1, 1))
        return tuple(g.reshape(dim) for g, dim in zip(found, dims, strict=True))

    with operators(tmp_path, ("norm", forward, normalise), [("norm_bwd", backward, gradients)]) as (
        module,
        siblings,
        namespace,
    ):
        module.siblings, module.namespace = siblings, namespace
        yield module


def test_a_norm_of_rows_in_a_batch(norm: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, COLUMNS, dtype=torch.float64, generator=generator).requires_grad_()
    scale = torch.randn(COLUMNS, dtype=torch.float64, generator=generator).requires_grad_()
    bias = torch.randn(COLUMNS, dtype=torch.float64, generator=generator).requires_grad_()
    expected = functional.layer_norm(x, [COLUMNS], scale, bias, 0.25)
    y, _, _ = norm.norm(x, scale, bias, eps=0.25)
    torch.testing.assert_close(y.view(2, 3, COLUMNS), expected)
    found = torch.autograd.grad((y.view_as(x) ** 2).sum(), (x, scale, bias))
    torch.testing.assert_close(found, torch.autograd.grad((expected**2).sum(), (x, scale, bias)))


def test_defaults_of_scalars(norm: Any) -> None:
    x, scale, bias = torch.ones(ROWS, COLUMNS), torch.ones(COLUMNS), torch.zeros(COLUMNS)
    tensors = [tensor.double() for tensor in (x, scale, bias)]
    norm.norm(*tensors)
    getattr(torch.ops, norm.namespace).norm(*tensors)
    outputs = norm.norm(*tensors, eps=2.0)
    norm.norm_out(*tensors, *outputs)
    norm.norm_out(*tensors, *outputs, eps=3)
    passed = [keywords["eps"] for keywords in norm.siblings["norm"].keywords]
    assert passed == [EPSILON, EPSILON, 2.0, EPSILON, 3.0]
    with pytest.raises(TypeError):
        norm.norm(*tensors, 2.0)


# Two outputs with gradients, of which one may not be used.


@pytest.fixture
def split(tmp_path: Path) -> Iterator[Any]:
    dim = (3, 4)
    forward = one_node("F", {"A": ("x", dim)}, {"B": ("y", dim), "C": ("z", dim)})
    backward = one_node("B", {"1": ("dy", dim), "2": ("dz", dim, (1, 0))}, {"3": ("dx", dim)})
    with operators(
        tmp_path,
        ("split", forward, lambda x: (2 * x, 3 * x)),
        [("split_bwd", backward, lambda dy, dz: 2 * dy + 3 * dz)],
    ) as (module, siblings, namespace):
        module.siblings, module.namespace = siblings, namespace
        yield module


def test_a_gradient_that_does_not_arrive_is_zero(split: Any) -> None:
    x = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    for loss, expected in (
        (lambda y, z: y.sum(), 2),
        (lambda y, z: z.sum(), 3),
        (lambda y, z: y.sum() - z.sum(), -1),
    ):
        x.grad = None
        loss(*split.split(x)).backward()
        torch.testing.assert_close(x.grad, torch.full_like(x, expected))


def test_a_tensor_of_another_size_gets_no_gradient() -> None:
    """What `run` takes for a ragged operand, a gradient does not fit."""
    form = torch.Size([5]), (1,)
    with pytest.raises(RuntimeError, match=r"^x: expected 12 elements, as declared, where a grad"):
        torch_autograd._as_passed("x", torch.ones(3, 4), (0, 1), form)


def test_a_gradient_that_two_modules_read_is_laid_out_once(conv: Any) -> None:
    x, w = channels_last(IMAGE, 1), channels_last(FILTER, 2)
    conv.conv(x, w).sum().backward()
    one, other = (conv.siblings[name].calls[-1][0] for name in ("dgrad", "wgrad"))
    assert one.data_ptr() == other.data_ptr()


def test_what_a_derivative_keeps() -> None:
    dy = torch_autograd.Arriving("y", (2,), (1,), torch.float64, 2)
    reads = [dy, "z", "eps", 0.5, "x", float("nan"), dy]
    found = torch_autograd.derive(
        [torch_autograd.Backward("b", reads, {"w": (0,)})],
        [None],
        ["x", "w", "eps", "y", "z"],
        n_inputs=2,
        n_outputs=2,
    )
    given = ("x", "w", "eps", "y", "z")
    assert (found.saved(given), found.scalars(given)) == (("x", "z"), ("eps",))
    assert (found.n_arguments, found.differentiated) == (3, (1,))
    assert (found.arriving, found.undefined) == (((0, dy),), ((1, "z"),))
    assert repr(found.numbers) == "(0.5, nan)"
    [call] = found.calls
    known = ("x", "z", "eps", "dy", 0.5, 1.5)
    assert call.reads(known) == ("dy", "z", "eps", 0.5, "x", 1.5, "dy")
    assert call.needed((False, True, False)) == (True,)
    assert call.gradients == (("w", 1, (0,)),)


def test_a_file_can_be_loaded_again(split: Any) -> None:
    """Its operators live as long as its library."""
    importlib.reload(split)
    x = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    split.split(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2))


def test_a_name_is_taken_once_in_a_namespace(split: Any) -> None:
    name = split.__name__
    source = importlib.util.spec_from_file_location(f"copy_of_{name}", split.__file__)
    assert source
    assert source.loader
    with pytest.raises(RuntimeError, match=rf"(?s)split.*{name}\.py"):
        source.loader.exec_module(importlib.util.module_from_spec(source))


def test_without_a_backward_graph_backward_raises(tmp_path: Path) -> None:
    dim = (3, 4)
    forward = one_node("F", {"A": ("x", dim)}, {"B": ("y", dim)})
    with operators(tmp_path, ("alone", forward, lambda x: 2 * x)) as (module, _, _):
        x = torch.ones(dim, dtype=torch.float64, requires_grad=True)
        y = module.alone(x)
        with pytest.raises(RuntimeError, match="alone: no gradient is defined: emit it with --ba"):
            y.sum().backward()
        assert not module.alone(x.detach()).requires_grad


def test_the_workspace_is_pytorchs(split: Any) -> None:
    sibling = split.siblings["split"]
    x = torch.ones(3, 4, dtype=torch.float64)
    split.split(x)
    sibling.size = 100
    split.split(x)
    [none, workspace] = [keywords["workspace"] for keywords in sibling.keywords]
    assert none is None
    assert (workspace.dtype, workspace.numel(), workspace.device) == (torch.uint8, 100, x.device)


def kernels_of(sibling: Any) -> torch_operator._Kernels:
    return torch_operator._Kernels(
        name="ns::split",
        module=sibling,
        outputs=(),
        zeroed=(),
        n_inputs=1,
        n_operands=3,
        scalars=(),
        defaults=(),
        is_empty=False,
    )


def test_pytorch_without_the_exchange_api(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older ones hand over nothing that requires gradients, and `run` cannot ask for the stream."""

    class Device:
        type, index = "cuda", 0

    class Stream:
        cuda_stream = 77

    monkeypatch.setattr(torch_operator, "_IS_OLD", True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    operands = [torch.ones(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    sibling = split.siblings["split"]
    kernels_of(sibling).launch(Device(), tuple(operands), {})
    assert sibling.keywords[-1]["stream"] == 77
    assert not any(operand.requires_grad for operand in sibling.calls[-1])


def test_the_tensors_device_is_made_current(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        type, index = "cuda", 3

    current = [0]

    class Guard:
        def __init__(self, device: Any) -> None:
            self.index = device.index

        def __enter__(self) -> None:
            self.before, current[0] = current[0], self.index

        def __exit__(self, *_: object) -> None:
            current[0] = self.before

    seen: list[int] = []
    sibling = split.siblings["split"]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(sibling, "workspace_size", lambda: seen.append(current[0]) or 0)
    operands = tuple(torch.ones(3, 4, dtype=torch.float64) for _ in range(3))
    kernels_of(sibling).launch(Device(), operands, {})
    assert seen == [3]
    assert current == [0]
    assert len(sibling.calls) == 1
