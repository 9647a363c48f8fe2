"""Attention in each of its tags, and with each option that its builders take."""

import cudnn
from dump import TYPE, new_graph, row_major, scalar
from every_tag import FLOAT, HALF, operands, outputs, shaped, tagged

DIM = (2, 8, 128, 64)
STATISTICS = (2, 8, 128, 1)
BOTTOM_RIGHT = cudnn.diagonal_alignment.BOTTOM_RIGHT


def lengths(graph):
    q, kv = operands(graph, "len_q len_kv", 2, 1, 1, 1, data_type=TYPE.INT32)
    return {"use_padding_mask": True, "seq_len_q": q, "seq_len_kv": kv}


def seeds(graph):
    return operands(graph, "seed offset", 1, 1, 1, 1, data_type=TYPE.INT64)


def forward(graph, **options):
    q, k, v = operands(graph, "q k v", *DIM)
    options.setdefault("generate_stats", True)
    o, stats = graph.sdpa(q=q, k=k, v=v, **options)
    shaped(o, *DIM)
    if stats is not None:
        shaped(stats, *STATISTICS, data_type=FLOAT)
    return graph


@tagged
def sdpa_plain():
    return forward(new_graph(), generate_stats=False)


@tagged
def sdpa_scale_tensor():
    graph = new_graph()
    return forward(graph, attn_scale=scalar(graph, 4, name="scale"))


@tagged
def sdpa_bias_alibi():
    graph = new_graph()
    (bias,) = operands(graph, "bias", 1, 8, 128, 128)
    return forward(
        graph, bias=bias, use_alibi_mask=True, diagonal_band_right_bound=0, attn_scale=0.3
    )


@tagged
def sdpa_window():
    return forward(
        new_graph(),
        diagonal_alignment=BOTTOM_RIGHT,
        diagonal_band_left_bound=32,
        diagonal_band_right_bound=0,
    )


@tagged
def sdpa_dropout():
    graph = new_graph()
    return forward(graph, dropout=(0.1, *seeds(graph)))


@tagged
def sdpa_dropout_mask():
    graph = new_graph()
    (mask,) = operands(graph, "mask", 2, 8, 128, 128)
    return forward(graph, dropout=(mask, scalar(graph, 4, name="keep")))


@tagged
def sdpa_max_and_sum():
    graph = new_graph()
    extra = operands(graph, "max sum", *STATISTICS, data_type=FLOAT)
    outputs(extra)
    return forward(graph, score_max=extra[0], score_sum_exp=extra[1], generate_stats=False)


@tagged
def sdpa_sink():
    graph = new_graph()
    (sink,) = operands(graph, "sink", 1, 8, 1, 1, data_type=FLOAT)
    return forward(graph, sink_token=sink, **lengths(graph))


@tagged
def sdpa_paged():
    graph = new_graph()
    tables = operands(graph, "table_k table_v", 2, 1, 16, 1, data_type=TYPE.INT32)
    q, k, v = (graph.tensor(**row_major(*dim), name=n) for n, dim in PAGED.items())
    o, _ = graph.sdpa(
        q=q,
        k=k,
        v=v,
        generate_stats=False,
        paged_attention_k_table=tables[0],
        paged_attention_v_table=tables[1],
        paged_attention_max_seq_len_kv=256,
        **lengths(graph),
    )
    shaped(o, *DIM)
    return graph


PAGED = {"q": DIM, "k": (64, 8, 16, 64), "v": (64, 8, 16, 64)}


@tagged
def sdpa_ragged():
    graph = new_graph()
    (offset,) = operands(graph, "offset", 3, 1, 1, 1, data_type=TYPE.INT64)
    q, k, v = operands(graph, "q k v", *DIM)
    o, _ = graph.sdpa(q=q, k=k, v=v, generate_stats=False, **lengths(graph))
    shaped(o, *DIM)
    for tensor in (q, k, v, o):
        tensor.set_ragged_offset(offset)
    return graph


def backward(graph, **options):
    q, k, v, o, d_o = operands(graph, "q k v o dO", *DIM)
    (stats,) = operands(graph, "stats", *STATISTICS, data_type=FLOAT)
    found = graph.sdpa_backward(q=q, k=k, v=v, o=o, dO=d_o, stats=stats, **options)
    for tensor in found:
        shaped(tensor, *DIM)
    return graph


@tagged
def sdpa_backward():
    return backward(new_graph(), attn_scale=0.125, use_deterministic_algorithm=True)


@tagged
def sdpa_backward_bias():
    graph = new_graph()
    bias, d_bias = operands(graph, "bias dBias", 1, 8, 128, 128)
    d_bias.set_output(True)
    return backward(graph, bias=bias, dBias=d_bias, diagonal_band_right_bound=0)


@tagged
def sdpa_backward_dropout():
    graph = new_graph()
    return backward(graph, dropout=(0.1, *seeds(graph)), **lengths(graph))


