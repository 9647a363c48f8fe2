"""A graph for each node tag that the frontend's Python API builds, and for each pointwise mode."""

import cudnn
from dump import TRAINING, TYPE, channels_last, new_graph, row_major, scalar

FLOAT, HALF = TYPE.FLOAT, TYPE.HALF
BUILDERS = {}


def tagged(build):
    """Add a function that builds a graph; its name is the graph's."""
    BUILDERS[build.__name__] = build
    return build


def operands(graph, names, *dim, **options):
    return [graph.tensor(**row_major(*dim), name=name, **options) for name in names.split()]


def outputs(tensors, *, data_type=None):
    for tensor in tensors:
        tensor.set_output(True)
        if data_type is not None:
            tensor.set_data_type(data_type)


def shaped(tensor, *dim, data_type=None):
    """Give an output the shape that the frontend does not infer."""
    layout = row_major(*dim)
    tensor.set_output(True).set_dim(layout["dim"]).set_stride(layout["stride"])
    return tensor.set_data_type(data_type) if data_type is not None else tensor


UNARY = (
    *("abs", "ceil", "cos", "elu", "erf", "exp", "floor", "gelu", "gelu_approx_tanh", "identity"),
    *("log", "logical_not", "neg", "reciprocal", "relu", "rsqrt", "sigmoid", "sin", "softplus"),
    *("sqrt", "swish", "tan", "tanh"),
)
BINARY = (
    *("add", "add_square", "bias", "cmp_eq", "cmp_ge", "cmp_gt", "cmp_le", "cmp_lt", "cmp_neq"),
    *("div", "logical_and", "logical_or", "max", "min", "mod", "mul", "pow", "scale", "sub"),
    *("elu_backward", "gelu_approx_tanh_backward", "gelu_backward", "relu_backward"),
    *("sigmoid_backward", "softplus_backward", "swish_backward", "tanh_backward"),
)


def pointwise(method, count, **options):
    graph = new_graph()
    tensors = operands(graph, " ".join("abc"[:count]), 4, 8)
    outputs([getattr(graph, method)(*tensors, **options)])
    return graph


for method, count in [*((name, 1) for name in UNARY), *((name, 2) for name in BINARY)]:
    BUILDERS[f"pointwise_{method}"] = lambda m=method, c=count: pointwise(m, c)
BUILDERS["pointwise_binary_select"] = lambda: pointwise("binary_select", 3)
BUILDERS["pointwise_gen_index"] = lambda: pointwise("gen_index", 1, axis=1)
BUILDERS["pointwise_leaky"] = lambda: pointwise("leaky_relu", 1, negative_slope=0.1)
BUILDERS["pointwise_clipped"] = lambda: pointwise(
    "relu", 1, negative_slope=0.25, lower_clip=-1.5, upper_clip=6.0
)
BUILDERS["pointwise_clipped_backward"] = lambda: pointwise(
    "relu_backward", 2, lower_clip=0.3, upper_clip=6.0
)
BUILDERS["pointwise_swish_beta"] = lambda: pointwise("swish", 1, swish_beta=1.7)
BUILDERS["pointwise_swish_backward_beta"] = lambda: pointwise("swish_backward", 2, swish_beta=1.7)


def norm(method, *, dim=(32, 128, 1, 1), has_bias=True, phase=TRAINING):
    graph = new_graph(TYPE.BFLOAT16)
    (x,) = operands(graph, "x", *dim)
    pair = operands(graph, "s b", 1, *dim[1:], data_type=FLOAT)
    weights = dict(zip(("scale", "bias"), pair, strict=True))
    if not has_bias:
        del weights["bias"]
    found = getattr(graph, method)(
        norm_forward_phase=phase, input=x, epsilon=scalar(graph, 4, name="eps"), **weights
    )
    found[0].set_output(True)
    outputs([tensor for tensor in found[1:] if tensor is not None], data_type=FLOAT)
    return graph


def norm_backward(method, *, statistics, **options):
    graph = new_graph(TYPE.BFLOAT16)
    dy, x = operands(graph, "dy x", 32, 128, 1, 1)
    (weight,) = operands(graph, "weight", 1, 128, 1, 1, data_type=FLOAT)
    saved = {
        name: graph.tensor(**row_major(32, 1, 1, 1), name=name, data_type=FLOAT)
        for name in statistics
    }
    found = getattr(graph, method)(grad=dy, input=x, scale=weight, **saved, **options)
    outputs([tensor for tensor in found if tensor is not None])
    return graph


