"""Emitted operators of PyTorch on a GPU: opcheck, compiled and exported code, CUDA graphs."""

from __future__ import annotations

import io
import shlex
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import torch_graphs as tg  # noqa: E402
from torch_graphs import assert_same, error, generated, gradients, qkv, weights  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    # The warnings of torch and of the frontend are not ours to fix.
    pytest.mark.filterwarnings("default"),
]

ROUNDS = 5
EPSILON = 1e-5
# Relative, in the 2-norm, of what goes through several layers of bfloat16.
ERROR = 2e-2


@pytest.fixture(autouse=True)
def forget_compiled_code():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# PyTorch's checks, compiled and exported code


def test_opcheck(attn, conv, norm):
    tensors, weight = qkv(3), weights()
    o, stats = attn.attn(*tensors)
    operators = torch.ops.gpu_attention
    image, weights_of_conv = (
        torch.randn(dim, device="cuda").half().to(memory_format=torch.channels_last)
        for dim in (tg.IMAGE, tg.FILTER)
    )
    x = torch.randn(tg.ROWS, tg.COLUMNS, device="cuda").bfloat16()
    scale = torch.randn(tg.COLUMNS, device="cuda")
    for operator, args in (
        (operators.attn, tensors),
        (operators.attn_out, [*tensors, o.clone(), stats.clone()]),
        (operators.attn_bwd, [*tensors, o, weight, stats]),
        (operators.attn_bwd_out, [*tensors, o, weight, stats, *map(torch.empty_like, [o] * 3)]),
        (torch.ops.gpu_convolution.conv, [image.requires_grad_(), weights_of_conv]),
        (torch.ops.gpu_rms_norm.norm, [x, scale, EPSILON]),
    ):
        results = torch.library.opcheck(operator.default, tuple(args))
        assert set(results.values()) == {"SUCCESS"}, operator


def test_opcheck_with_gradients(attn):
    """Its last test would send a gradient into stats, which raises, as it must."""
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    operator = torch.ops.gpu_attention.attn.default
    args = tuple(qkv(3, requires_grad=True))
    results = torch.library.opcheck(operator, args, test_utils=tests)
    assert set(results.values()) == {"SUCCESS"}
    with pytest.raises(RuntimeError, match=r"^stats: expected no gradient"):
        attn.attn(*args)[1].sum().backward()


MODES = [{}, {"dynamic": True}, {"mode": "reduce-overhead"}]


@pytest.mark.parametrize("options", MODES, ids=str)
def test_compiled_calls_give_the_same_bits(attn, options):
    compiled = torch.compile(lambda *x: attn.attn(*x), fullgraph=True, **options)
    for seed in range(ROUNDS):
        tensors = qkv(seed)
        expected = attn.attn(*tensors)
        found = [output.clone() for output in compiled(*tensors)]
        assert_same(found, expected)


@pytest.mark.parametrize("options", MODES, ids=str)
def test_compiled_gradients_have_the_same_bits(attn, options):
    compiled = torch.compile(generated(attn), fullgraph=True, **options)
    for seed in range(ROUNDS):
        tensors, weight = qkv(seed), weights(seed)
        expected = gradients(generated(attn), tensors, weight)
        found = [gradient.clone() for gradient in gradients(compiled, tensors, weight)]
        assert_same(found, expected)


def test_cuda_graph_trees_take_the_operators(packed):
    """Nothing was left out of CUDA graphs, and replays see new inputs at new addresses.

    q, k and v are views of what a product writes, with gaps: compiled code must keep their strides.
    """
    from torch._dynamo.utils import counters

    counters.clear()

    def step(x, project):
        buffer = (x @ project).view(tg.BATCH, tg.LENGTH, 3, tg.HEADS, tg.SIZE)
        q, k, v = buffer.permute(2, 0, 3, 1, 4).unbind()
        o = packed.packed_attn(q, k, v)[0]
        return o.transpose(1, 2).reshape(tg.BATCH, tg.LENGTH, -1)

    width = tg.HEADS * tg.SIZE
    compiled = torch.compile(step, fullgraph=True, mode="reduce-overhead")
    project = (torch.randn(width, 3 * width, device="cuda") / width**0.5).bfloat16()
    project.requires_grad_()
    kept = []
    for seed in range(2 * ROUNDS):
        generator = torch.Generator("cuda").manual_seed(seed)
        shape = (tg.BATCH, tg.LENGTH, width)
        x = torch.randn(shape, device="cuda", generator=generator).bfloat16()
        kept.append(x)  # the next one lies elsewhere
        weight = torch.randn(shape, device="cuda", generator=generator).bfloat16()
        torch.compiler.cudagraph_mark_step_begin()
        results = []
        for call in (compiled, step):
            o = call(x, project)
            results.append((o.clone(), *torch.autograd.grad(o, [project], weight)))
        for found, expected in zip(*results, strict=True):
            assert error(found, expected) < ERROR
    assert counters["inductor"]["cudagraph_skips"] == 0


def test_an_exported_program_runs_again(attn):
    class Layer(torch.nn.Module):
        def forward(self, q, k, v):
            return attn.attn(q, k, v)[0] * 2

    program = torch.export.export(Layer(), tuple(qkv(0)))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for loaded in (program, torch.export.load(file)):
        assert "gpu_attention.attn.default" in str(loaded.graph)
        tensors = qkv(4)
        assert torch.equal(loaded.module()(*tensors), attn.attn(*tensors)[0] * 2)


def test_a_graph_of_forward_and_backward_by_hand(attn):
    tensors, weight = qkv(5, requires_grad=True), weights()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # PyTorch asks for a warm-up
        torch.autograd.grad(attn.attn(*tensors)[0], tensors, weight)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = torch.autograd.grad(attn.attn(*tensors)[0], tensors, weight)
    for seed in range(ROUNDS):
        with torch.no_grad():
            for target, source in zip(tensors, qkv(seed), strict=True):
                target.copy_(source)
        graph.replay()
        expected = gradients(generated(attn), tensors, weight)
        torch.cuda.synchronize()
        assert_same(found, expected)


# The example


def test_the_example_trains_as_its_readme_says(frontend, tmp_path):
    directory = tmp_path / "attention"
    shutil.copytree(tg.EXAMPLE, directory, ignore=shutil.ignore_patterns("attn*", "__pycache__"))
    section = (directory / "README.md").read_text().split("## Run it")[1].split("\n## ")[0]
    programs = {
        "python": [sys.executable],
        "cudnn-bindgen": [sys.executable, "-m", "cudnn_bindgen.cli"],
    }
    for line in section.splitlines():
        if line.startswith("    "):
            program, *arguments = shlex.split(line)
            command = [*programs[program], *arguments]
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["step", "PyTorch", "generated", "compiled"]
    curves = [[float(number) for number in line.split()[1:]] for line in lines]
    assert len(curves) == 8
    for reference, *others in curves:
        assert others == pytest.approx([reference] * 2, rel=0.02)
    assert all(last < 0.9 * first for first, last in zip(curves[0], curves[-1], strict=True))
