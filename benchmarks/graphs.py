"""Graphs, their operands and their generated modules, for the benchmarks and the GPU tests.

torch and the cuDNN frontend are imported inside the functions, so that tests can be collected on
machines that have neither.
"""

from __future__ import annotations

import functools
import importlib
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# -- Graphs, built by the frontend ----------------------------------------------------------------


@functools.cache
def frontend_handle():
    """Return the frontend's handle; for the main thread only, as cuDNN forbids sharing one."""
    import cudnn

    return cudnn.create_handle()


def _graph(io_data_type):
    import cudnn

    return cudnn.pygraph(
        io_data_type=getattr(cudnn.data_type, io_data_type),
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=frontend_handle(),
    )


def _output(tensor, dim, stride, data_type):
    import cudnn

    tensor.set_output(True).set_dim(dim).set_stride(stride)
    tensor.set_data_type(getattr(cudnn.data_type, data_type))


def _build(graph):
    import cudnn

    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    if graph.selected_engine is not None:
        raise RuntimeError(f"served by {graph.selected_engine.name}, not by cuDNN: no plan file")
    return graph


def _channels_last(n, c, h, w):
    return [n, c, h, w], [c * h * w, 1, w * c, c]


def matmul_256():
    """Build one matrix product, 256 on every side."""
    graph = _graph("BFLOAT16")
    dim, stride = [1, 256, 256], [65536, 256, 1]
    a = graph.tensor(dim=dim, stride=stride)
    b = graph.tensor(dim=dim, stride=stride)
    _output(graph.matmul(a, b), dim, stride, "BFLOAT16")
    return _build(graph)


