"""Build graphs with the real cuDNN frontend, without a GPU, and print their dumps as JSON.

Usage: dump.py [reversed]. Run by test_frontend.py in a process of its own: the frontend
loads the libcudnn that LD_LIBRARY_PATH names, here the stand-in, and keeps it as long as it lives.
"""

import json
import sys

import cudnn
import cudnn._pygraph

# Lower without a handle: to make one the frontend (1.29 and newer) would ask CUDA for a device.
cudnn._pygraph._default_backend_handle = lambda *arguments, **keywords: None
# Lower in validate(), always: where 1.32 ships engines of its own (SDPA) it puts lowering off until
# plans are made, which takes a GPU.
cudnn._pygraph.pygraph._python_native_validator = lambda graph: None

TYPE = cudnn.data_type
TRAINING = cudnn.norm_forward_phase.TRAINING
BUILDERS = {}


def dumped(build):
    """Add a function that builds a graph; its name is the dump's."""
    BUILDERS[build.__name__] = build
    return build


def new_graph(io_data_type=TYPE.HALF, **options):
    options["sm_version"] = 90  # else lowering SDPA asks CUDA for the device's
    return cudnn.pygraph(
        io_data_type=io_data_type,
        intermediate_data_type=TYPE.FLOAT,
        compute_data_type=TYPE.FLOAT,
        **options,
    )


def scalar(graph, rank, **options):
    """A tensor of one element, by value unless `options` say otherwise."""
    options = {"is_pass_by_value": True, "data_type": TYPE.FLOAT} | options
    return graph.tensor(dim=[1] * rank, stride=[1] * rank, **options)


def row_major(*dim):
    stride = [1]
    for size in reversed(dim[1:]):
        stride.insert(0, stride[0] * size)
    return {"dim": list(dim), "stride": stride}


def channels_last(n, c, h, w):
    return {"dim": [n, c, h, w], "stride": [c * h * w, 1, c * w, c]}


@dumped
def matmul_bias_relu():
    graph = new_graph()
    a = graph.tensor(**row_major(2, 64, 32), name="A")
    b = graph.tensor(**row_major(2, 32, 16), name="B")
    bias = graph.tensor(**row_major(1, 1, 16), name="bias")
    product = graph.matmul(A=a, B=b)
    y = graph.relu(graph.bias(input=product, bias=bias))
    y.set_output(True).set_name("Y")
    return graph


@dumped
def matmul_names_of_the_frontend():
    graph = new_graph()
    a = graph.tensor(**row_major(2, 64, 32))
    b = graph.tensor(**row_major(2, 32, 16))
    graph.matmul(A=a, B=b).set_output(True)
    return graph


