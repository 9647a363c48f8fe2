"""The graphs of the matrix that normalise."""

from __future__ import annotations

import cudnn
from shapes import FLOAT, TYPE, channels_last, dumped, new_graph, output, row_major, scalar

TRAINING = cudnn.norm_forward_phase.TRAINING


@dumped
def layernorm():
    graph = new_graph(TYPE.BFLOAT16)
    x = graph.tensor(**row_major(32, 128, 1, 1), name="x")
    scale = graph.tensor(**row_major(1, 128, 1, 1), data_type=FLOAT, name="gamma")
    bias = graph.tensor(**row_major(1, 128, 1, 1), data_type=FLOAT, name="beta")
    y, mean, inv_variance = graph.layernorm(
        norm_forward_phase=TRAINING,
        input=x,
        scale=scale,
        bias=bias,
        epsilon=scalar(graph, 4, name="epsilon"),
        name="norm",
    )
    output(y, "y")
    output(mean, "mean", FLOAT)
    output(inv_variance, "rstd", FLOAT)
    return graph


@dumped
def layernorm_backward():
    graph = new_graph(TYPE.BFLOAT16)
    dy = graph.tensor(**row_major(32, 128, 1, 1), name="dy")
    x = graph.tensor(**row_major(32, 128, 1, 1), name="x")
    scale = graph.tensor(**row_major(1, 128, 1, 1), data_type=FLOAT, name="gamma")
    mean, inv_variance = (
        graph.tensor(**row_major(32, 1, 1, 1), data_type=FLOAT, name=name)
        for name in ("mean", "rstd")
    )
    dx, dscale, dbias = graph.layernorm_backward(
        grad=dy, input=x, scale=scale, mean=mean, inv_variance=inv_variance, name="norm"
    )
    output(dx, "dx")
    output(dscale, "dgamma", FLOAT)
    output(dbias, "dbeta", FLOAT)
    return graph


@dumped
def rmsnorm():
    graph = new_graph(TYPE.BFLOAT16)
    x = graph.tensor(**row_major(32, 128, 1, 1), name="x")
    scale = graph.tensor(**row_major(1, 128, 1, 1), data_type=FLOAT, name="gamma")
    y, inv_variance = graph.rmsnorm(
        norm_forward_phase=TRAINING,
        input=x,
        scale=scale,
        epsilon=scalar(graph, 4, name="epsilon"),
        name="norm",
    )
    output(y, "y")
    output(inv_variance, "rstd", FLOAT)
    return graph


@dumped
def batchnorm_peer_stats():
    graph = new_graph()
    x = graph.tensor(**channels_last(8, 32, 16, 16), name="x")
    names = ("scale", "bias", "running_mean", "running_var")
    channel = [
        graph.tensor(**channels_last(1, 32, 1, 1), data_type=FLOAT, name=name) for name in names
    ]
    peer_stats = [
        graph.tensor(**row_major(2, 4 * 32, 1, 1), data_type=FLOAT, name=f"peer_{peer}")
        for peer in range(2)
    ]
    outputs = graph.batchnorm(
        input=x,
        scale=channel[0],
        bias=channel[1],
        in_running_mean=channel[2],
        in_running_var=channel[3],
        epsilon=scalar(graph, 4, name="epsilon"),
        momentum=scalar(graph, 4, name="momentum"),
        peer_stats=peer_stats,
        name="norm",
    )
    output(outputs[0], "y")
    for tensor, name in zip(outputs[1:], ("mean", "rstd", "next_mean", "next_var"), strict=True):
        output(tensor, name, FLOAT)
    return graph
