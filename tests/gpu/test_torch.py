"""Emitted operators of PyTorch on a GPU: the frontend's bits, gradients, streams, refusals."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import torch_graphs as tg  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_graphs import assert_same, error, generated, gradients, own, qkv, weights  # noqa: E402

from cudnn_bindgen.runtime.errors import OperandError  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 5
EPSILON = 1e-5
# Relative errors in the 2-norm, of a bfloat16 result to a float64 one: 2 ** -9 for each rounding.
ERROR = 1e-2


# The frontend's bits


def test_the_operator_gives_the_frontends_bits(attn):
    for seed in range(ROUNDS):
        tensors = qkv(seed)
        outputs = attn.attn(*tensors)
        expected = [torch.full_like(output, float("nan")) for output in outputs]
        tg.frontend_outputs(attn.built["attn"], attn.bindings["attn"], tensors, expected)
        assert_same(outputs, expected)
        given = [torch.full_like(output, float("nan")) for output in outputs]
        attn.attn_out(*tensors, *given)
        torch.cuda.synchronize()
        assert_same(given, expected)


def test_gradients_have_the_frontends_bits(attn):
    tensors, weight = qkv(1), weights()
    o, stats = attn.attn(*tensors)
    found = gradients(generated(attn), tensors, weight)
    expected = [torch.empty_like(weight) for _ in range(3)]
    inputs = [*tensors, o, weight, stats]
    # Operands of the backward graph: q, k, v, o, do, stats.
    tg.frontend_outputs(attn.built["attn_bwd"], attn.bindings["attn_bwd"], inputs, expected)
    assert_same(found, expected)


def test_outputs_are_as_declared(attn):
    o, stats = attn.attn(*qkv(1))
    operands = {operand.argument: operand for operand in attn.bindings["attn"].OPERANDS}
    for output, name in ((o, "o_ptr"), (stats, "stats_ptr")):
        assert output.shape == operands[name].dim
        assert output.stride() == operands[name].stride


# Gradients against other computations


def test_gradients_are_as_good_as_pytorchs(attn):
    """Relative to float64: at most 1e-2, and at most twice the error of PyTorch's own."""
    for seed in range(3):
        tensors, weight = qkv(seed), weights(seed + 50)
        exact = gradients(
            tg.reference_attention, [tensor.double() for tensor in tensors], weight.double()
        )
        found = gradients(generated(attn), tensors, weight)
        others = gradients(own, tensors, weight)
        for name, one, other, expected in zip("qkv", found, others, exact, strict=True):
            assert error(one, expected) < ERROR, name
            assert error(one, expected) < 2 * error(other, expected) + 1e-3, name
            assert error(one, other) < 2 * ERROR, name


def test_gradients_are_derivatives(attn):
    """Along random directions, against differences of the float64 reference, within 2 %."""
    tensors, weight = qkv(7), weights()
    found = gradients(generated(attn), tensors, weight)
    points = [tensor.double() for tensor in tensors]
    generator = torch.Generator("cuda").manual_seed(3)

    def loss(*at):
        return (tg.reference_attention(*at) * weight.double()).sum().item()

    for index, gradient in enumerate(found):
        # Half of it along the gradient, so that the difference is far from zero.
        noise = torch.randn(gradient.shape, device="cuda", generator=generator).double()
        exact = gradient.double()
        direction = exact / exact.norm() + noise / noise.norm()
        step = 1e-4
        ends = []
        for sign in (1, -1):
            moved = list(points)
            moved[index] = points[index] + sign * step * direction
            ends.append(loss(*moved))
        difference = (ends[0] - ends[1]) / (2 * step)
        assert (exact * direction).sum().item() == pytest.approx(difference, rel=0.02)