@dumped
def conv():
    graph = new_graph()
    x = graph.tensor(**channels_last(4, 8, 16, 16), name="image")
    w = graph.tensor(**channels_last(32, 8, 3, 3), name="weight")
    y = graph.conv_fprop(image=x, weight=w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y.set_output(True)
    return graph


def norm(forward, *, has_bias):
    graph = new_graph(TYPE.BFLOAT16)
    x = graph.tensor(**row_major(32, 128, 1, 1), name="x")
    weights = {"scale": graph.tensor(**row_major(1, 128, 1, 1), data_type=TYPE.FLOAT)}
    if has_bias:
        weights["bias"] = graph.tensor(**row_major(1, 128, 1, 1), data_type=TYPE.FLOAT)
    epsilon = scalar(graph, 4, name="epsilon")
    outputs = getattr(graph, forward)(
        norm_forward_phase=TRAINING, input=x, epsilon=epsilon, **weights
    )
    outputs[0].set_output(True)
    for statistic in outputs[1:]:
        statistic.set_output(True).set_data_type(TYPE.FLOAT)
    return graph


@dumped
def layernorm_training():
    return norm("layernorm", has_bias=True)


@dumped
def rmsnorm():
    return norm("rmsnorm", has_bias=False)


def attention(graph, dims, **options):
    q, k, v = (
        graph.tensor(**row_major(*dim), name=name) for name, dim in zip("qkv", dims, strict=True)
    )
    o, stats = graph.sdpa(
        q=q, k=k, v=v, attn_scale=0.125, generate_stats=True, name="sdpa", **options
    )
    o.set_output(True).set_dim(list(dims[0])).set_stride(row_major(*dims[0])["stride"])
    stats.set_output(True).set_data_type(TYPE.FLOAT)
    return q, k, v, o, stats


@dumped
def sdpa_causal():
    graph = new_graph(TYPE.BFLOAT16)
    attention(graph, [(2, 8, 256, 64), (2, 2, 256, 64), (2, 2, 256, 64)], use_causal_mask=True)
    return graph


@dumped
def sdpa_ragged():
    graph = new_graph(TYPE.BFLOAT16)
    lengths = {
        name: graph.tensor(**row_major(2, 1, 1, 1), data_type=TYPE.INT32)
        for name in ("seq_len_q", "seq_len_kv")
    }
    dims = [(2, 8, 256, 64), (2, 2, 512, 64), (2, 2, 512, 64)]
    tensors = attention(graph, dims, use_padding_mask=True, **lengths)
    q_offset, kv_offset = (
        graph.tensor(**row_major(3, 1, 1, 1), data_type=TYPE.INT64, name=name)
        for name in ("q_offsets", "")
    )
    q, k, v, o, _ = tensors
    for tensor, offset in ((q, q_offset), (k, kv_offset), (v, kv_offset), (o, q_offset)):
        tensor.set_ragged_offset(offset)
    return graph


def scaled(**options):
    """x * alpha with alpha as `options` make it."""
    graph = new_graph(TYPE.FLOAT)
    x = graph.tensor(**row_major(4, 8), name="x")
    graph.mul(a=x, b=scalar(graph, 2, **options)).set_output(True)
    return graph


@dumped
def scalar_without_value():
    return scaled(name="alpha")


@dumped
def scalar_without_value_or_name():
    return scaled(data_type=TYPE.INT32)


@dumped
def scalar_as_device_tensor():
    return scaled(name="alpha", is_pass_by_value=False)


def scaled_by_value(value, scalar_type):
    graph = new_graph(TYPE.FLOAT)
    x = graph.tensor(**row_major(4, 8), name="x")
    # The frontend drops this name: no value that it dumps belongs to a tensor the user named.
    alpha = graph.tensor_scalar(value, scalar_type, name="alpha")
    graph.mul(a=x, b=alpha).set_output(True)
    return graph


@dumped
def scalar_with_value():
    return scaled_by_value(0.5, cudnn.scalar_type.RUNTIME_PARAM)


@dumped
def scalar_with_integer_value():
    return scaled_by_value(2**40, cudnn.scalar_type.RUNTIME_PARAM)


@dumped
def scalar_of_compile_time():
    return scaled_by_value(0.5, cudnn.scalar_type.COMPILE_TIME_CONST)


@dumped
def scalar_as_number():
    """The one place where the frontend takes a Python number for a tensor: SDPA's attn_scale."""
    graph = new_graph(TYPE.BFLOAT16)
    attention(graph, [(1, 2, 64, 64)] * 3)
    return graph


@dumped
def reduction():
    graph = new_graph()
    x = graph.tensor(**row_major(4, 8, 16), name="x")
    y = graph.reduction(input=x, mode=cudnn.reduction_mode.MAX)
    y.set_output(True).set_dim([4, 8, 1]).set_stride([8, 1, 1]).set_data_type(TYPE.FLOAT)
    return graph


@dumped
def uids():
    graph = new_graph()
    a = graph.tensor(**row_major(1, 8, 8), uid=0)
    b = graph.tensor(**row_major(1, 8, 8), uid=-7)
    c = graph.tensor(**row_major(1, 1, 8), uid=2**62)
    y = graph.bias(input=graph.matmul(A=a, B=b), bias=c)
    y.set_output(True).set_uid(-(2**63))
    return graph


HOSTILE_NAMES = (
    "class",
    'quote " and \\',
    "two\nlines",
    "ünïcode ∂x",
    "x" * 200,
    "execute",
    "",
    "a b",
)


@dumped
def hostile_names():
    graph = new_graph()
    total = graph.tensor(**row_major(4, 8), name="import")
    for name in HOSTILE_NAMES:
        total = graph.add(a=total, b=graph.tensor(**row_major(4, 8), name=name))
    total.set_output(True).set_name('"""')
    return graph


@dumped
def same_name_twice():
    graph = new_graph()
    a = graph.tensor(**row_major(4, 8), name="x")
    b = graph.tensor(**row_major(4, 8), name="x")
    graph.add(a=a, b=b).set_output(True).set_name("x")
    return graph


@dumped
def overrides():
    graph = new_graph(is_override_shape_enabled=True)
    a = graph.tensor(**row_major(1, 64, 32), name="A")
    b = graph.tensor(**row_major(1, 32, 16), name="B")
    graph.matmul(A=a, B=b).set_output(True)
    return graph


def dump(build):
    graph = build()
    early = str(graph)  # before anything is lowered
    graph.validate()
    return {"text": str(graph), "early": early}


if __name__ == "__main__":
    # In the other order each graph gets another gid.
    order = reversed(BUILDERS) if "reversed" in sys.argv else BUILDERS
    print(json.dumps({name: dump(BUILDERS[name]) for name in order}))