def conv_bias_relu():
    """Build a convolution, channels last, with bias and ReLU fused."""
    graph = _graph("HALF")
    x_dim, x_stride = _channels_last(8, 32, 28, 28)
    w_dim, w_stride = _channels_last(64, 32, 3, 3)
    b_dim, b_stride = _channels_last(1, 64, 1, 1)
    x = graph.tensor(dim=x_dim, stride=x_stride)
    w = graph.tensor(dim=w_dim, stride=w_stride)
    b = graph.tensor(dim=b_dim, stride=b_stride, name="conv_bias")
    y = graph.conv_fprop(image=x, weight=w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y = graph.relu(graph.bias(input=y, bias=b))
    _output(y, *_channels_last(8, 64, 28, 28), "HALF")
    return _build(graph)


_ATTENTION = [2, 8, 256, 64], [131072, 16384, 64, 1]


def sdpa_inference():
    """Build causal attention without Stats."""
    graph = _graph("BFLOAT16")
    dim, stride = _ATTENTION
    q, k, v = (graph.tensor(dim=dim, stride=stride) for _ in range(3))
    o, _ = graph.sdpa(q=q, k=k, v=v, generate_stats=False, attn_scale=0.125, use_causal_mask=True)
    _output(o, dim, stride, "BFLOAT16")
    return _build(graph)


def sdpa_backward():
    """Build the gradients of attention, by the algorithm that gives the same bits every time.

    The usual one adds up dQ with atomics, in an order that changes from run to run: then there is
    nothing to compare bit for bit.
    """
    graph = _graph("BFLOAT16")
    dim, stride = _ATTENTION
    q, k, v, o, d_o = (graph.tensor(dim=dim, stride=stride) for _ in range(5))
    stats = graph.tensor(dim=[2, 8, 256, 1], stride=[2048, 256, 1, 1], data_type=_float())
    gradients = graph.sdpa_backward(
        q=q, k=k, v=v, o=o, dO=d_o, stats=stats, attn_scale=0.125, use_deterministic_algorithm=True
    )
    for gradient in gradients:
        _output(gradient, dim, stride, "BFLOAT16")
    return _build(graph)


def rms_norm():
    """Build RMS norm in the training phase; epsilon is a scalar that every call passes."""
    import cudnn

    graph = _graph("BFLOAT16")
    dim, stride = [512, 1024, 1, 1], [1024, 1, 1, 1]
    x = graph.tensor(dim=dim, stride=stride)
    scale = graph.tensor(dim=[1, 1024, 1, 1], stride=stride, data_type=_float())
    epsilon = _scalar(graph, "epsilon", 4)
    phase = cudnn.norm_forward_phase.TRAINING
    y, inv_variance = graph.rmsnorm(norm_forward_phase=phase, input=x, scale=scale, epsilon=epsilon)
    _output(y, dim, stride, "BFLOAT16")
    _output(inv_variance, [512, 1, 1, 1], [1, 1, 1, 1], "FLOAT")
    return _build(graph)


def reduction():
    """Build a maximum over all but the channels.

    A maximum, because a sum's bits depend on the order in which its blocks add up (atomics), so
    that not even two runs of one plan agree.
    """
    import cudnn

    graph = _graph("HALF")
    dim, stride = _channels_last(8, 64, 28, 28)
    x = graph.tensor(dim=dim, stride=stride)
    y = graph.reduction(input=x, mode=cudnn.reduction_mode.MAX)
    _output(y, *_channels_last(1, 64, 1, 1), "FLOAT")
    return _build(graph)


def required_scalar():
    """Build a product with a scalar that has no value in the graph."""
    graph = _graph("HALF")
    dim, stride = [8, 32, 64], [2048, 64, 1]
    x = graph.tensor(dim=dim, stride=stride)
    y = graph.mul(x, _scalar(graph, "alpha", 3))
    _output(y, dim, stride, "HALF")
    return _build(graph)


def _scalar(graph, name, rank):
    one = [1] * rank
    return graph.tensor(dim=one, stride=one, data_type=_float(), is_pass_by_value=True, name=name)


def _float():
    import cudnn

    return cudnn.data_type.FLOAT


BUILDERS = {
    builder.__name__: builder
    for builder in (
        matmul_256,
        conv_bias_relu,
        sdpa_inference,
        sdpa_backward,
        rms_norm,
        reduction,
        required_scalar,
    )
}


def plan_bytes(graph):
    """Return what `graph.serialize()` writes to a plan file."""
    return bytes(graph.serialize(as_bytes=True))


def structure_text(graph):
    """Return the graph's structure as JSON text."""
    return repr(graph)


def reference_graph(plan, handle):
    """Return the frontend's own graph for the bytes of a plan file, ready to execute."""
    import cudnn

    graph = cudnn.pygraph(handle=handle)
    graph.deserialize(handle, plan)
    return graph


# -- Operands -------------------------------------------------------------------------------------

_TORCH_NAMES = {
    "BFLOAT16": "bfloat16",
    "BOOLEAN": "bool",
    "DOUBLE": "float64",
    "FLOAT": "float32",
    "FP8_E4M3": "float8_e4m3fn",
    "FP8_E5M2": "float8_e5m2",
    "HALF": "float16",
    "INT32": "int32",
    "INT64": "int64",
}


def make_operands(operands, generator, device):
    """Return fresh operands that are valid for the graph: uid → tensor.

    Inputs are random, padding between elements included; every byte of an output is 0xFF, a NaN in
    all float types. Scalars are CPU tensors, those with a default are left to the module.
    """
    named = {_stem(operand): operand for operand in operands}
    lengths = _sequence_lengths(named, generator, device)
    return {
        operand.uid: _make_operand(operand, named, lengths, generator, device)
        for operand in operands
        if operand.default is None
    }


def _make_operand(operand, named, lengths, generator, device):
    import torch

    dtype = getattr(torch, _TORCH_NAMES[operand.data_type.upper()])
    if operand.role == "scalar":
        value = torch.rand((), generator=generator, device=device).item() + 0.5
        value = value if dtype.is_floating_point else 2
        return torch.full(operand.dim or (1,), value, dtype=dtype)
    dim, stride = tuple(operand.dim), _packed_stride(operand, named)
    # Python's integers, not 32 bits: PyTorch writes strides of INT_MAX.
    span = 0 if 0 in dim else 1 + sum((d - 1) * s for d, s in zip(dim, stride, strict=True))
    if operand.role == "output":
        flat = torch.full((span * dtype.itemsize,), 0xFF, dtype=torch.uint8, device=device)
        flat = flat.view(dtype)
    else:
        values = _values(operand, named, lengths, span, dtype, generator, device)
        flat = values.to(device=device, dtype=dtype)
    return flat.as_strided(dim, stride)


def _values(operand, named, lengths, count, dtype, generator, device):
    import torch

    def random_integers(low, high):
        return torch.randint(low, high, (count,), generator=generator, device=device)

    stem = _stem(operand)
    if stem.startswith("seq_len"):
        return torch.tensor(lengths["kv" if "kv" in stem else "q"])
    if stem.endswith("ragged_offset"):
        owner = named[stem.removesuffix("_ragged_offset")]
        tokens = torch.tensor([0, *lengths[_side(owner)]], dtype=torch.int64).cumsum(0)
        return tokens * owner.stride[_token_axis(owner)]
    if stem.startswith("page_table"):
        return random_integers(0, named[stem.removeprefix("page_table_")].dim[0])
    if dtype == torch.bool:
        return random_integers(0, 2)
    if stem.startswith(("seed", "offset")):
        return random_integers(0, 1 << 20)
    if not dtype.is_floating_point:
        raise ValueError(f"{operand.argument}: no rule for valid values of {operand.data_type}")
    values = torch.randn(count, generator=generator, device=device)
    # Stats is a log-sum-exp over a few hundred scores; far below it, exp(score - Stats) overflows.
    return values * 0.5 + 6 if stem.startswith("stats") else values


def _stem(operand):
    return operand.argument.removesuffix("_ptr").lower()


def _side(operand):
    return "kv" if _stem(operand) in {"k", "v", "dk", "dv"} else "q"


def _token_axis(operand):
    # A lowered graph has K as its transpose; the other one of the two axes has stride 1.
    return 2 if operand.stride[2] >= operand.stride[3] else 3


def _packed_stride(operand, named):
    # A ragged tensor's sequences follow each other; its batch stride is not used, and may be huge.
    stride = tuple(operand.stride)
    if f"{_stem(operand)}_ragged_offset" not in named:
        return stride
    axis = _token_axis(operand)
    return (operand.dim[axis] * stride[axis], *stride[1:])


def _sequence_lengths(named, generator, device):
    import torch

    lengths = {}
    for side, owner in (("q", "q"), ("kv", "k")):
        tensor = named.get(owner)
        if tensor is None or len(tensor.dim) != 4:
            continue
        batch, longest = named["q"].dim[0], tensor.dim[_token_axis(tensor)]
        pages = named.get(f"page_table_{owner}")
        if pages is not None:
            longest *= pages.dim[2]
        lengths[side] = [longest] * batch
        if f"seq_len_{side}" in named:
            drawn = torch.randint(1, longest + 1, (batch,), generator=generator, device=device)
            lengths[side] = drawn.tolist()
    return lengths


def arguments(operands, tensors):
    """Return what `execute` takes for these tensors, in its order."""
    # Scalars with a default come last, so leaving them out moves nothing.
    return [
        tensors[operand.uid].item() if operand.role == "scalar" else tensors[operand.uid].data_ptr()
        for operand in operands
        if operand.uid in tensors
    ]


def storage(tensor):
    """Return every byte behind a tensor, padding included, as a view."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def clone(tensors):
    """Return the same operands at new addresses."""
    return {
        uid: storage(tensor).clone().view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
        for uid, tensor in tensors.items()
    }


def poison(operands, tensors):
    """Fill every byte of the outputs with 0xFF again."""
    for operand in operands:
        if operand.role == "output":
            storage(tensors[operand.uid]).fill_(0xFF)


# -- Generated modules ----------------------------------------------------------------------------


def build_modules(plans, directory, options=()):
    """Compile one module for each plan file, module name → path; return what failed, and why."""

    def build(item):
        name, plan = item
        tool = [sys.executable, "-m", "cudnn_bindgen.cli", "build", str(Path(plan).resolve())]
        # In the target folder: the repository's own folders are not to be importable from here.
        run = subprocess.run(
            [*tool, "-d", str(directory), "--name", name, *options],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return name, f"building it from {plan} failed:\n{run.stdout}" if run.returncode else ""

    # A process for each: the C++ compiler takes all the time.
    with ThreadPoolExecutor() as pool:
        return {name: failure for name, failure in pool.map(build, plans.items()) if failure}


def import_module(name, directory):
    """Import a module that build_modules compiled."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    return importlib.import_module(name)


def machine_facts():
    """Return what a reader needs to judge a measurement."""
    import cudnn
    import torch

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "cudnn": cudnn.backend_version_string(),
        "frontend": cudnn.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": " ".join(sys.argv),
    }