INFERENCE = cudnn.norm_forward_phase.INFERENCE
SAVED = ("mean", "inv_variance")
BUILDERS |= {
    "layernorm": lambda: norm("layernorm"),
    "layernorm_inference": lambda: norm("layernorm", phase=INFERENCE),
    "layernorm_backward": lambda: norm_backward("layernorm_backward", statistics=SAVED),
    "rmsnorm": lambda: norm("rmsnorm", has_bias=False),
    "rmsnorm_bias": lambda: norm("rmsnorm"),
    "rmsnorm_backward": lambda: norm_backward(
        "rmsnorm_backward", statistics=SAVED[1:], has_dbias=False
    ),
    "rmsnorm_backward_bias": lambda: norm_backward(
        "rmsnorm_backward", statistics=SAVED[1:], has_dbias=True
    ),
    "adalayernorm": lambda: norm("adalayernorm", dim=(4, 16, 128)),
    "adalayernorm_backward": lambda: norm_backward("adalayernorm_backward", statistics=SAVED),
    "instancenorm": lambda: norm("instancenorm", dim=(4, 16, 8, 8)),
    "instancenorm_backward": lambda: norm_backward("instancenorm_backward", statistics=SAVED),
}


def images(graph, names, **options):
    return [graph.tensor(**channels_last(4, 16, 8, 8), name=n, **options) for n in names.split()]


def channels(graph, names):
    return operands(graph, names, 1, 16, 1, 1, data_type=FLOAT)


def batchnorm(*, running, peers):
    graph = new_graph()
    (x,) = images(graph, "x")
    scale, bias, mean, variance = channels(graph, "scale bias mean variance")
    options = {
        "in_running_mean": mean if running else None,
        "in_running_var": variance if running else None,
        "momentum": scalar(graph, 4, name="momentum") if running else None,
    }
    if peers:
        options["peer_stats"] = operands(graph, "p0 p1", 2, 64, 1, 1, data_type=FLOAT)
    found = graph.batchnorm(
        input=x, scale=scale, bias=bias, epsilon=scalar(graph, 4, name="eps"), **options
    )
    found[0].set_output(True)
    outputs([tensor for tensor in found[1:] if tensor is not None], data_type=FLOAT)
    return graph


BUILDERS |= {
    "batchnorm": lambda: batchnorm(running=True, peers=False),
    # Which frontend 1.27 and newer refuse: their None for running statistics gets lost.
    "batchnorm_batch_only": lambda: batchnorm(running=False, peers=False),
    "batchnorm_peers": lambda: batchnorm(running=True, peers=True),
}


@tagged
def batchnorm_inference():
    graph = new_graph()
    (x,) = images(graph, "x")
    mean, inv_variance, scale, bias = channels(graph, "mean inv scale bias")
    outputs([graph.batchnorm_inference(x, mean, inv_variance, scale, bias)])
    return graph


@tagged
def batchnorm_backward():
    graph = new_graph()
    dy, x = images(graph, "dy x")
    scale, mean, inv_variance = channels(graph, "scale mean inv")
    peers = operands(graph, "p0 p1", 2, 64, 1, 1, data_type=FLOAT)
    dx, *rest = graph.batchnorm_backward(
        grad=dy, input=x, scale=scale, mean=mean, inv_variance=inv_variance, peer_stats=peers
    )
    dx.set_output(True)
    outputs(rest, data_type=FLOAT)
    return graph


@tagged
def genstats():
    graph = new_graph()
    outputs(graph.genstats(*images(graph, "x")), data_type=FLOAT)
    return graph


WINDOW = {"pre_padding": [1, 0], "post_padding": [1, 2], "stride": [2, 1], "dilation": [1, 1]}


@tagged
def conv_fprop():
    graph = new_graph()
    (x,) = images(graph, "x")
    w = graph.tensor(**channels_last(32, 16, 3, 3), name="w")
    outputs([graph.conv_fprop(image=x, weight=w, **WINDOW)])
    return graph


@tagged
def conv_dgrad():
    graph = new_graph()
    dy = graph.tensor(**channels_last(4, 32, 4, 8), name="dy")
    w = graph.tensor(**channels_last(32, 16, 3, 3), name="w")
    dx = graph.conv_dgrad(loss=dy, filter=w, **WINDOW)
    layout = channels_last(4, 16, 8, 8)
    dx.set_output(True).set_dim(layout["dim"]).set_stride(layout["stride"])
    return graph


@tagged
def conv_wgrad():
    graph = new_graph()
    (x,) = images(graph, "x")
    dy = graph.tensor(**channels_last(4, 32, 4, 8), name="dy")
    dw = graph.conv_wgrad(image=x, loss=dy, **WINDOW)
    layout = channels_last(32, 16, 3, 3)
    dw.set_output(True).set_dim(layout["dim"]).set_stride(layout["stride"])
    return graph


