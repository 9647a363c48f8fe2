"""The graphs of the matrix about names, uids and scalars."""

from __future__ import annotations

import cudnn
from shapes import (
    FLOAT,
    TYPE,
    channels_last,
    dumped,
    new_graph,
    output,
    row_major,
    scalar,
    with_uids,
)


@dumped
def matmul_bias_relu():
    graph = new_graph()
    a = graph.tensor(**row_major(2, 64, 32), name="A")
    b = graph.tensor(**row_major(2, 32, 16), name="B")
    bias = graph.tensor(**row_major(1, 1, 16), name="bias")
    product = graph.matmul(A=a, B=b, name="matmul")
    biased = graph.bias(input=product, bias=bias, name="add_bias")
    output(graph.relu(biased, name="relu"), "Y")
    return graph


@dumped
def matmul_unnamed():
    graph = new_graph()
    a = graph.tensor(**row_major(2, 64, 32))
    b = graph.tensor(**row_major(2, 32, 16))
    output(graph.relu(graph.matmul(A=a, B=b)))
    return graph


def conv_bias_relu():
    graph = new_graph()
    x = graph.tensor(**channels_last(4, 8, 16, 16), name="x")
    w = graph.tensor(**channels_last(32, 8, 3, 3), name="w")
    bias = graph.tensor(**channels_last(1, 32, 1, 1), name="bias")
    conv = graph.conv_fprop(
        image=x, weight=w, padding=[1, 1], stride=[1, 1], dilation=[1, 1], name="conv"
    )
    biased = graph.bias(input=conv, bias=bias, name="add_bias")
    y = output(graph.relu(biased, name="relu"), "y")
    return graph, (x, w, bias, conv, biased, y)


@dumped
def conv_all_uids():
    graph, tensors = conv_bias_relu()
    with_uids(tensors, (11, 12, 13, 21, 22, 14))
    return graph


@dumped
def conv_some_uids():
    graph, tensors = conv_bias_relu()
    # The bias, the convolution's result and what the relu reads keep their names as keys.
    with_uids(tensors, (11, 12, None, None, None, 14))
    return graph


@dumped
def unusual_uids():
    graph = new_graph()
    a = graph.tensor(**row_major(1, 8, 8), name="A", uid=0)
    b = graph.tensor(**row_major(1, 8, 8), name="B", uid=-7)
    bias = graph.tensor(**row_major(1, 1, 8), name="bias", uid=2**62)
    product = graph.matmul(A=a, B=b, name="matmul")
    output(graph.bias(input=product, bias=bias, name="add_bias"), "Y").set_uid(-(2**63))
    return graph


@dumped
def name_like_a_uid():
    graph = new_graph()
    a = graph.tensor(**row_major(4, 8), name="4")
    b = graph.tensor(**row_major(4, 1), name="b", uid=4)
    output(graph.add(a=a, b=b, name="add"), "y")
    return graph


@dumped
def same_name_twice():
    graph = new_graph()
    a = graph.tensor(**row_major(4, 8), name="x")
    b = graph.tensor(**row_major(4, 1), name="x")
    output(graph.add(a=a, b=b, name="add"), "y")
    return graph


@dumped
def same_name_and_uids():
    graph = new_graph()
    a = graph.tensor(**row_major(4, 8), name="x", uid=1)
    b = graph.tensor(**row_major(4, 1), name="x", uid=2)
    output(graph.add(a=a, b=b, name="add"), "x").set_uid(3)
    return graph


@dumped
def same_tensor_twice():
    graph = new_graph()
    x = graph.tensor(**row_major(4, 8), name="x")
    output(graph.mul(a=x, b=x, name="mul"), "y")
    return graph


@dumped
def output_read_again():
    graph = new_graph()
    a = graph.tensor(**row_major(1, 16, 8), name="A")
    b = graph.tensor(**row_major(1, 8, 16), name="B")
    c = output(graph.matmul(A=a, B=b, name="matmul"), "C")
    output(graph.relu(c, name="relu"), "Y")
    return graph


def scaled(alpha):
    graph = new_graph(FLOAT)
    x = graph.tensor(**row_major(4, 8), name="x")
    output(graph.mul(a=x, b=alpha(graph), name="mul"), "y")
    return graph


@dumped
def scalar_required():
    return scaled(lambda graph: scalar(graph, 2, name="alpha"))


@dumped
def scalar_unnamed():
    return scaled(lambda graph: scalar(graph, 2, data_type=TYPE.INT32))


@dumped
def scalar_with_value():
    return scaled(lambda graph: graph.tensor_scalar(0.5, cudnn.scalar_type.RUNTIME_PARAM))


@dumped
def scalar_of_compile_time():
    return scaled(lambda graph: graph.tensor_scalar(0.5, cudnn.scalar_type.COMPILE_TIME_CONST))
