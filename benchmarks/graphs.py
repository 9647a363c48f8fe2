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

# The frontend's engine sdpa_fwd_prefill_sm90 (1.32).
OWN_ATTENTION = 20517

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
    return matmul(256)


def matmul(m):
    """Build the product of m rows with a square matrix, 256 on its sides."""
    graph = _graph("BFLOAT16")
    dim, stride = [1, m, 256], [m * 256, 256, 1]
    a = graph.tensor(dim=dim, stride=stride)
    b = graph.tensor(dim=[1, 256, 256], stride=[65536, 256, 1])
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


def _heads(batch, length):
    return [batch, 8, length, 64], [8 * length * 64, length * 64, 64, 1]


_ATTENTION = _heads(2, 256)


def sdpa_inference():
    """Build causal attention without Stats."""
    return attention(2, 256)


def attention(batch, length):
    """Build the same for a batch and a length of sequences."""
    graph = _graph("BFLOAT16")
    dim, stride = _heads(batch, length)
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


def own_engine(structure):
    """Plan a graph file with the frontend's own engine for attention on SM 90.

    Return the plan file of its kernels, and the frontend's graph of the same engine, which executes
    with `frontend_handle()`. Raises what is missing: cutlass-dsl, tvm-ffi, PyTorch.
    """
    import cudnn

    from cudnn_bindgen.frontend.planning.candidates import build_at
    from cudnn_bindgen.frontend.planning.deviceless import Task, make_plans, own_cudnn
    from cudnn_bindgen.frontend.planning.driver import read_here
    from cudnn_bindgen.frontend.planning.make_plan import read_input
    from cudnn_bindgen.frontend.planning.options import PlanOptions
    from cudnn_bindgen.frontend.planning.rebuild import rebuild

    options = PlanOptions(engine=OWN_ATTENTION)
    task = Task(graph=structure, properties=read_here().text, options=options)
    answer = make_plans({0: task}, own_cudnn())[0]
    if isinstance(answer, Exception):
        raise answer
    graph = rebuild(read_input(structure), {}, cudnn, {"handle": frontend_handle()})
    graph.build_operation_graph()
    graph.create_execution_plan(OWN_ATTENTION, {})
    build_at(graph, graph.get_execution_plan_count() - 1, None, cudnn)
    return answer.plan, graph


# -- Operands -------------------------------------------------------------------------------------


def make_operands(operands, generator, device):
    """Return fresh operands that are valid for the graph: uid → tensor.

    As `cudnn-bindgen plan --autotune` makes them; scalars with a default are left to the module.
    """
    import torch

    from cudnn_bindgen.frontend.planning import operands as planning
    from cudnn_bindgen.frontend.planning.wanted import Wanted

    wanted = [
        # A module does not state ports, but names after them what the user did not name.
        Wanted(
            uid=operand.uid,
            name=operand.argument,
            port=operand.argument.removesuffix("_ptr").lower(),
            role=operand.role,
            data_type=operand.data_type.upper(),
            dim=tuple(operand.dim),
            stride=tuple(operand.stride),
        )
        for operand in operands
        if operand.default is None
    ]
    return planning.make_operands(torch, wanted, generator, device)


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

    from cudnn_bindgen.frontend.planning import torch_types

    return torch_types.storage(torch, tensor)


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


def build_family(name, plans, directory, options=()):
    """Compile and import one module for plan files that differ in shape only."""
    tool = [sys.executable, "-m", "cudnn_bindgen.cli", "build", "--family", name]
    run = subprocess.run(
        [*tool, *(str(Path(plan).resolve()) for plan in plans), "-d", str(directory), *options],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"building {name} failed:\n{run.stdout}")
    return import_module(name, directory)


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