@tagged
def sdpa_backward_dropout_mask():
    graph = new_graph()
    (mask,) = operands(graph, "mask", 2, 8, 128, 128)
    scales = (scalar(graph, 4, name=name) for name in ("keep", "inverse"))
    return backward(graph, dropout=(mask, *scales))


@tagged
def sdpa_backward_sink():
    graph = new_graph()
    sink, d_sink = operands(graph, "sink dSink", 1, 8, 1, 1, data_type=FLOAT)
    d_sink.set_output(True)
    return backward(graph, sink_token=sink, dSink_token=d_sink)


# What gradients in FP8 are for.
WIDE = (2, 8, 128, 128)


def scales(graph, names):
    return {
        name: graph.tensor(**row_major(1, 1, 1, 1), data_type=FLOAT, name=name)
        for name in names.split()
    }


@tagged
def sdpa_fp8():
    graph = new_graph(TYPE.FP8_E4M3)
    q, k, v = operands(graph, "q k v", *DIM)
    factors = scales(graph, "descale_q descale_k descale_v descale_s scale_s scale_o")
    o, stats, amax_s, amax_o = graph.sdpa_fp8(
        q=q, k=k, v=v, **factors, generate_stats=True, right_bound=0, attn_scale=0.3
    )
    shaped(o, *DIM)
    shaped(stats, *STATISTICS, data_type=FLOAT)
    for amax in (amax_s, amax_o):
        shaped(amax, 1, 1, 1, 1, data_type=FLOAT)
    return graph


@tagged
def sdpa_fp8_backward():
    graph = new_graph(TYPE.FP8_E4M3)
    q, k, v, o, d_o = operands(graph, "q k v o dO", *WIDE)
    (stats,) = operands(graph, "stats", *STATISTICS, data_type=FLOAT)
    factors = scales(
        graph,
        "descale_q descale_k descale_v descale_o descale_dO descale_s descale_dP "
        "scale_s scale_dQ scale_dK scale_dV scale_dP",
    )
    found = graph.sdpa_fp8_backward(
        q=q, k=k, v=v, o=o, dO=d_o, stats=stats, **factors, attn_scale=0.125, right_bound=0
    )
    for tensor in found[:3]:
        shaped(tensor, *WIDE)
    for amax in found[3:]:
        shaped(amax, 1, 1, 1, 1, data_type=FLOAT)
    return graph


def microscaled():
    """Return an empty graph for the first GPU that computes in MXFP8."""
    types = {"intermediate_data_type": FLOAT, "compute_data_type": FLOAT}
    return cudnn.pygraph(io_data_type=TYPE.FP8_E4M3, **types, sm_version=100)


def blocks(graph, name, *dim):
    return graph.tensor(
        **row_major(*dim),
        name=name,
        data_type=TYPE.FP8_E8M0,
        reordering_type=cudnn.tensor_reordering.F8_128x4,
    )


@tagged
def sdpa_mxfp8():
    graph = microscaled()
    dim = WIDE
    q, k, v = operands(graph, "q k v", *dim)
    o, stats, amax = graph.sdpa_mxfp8(
        q=q,
        k=k,
        v=v,
        descale_q=blocks(graph, "descale_q", 2, 8, 128, 4),
        descale_k=blocks(graph, "descale_k", 2, 8, 128, 4),
        descale_v=blocks(graph, "descale_v", 2, 8, 4, 128),
        generate_stats=True,
        attn_scale=0.125,
    )
    shaped(o, *dim, data_type=TYPE.BFLOAT16)
    shaped(stats, *dim[:3], 1, data_type=FLOAT)
    shaped(amax, 1, 1, 1, 1, data_type=FLOAT)
    return graph


@tagged
def sdpa_mxfp8_backward():
    graph = microscaled()
    dim = WIDE
    names = "q q_T k k_T v dO dO_T"
    tensors = dict(zip(names.split(), operands(graph, names, *dim), strict=True))
    halves = dict(
        zip(("o_f16", "dO_f16"), operands(graph, "o h", *dim, data_type=HALF), strict=True)
    )
    (stats,) = operands(graph, "stats", *dim[:3], 1, data_type=FLOAT)
    factors = {
        f"descale_{name}": blocks(graph, f"descale_{name}", 2, 8, *rest)
        for name, rest in (
            *(("q", (128, 4)), ("q_T", (4, 128)), ("k", (128, 4)), ("k_T", (4, 128))),
            *(("v", (128, 4)), ("dO", (128, 4)), ("dO_T", (4, 128))),
        )
    }
    found = graph.sdpa_mxfp8_backward(**tensors, **halves, stats=stats, **factors, attn_scale=0.125)
    for tensor in found[:3]:
        shaped(tensor, *dim, data_type=HALF)
    for amax in found[3:]:
        shaped(amax, 1, 1, 1, 1, data_type=FLOAT)
    return graph