LOSSES = {
    "expanded": lambda o: o.sum(),
    "contiguous": lambda o: (o.contiguous() * o.contiguous().detach()).sum(),
    "a part of it": lambda o: (o[:, 1:, ::2].float() ** 2).sum(),
    "flattened": lambda o: (o.transpose(1, 2).reshape(-1, tg.HEADS * tg.SIZE).float() ** 2).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_that_arrive_in_other_layouts(attn, name):
    tensors = qkv(2, requires_grad=True)
    found = torch.autograd.grad(LOSSES[name](attn.attn(*tensors)[0]), tensors)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    expected = torch.autograd.grad(LOSSES[name](tg.reference_attention(*exact)), exact)
    for operand, one, other in zip("qkv", found, expected, strict=True):
        assert error(one, other) < 2 * ERROR, operand


def test_convolution_and_both_its_gradients(conv):
    def channels_last(dim, seed):
        generator = torch.Generator("cuda").manual_seed(seed)
        made = torch.randn(dim, device="cuda", generator=generator).half()
        return made.to(memory_format=torch.channels_last)

    x, w, dy = (channels_last(d, s) for s, d in enumerate((tg.IMAGE, tg.FILTER, tg.RESULT)))
    results = []
    for call in (conv.conv, lambda x, w: functional.conv2d(x, w, padding=1)):
        leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
        y = call(*leaves)
        results.append([y, *torch.autograd.grad(y, leaves, dy)])
    exact = [x.double().requires_grad_(), w.double().requires_grad_()]
    # A cuDNN that was installed without its precompiled engines has none for float64.
    with torch.backends.cudnn.flags(enabled=False):
        y = functional.conv2d(*exact, padding=1)
        expected = [y, *torch.autograd.grad(y, exact, dy.double())]
    for found, other, value in zip(*results, expected, strict=True):
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert error(found, value) < 2 * error(other, value) + 1e-3


def test_a_norm_with_a_scalar_over_a_batch_of_rows(norm):
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (4, tg.ROWS // 4, tg.COLUMNS)
    x = torch.randn(shape, device="cuda", generator=generator).bfloat16().requires_grad_()
    scale = torch.randn(tg.COLUMNS, device="cuda", generator=generator).requires_grad_()
    dy = torch.randn(shape, device="cuda", generator=generator).bfloat16()
    y, _ = norm.norm(x, scale, epsilon=EPSILON)
    y = y.view(shape)
    found = [y, *torch.autograd.grad(y, (x, scale), dy)]
    exact = [x.detach().double().requires_grad_(), scale.detach().double().requires_grad_()]
    wanted = functional.rms_norm(exact[0], [tg.COLUMNS], exact[1], EPSILON)
    expected = [wanted, *torch.autograd.grad(wanted, exact, dy.double())]
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert error(one, other) < ERROR


# Streams, devices, refusals


def test_side_streams(attn):
    """Both passes run behind what their stream still has to do."""
    tensors, weight = qkv(6), weights()
    expected = gradients(generated(attn), tensors, weight)
    late = [torch.zeros_like(tensor) for tensor in tensors]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for target, source in zip(late, tensors, strict=True):
            target.copy_(source)
        found = gradients(generated(attn), late, weight)
    stream.synchronize()
    assert_same(found, expected)


def test_tensors_of_a_device_that_is_not_current(attn):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    tensors = [tensor.to("cuda:1") for tensor in qkv(1)]
    strided = [
        torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda:1") for t in qkv(1)
    ]
    for target, source in zip(strided, tensors, strict=True):
        target.copy_(source)
    expected = attn.attn(*qkv(1))
    assert torch.cuda.current_device() == 0
    found = attn.attn(*strided)
    assert torch.cuda.current_device() == 0
    assert {output.device for output in found} == {torch.device("cuda:1")}
    torch.cuda.synchronize(1)
    assert_same([output.to("cuda:0") for output in found], expected)


def test_wrong_tensors_are_refused_and_the_next_call_works(attn):
    q, k, v = qkv(1)
    expected = attn.attn(q, k, v)
    for wrong, message in (
        (q.half(), "^q: expected BFLOAT16"),
        (q[:1], "^q: expected"),
        (q.contiguous(), "^q: expected"),  # in another order
        (q.cpu(), "^q: expected memory of a CUDA device"),
    ):
        with pytest.raises(OperandError, match=message):
            attn.attn(wrong, k, v)
        assert_same(attn.attn(q, k, v), expected)
    with pytest.raises(OperandError, match=r"^q: expected memory of a CUDA device"):
        attn.attn(*(tensor.cpu() for tensor in (q, k, v)))


def test_nothing_is_kept(attn):
    def step():
        tensors = qkv(1, requires_grad=True)
        attn.attn(*tensors)[0].sum().backward()
        with torch.inference_mode():
            outputs = attn.attn(*tensors)
            attn.attn_out(*tensors, *outputs)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        step()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