@tagged
def matmul_padding():
    graph = new_graph()
    a, b = operands(graph, "a b", 2, 16, 16)
    outputs([graph.matmul(A=a, B=b, padding=0.5, compute_data_type=HALF)])
    return graph


@tagged
def moe():
    graph = new_graph()
    token = graph.tensor(**row_major(1, 64, 32), name="token")
    weight = graph.tensor(**row_major(4, 32, 16), name="weight")
    offset = graph.tensor(**row_major(4, 1, 1), name="offset", data_type=TYPE.INT32)
    outputs([graph.moe_grouped_matmul(token, weight, offset)])
    return graph


@tagged
def moe_backward():
    graph = new_graph()
    dy = graph.tensor(**row_major(1, 64, 16), name="dy")
    token = graph.tensor(**row_major(1, 64, 32), name="token")
    offset = graph.tensor(**row_major(4, 1, 1), name="offset", data_type=TYPE.INT32)
    shaped(graph.moe_grouped_matmul_bwd(dy, token, offset), 4, 32, 16)
    return graph


@tagged
def block_scale_quantize():
    graph = new_graph(TYPE.FLOAT)
    (x,) = operands(graph, "x", 1, 128, 128)
    y, scales = graph.block_scale_quantize(x, block_size=32, axis=2)
    shaped(y, 1, 128, 128, data_type=TYPE.FP8_E4M3)
    shaped(scales, 1, 128, 4, data_type=TYPE.FP8_E8M0)
    scales.set_reordering_type(cudnn.tensor_reordering.F8_128x4)
    return graph


@tagged
def block_scale_dequantize():
    graph = new_graph(TYPE.FP8_E4M3)
    (x,) = operands(graph, "x", 1, 128, 128)
    scales = graph.tensor(
        **row_major(1, 128, 4),
        name="scales",
        data_type=TYPE.FP8_E8M0,
        reordering_type=cudnn.tensor_reordering.F8_128x4,
    )
    # Virtual, as cuDNN has it.
    outputs([graph.relu(graph.block_scale_dequantize(x, scales, block_size=[1, 32]))])
    return graph


@tagged
def reduction():
    graph = new_graph()
    (x,) = operands(graph, "x", 4, 8, 16)
    found = graph.reduction(input=x, mode=cudnn.reduction_mode.AVG)
    shaped(found, 4, 8, 1, data_type=FLOAT)
    return graph


@tagged
def slice_with_steps():
    graph = new_graph()
    (x,) = operands(graph, "x", 4, 8, 16)
    outputs([graph.slice(x, [slice(0, 4), slice(2, 8, 2), slice(1, 16, 3)])])
    return graph


@tagged
def transpose():
    graph = new_graph()
    (x,) = operands(graph, "x", 4, 8, 16)
    outputs([graph.transpose(x, permutation=[0, 2, 1])])
    return graph


@tagged
def reshape_logical():
    graph = new_graph()
    (x,) = operands(graph, "x", 4, 8, 16)
    shaped(graph.reshape(x, reshape_mode=cudnn.reshape_mode.LOGICAL), 1, 32, 16)
    return graph


@tagged
def concatenate():
    graph = new_graph()
    parts = [graph.tensor(**row_major(2, n, 8), name=f"part{n}") for n in range(1, 13)]
    shaped(graph.concatenate(inputs=parts, axis=1), 2, 78, 8)
    return graph


@tagged
def rope():
    graph = new_graph(TYPE.BFLOAT16)
    (x,) = operands(graph, "x", 2, 8, 64, 128)
    (freqs,) = operands(graph, "freqs", 1, 1, 64, 64, data_type=FLOAT)
    outputs([graph.rope(x, freqs, output_scale=0.5, rope_dim=64)])
    return graph


@tagged
def rope_backward():
    graph = new_graph(TYPE.BFLOAT16)
    (dy,) = operands(graph, "dy", 2, 8, 64, 128)
    (freqs,) = operands(graph, "freqs", 1, 1, 64, 128, data_type=FLOAT)
    outputs([graph.rope_backward(dy, freqs)])
    return graph


@tagged
def scalars():
    graph = new_graph(FLOAT)
    (total,) = operands(graph, "x", 4, 8)
    for value in (0.5, 0.1, 3, 2**40, float("-inf"), -0.0):
        total = graph.mul(total, graph.tensor_scalar(value, cudnn.scalar_type.RUNTIME_PARAM))
    outputs([total])
    return graph


@tagged
def few_processors():
    graph = new_graph(sm_count=8)
    outputs([graph.matmul(*operands(graph, "a b", 2, 16, 16))])
    return graph
