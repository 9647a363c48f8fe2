"""Graphs whose operands ask something of tensors: other layouts, one-byte types, bit masks."""

from __future__ import annotations

import graphs  # on the path since conftest

B, H, S, D = 2, 4, 128, 64


def _channels_last(n, c, h, w):
    return [n, c, h, w], [c * h * w, 1, w * c, c]


def sdpa_bshd():
    """Build attention whose memory is [b, s, h, d], as most models have it."""
    graph = graphs._graph("BFLOAT16")
    dim, stride = [B, H, S, D], [S * H * D, D, H * D, 1]
    q, k, v = (graph.tensor(dim=dim, stride=stride) for _ in range(3))
    o, _ = graph.sdpa(q=q, k=k, v=v, generate_stats=False, attn_scale=0.125)
    graphs._output(o, dim, stride, "BFLOAT16")
    return graphs._build(graph)


def sdpa_packed():
    """Build gradients of attention that interleave in one [b, s, 3, h, d] buffer, as do q, k, v."""
    graph = graphs._graph("BFLOAT16")
    dim, plain, packed = [B, H, S, D], [S * H * D, D, H * D, 1], [S * 3 * H * D, D, 3 * H * D, 1]
    q, k, v = (graph.tensor(dim=dim, stride=packed) for _ in range(3))
    o, d_o = (graph.tensor(dim=dim, stride=plain) for _ in range(2))
    stats = graph.tensor(dim=[B, H, S, 1], stride=[H * S, S, 1, 1], data_type=graphs._float())
    gradients = graph.sdpa_backward(
        q=q, k=k, v=v, o=o, dO=d_o, stats=stats, attn_scale=0.125, use_deterministic_algorithm=True
    )
    for gradient in gradients:
        graphs._output(gradient, dim, packed, "BFLOAT16")
    return graphs._build(graph)


def fp8_matmul():
    """Build a product of FP8 matrices, square, the second one column-major."""
    graph = graphs._graph("FP8_E4M3")
    a = graph.tensor(dim=[1, 128, 128], stride=[16384, 128, 1])
    b = graph.tensor(dim=[1, 128, 128], stride=[16384, 1, 128])
    graphs._output(graph.matmul(a, b), [1, 128, 128], [16384, 128, 1], "BFLOAT16")
    return graphs._build(graph)


def fp8_quantize():
    """Build a scaled copy in FP8."""
    graph = graphs._graph("BFLOAT16")
    dim, stride = [8, 32, 64], [2048, 64, 1]
    x = graph.tensor(dim=dim, stride=stride)
    factor = graph.tensor(dim=[1, 1, 1], stride=[1, 1, 1], data_type=graphs._float(), name="factor")
    graphs._output(graph.mul(x, factor), dim, stride, "FP8_E4M3")
    return graphs._build(graph)


def relu_mask():
    """Build ReLU and the bit mask that its backward pass reads."""
    graph = graphs._graph("HALF")
    dim, stride = _channels_last(8, 64, 28, 28)
    x = graph.tensor(dim=dim, stride=stride)
    threshold = graph.tensor(dim=[1] * 4, stride=[1] * 4, name="threshold")
    mask = graph.cmp_gt(input=x, comparison=threshold)
    graphs._output(mask, dim, stride, "BOOLEAN")
    graphs._output(graph.relu(x), dim, stride, "HALF")
    return graphs._build(graph)


BUILDERS = {
    builder.__name__: builder
    for builder in (sdpa_bshd, sdpa_packed, fp8_matmul, fp8_quantize, relu_mask)
}
