"""Forward and backward graphs of the frontend, and what PyTorch says of the same computation.

torch and the frontend are imported inside the functions: tests are collected without them, too.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import graphs  # on the path since conftest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/attention"

BATCH, HEADS, LENGTH, SIZE = 2, 4, 128, 64
IMAGE, FILTER, RESULT = [8, 32, 14, 14], [64, 32, 3, 3], [8, 64, 14, 14]
ROWS, COLUMNS = 256, 512


def attention() -> dict[str, Any]:
    """Causal SDPA and its gradient, deterministic; q, k and v dense, as opcheck's copies are."""
    return _attention(is_packed=False)


def packed_attention() -> dict[str, Any]:
    """The same, with q, k and v in one buffer."""
    built = _attention(is_packed=True)
    return {f"packed_{name}": graph for name, graph in built.items()}


def _attention(*, is_packed):
    spec = importlib.util.spec_from_file_location("attention_plans", EXAMPLE / "plans.py")
    plans = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plans)
    handle = graphs.frontend_handle()
    shape = (BATCH, HEADS, LENGTH, SIZE)
    return plans.build_plans(handle, *shape, is_packed=is_packed, is_deterministic=True)


def convolution() -> dict[str, Any]:
    """A convolution and its two gradients; nobody named a tensor, so ports pair them."""
    (x, w, y) = (graphs._channels_last(*dim) for dim in (IMAGE, FILTER, RESULT))
    how = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}

    def tensors(graph, *forms):
        return (graph.tensor(dim=dim, stride=stride) for dim, stride in forms)

    forward, dgrad, wgrad = (graphs._graph("HALF") for _ in range(3))
    image, weight = tensors(forward, x, w)
    graphs._output(forward.conv_fprop(image=image, weight=weight, **how), *y, "HALF")
    loss, weight = tensors(dgrad, y, w)
    graphs._output(dgrad.conv_dgrad(loss=loss, filter=weight, **how), *x, "HALF")
    loss, image = tensors(wgrad, y, x)
    graphs._output(wgrad.conv_wgrad(image=image, loss=loss, **how), *w, "HALF")
    built = {"conv": forward, "dgrad": dgrad, "wgrad": wgrad}
    return {name: graphs._build(graph) for name, graph in built.items()}


def rms_norm() -> dict[str, Any]:
    """RMS norm with a scalar, and its gradient."""
    import cudnn

    row, stat = ([1, COLUMNS, 1, 1], [COLUMNS, 1, 1, 1]), ([ROWS, 1, 1, 1], [1, 1, 1, 1])
    whole = [ROWS, COLUMNS, 1, 1], [COLUMNS, 1, 1, 1]

    def tensor(graph, name, form, data_type="BFLOAT16"):
        kind = getattr(cudnn.data_type, data_type)
        return graph.tensor(dim=form[0], stride=form[1], name=name, data_type=kind)

    forward, backward = graphs._graph("BFLOAT16"), graphs._graph("BFLOAT16")
    y, rstd = forward.rmsnorm(
        norm_forward_phase=cudnn.norm_forward_phase.TRAINING,
        input=tensor(forward, "x", whole),
        scale=tensor(forward, "scale", row, "FLOAT"),
        epsilon=graphs._scalar(forward, "epsilon", 4),
    )
    graphs._output(y.set_name("y"), *whole, "BFLOAT16")
    graphs._output(rstd.set_name("rstd"), *stat, "FLOAT")
    dx, dscale, _ = backward.rmsnorm_backward(
        grad=tensor(backward, "dy", whole),
        input=tensor(backward, "x", whole),
        scale=tensor(backward, "scale", row, "FLOAT"),
        inv_variance=tensor(backward, "rstd", stat, "FLOAT"),
        has_dbias=False,
    )
    graphs._output(dx.set_name("dx"), *whole, "BFLOAT16")
    graphs._output(dscale.set_name("dscale"), *row, "FLOAT")
    return {"norm": graphs._build(forward), "norm_bwd": graphs._build(backward)}


def build_operators(built: Mapping[str, Any], directory: Path, namespace: str) -> Any:
    """Write the plans, build the modules with their operators, import those of the first."""
    paths = {name: directory / f"{name}.plan" for name in built}
    for name, graph in built.items():
        paths[name].write_bytes(graphs.plan_bytes(graph))
    forward, *backwards = paths.values()
    command = [sys.executable, "-m", "cudnn_bindgen.cli", "build", str(forward), "-d", directory]
    command += ["--torch", "--torch-namespace", namespace]
    command += [f"--backward={path}" for path in backwards]
    # In the target folder: the repository's own folders are not to be importable from here.
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return graphs.import_module(f"{forward.stem}_torch", directory)


def frontend_outputs(
    graph: Any, module: Any, tensors: Sequence[Any], outputs: Sequence[Any]
) -> None:
    """Run the frontend's graph on tensors in the order of a module's operands."""
    import torch

    operands = [operand for operand in module.OPERANDS if operand.role != "scalar"]
    pack = {o.uid: tensor for o, tensor in zip(operands, (*tensors, *outputs), strict=True)}
    size = max(graph.get_workspace_size(), 1)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    graph.execute(pack, workspace, handle=graphs.frontend_handle())
    torch.cuda.synchronize()


def reference_attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention in the precision of its arguments."""
    import torch

    scores = q @ k.transpose(-1, -2) / SIZE**0.5
    hidden = torch.ones(LENGTH, LENGTH, device=q.device, dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def qkv(seed, *, requires_grad=False):
    """[batch, heads, length, size] over memory [batch, length, heads, size]; leaves."""
    import torch

    generator = torch.Generator("cuda").manual_seed(seed)
    shape = (3, BATCH, LENGTH, HEADS, SIZE)
    values = torch.randn(shape, device="cuda", generator=generator).bfloat16().transpose(2, 3)
    return [value.detach().requires_grad_(requires_grad) for value in values]


def weights(seed=99):
    """A gradient that arrives for o, in its layout."""
    import torch

    generator = torch.Generator("cuda").manual_seed(seed)
    shape = (BATCH, LENGTH, HEADS, SIZE)
    return torch.randn(shape, device="cuda", generator=generator).bfloat16().transpose(1, 2)


def error(found, expected):
    difference = found.double() - expected.double()
    return (difference.norm() / expected.double().norm()).item()


def assert_same(found, expected):
    import torch

    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def gradients(attend, tensors, weight):
    import torch

    copies = [tensor.detach().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(attend(*copies), copies, weight)


def generated(attn):
    return lambda *tensors: attn.attn(*tensors)[0]


def own(q, k, v):
    from torch.nn import functional

    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
