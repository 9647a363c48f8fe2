"""The attention graphs of the matrix."""

from __future__ import annotations

from shapes import FLOAT, TYPE, dumped, new_graph, output, row_major, scalar, shaped, with_uids

Q_DIM, KV_DIM = (2, 8, 256, 64), (2, 2, 512, 64)


def sdpa(graph, q=Q_DIM, kv=KV_DIM, *, stats=True, **options):
    """Add attention with outputs of stated shape: not every version infers those of stats."""
    tensors = [
        graph.tensor(**row_major(*dim), name=name) for name, dim in (("Q", q), ("K", kv), ("V", kv))
    ]
    options.setdefault("attn_scale", 0.125)
    # 1.18 has no generate_stats.
    o, statistics = graph.sdpa(
        q=tensors[0], k=tensors[1], v=tensors[2], is_inference=not stats, name="sdpa", **options
    )
    tensors.append(shaped(output(o, "O"), *q))
    if stats:
        tensors.append(shaped(output(statistics, "stats", FLOAT), *q[:3], 1))
    return tensors


def lengths(graph, batch=2):
    """Return the options that make attention read each batch's lengths."""
    names = ("seq_len_q", "seq_len_kv")
    return {
        name: graph.tensor(**row_major(batch, 1, 1, 1), data_type=TYPE.INT32, name=name)
        for name in names
    } | {"use_padding_mask": True}


@dumped
def sdpa_causal():
    graph = new_graph(TYPE.BFLOAT16)
    sdpa(graph, use_causal_mask=True)
    return graph


@dumped
def sdpa_padding():
    graph = new_graph(TYPE.BFLOAT16)
    sdpa(graph, attn_scale=scalar(graph, 4, name="scale"), **lengths(graph))
    return graph


def ragged():
    graph = new_graph(TYPE.BFLOAT16)
    options = lengths(graph)
    tensors = sdpa(graph, **options, stats=False)
    offsets = [
        graph.tensor(**row_major(3, 1, 1, 1), data_type=TYPE.INT64, name=name)
        for name in ("q_offsets", "kv_offsets")
    ]
    for tensor, offset in zip(tensors, (0, 1, 1, 0), strict=True):
        tensor.set_ragged_offset(offsets[offset])
    return graph, [*tensors, options["seq_len_q"], options["seq_len_kv"], *offsets]


@dumped
def sdpa_ragged():
    return ragged()[0]


@dumped
def sdpa_ragged_uids():
    graph, tensors = ragged()
    with_uids(tensors, range(101, 109))
    return graph


@dumped
def sdpa_paged():
    graph = new_graph()
    blocks, block_size = 64, 16
    tables = {
        f"paged_attention_{name}_table": graph.tensor(
            **row_major(2, 1, 32, 1), data_type=TYPE.INT32, name=f"table_{name}"
        )
        for name in "kv"
    }
    sdpa(
        graph,
        kv=(blocks, 2, block_size, 64),
        stats=False,
        paged_attention_max_seq_len_kv=512,
        **lengths(graph),
        **tables,
    )
    return graph


@dumped
def sdpa_backward():
    graph = new_graph(TYPE.BFLOAT16)
    q, k, v, o, d_o = (
        graph.tensor(**row_major(*dim), name=name)
        for name, dim in (("Q", Q_DIM), ("K", KV_DIM), ("V", KV_DIM), ("O", Q_DIM), ("dO", Q_DIM))
    )
    stats = graph.tensor(**row_major(*Q_DIM[:3], 1), data_type=FLOAT, name="stats")
    gradients = graph.sdpa_backward(
        q=q, k=k, v=v, o=o, dO=d_o, stats=stats, attn_scale=0.125, name="sdpa"
    )
    dims = (("dQ", Q_DIM), ("dK", KV_DIM), ("dV", KV_DIM))
    for tensor, (name, dim) in zip(gradients, dims, strict=True):
        shaped(output(tensor, name), *dim)
    return graph


@dumped
def sdpa_fp8():
    graph = new_graph(TYPE.FP8_E4M3)
    dim = (2, 8, 256, 64)
    tensors = {name: graph.tensor(**row_major(*dim), name=name.upper()) for name in "qkv"}
    names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
    scales = {
        name: graph.tensor(**row_major(1, 1, 1, 1), data_type=FLOAT, name=name) for name in names
    }
    o, stats, amax_s, amax_o = graph.sdpa_fp8(
        **tensors,
        **scales,
        is_inference=False,
        attn_scale=0.125,
        name="sdpa",
    )
    shaped(output(o, "O"), *dim)
    shaped(output(stats, "stats", FLOAT), *dim[:3], 1)
    shaped(output(amax_s, "amax_s", FLOAT), 1, 1, 1, 1)
    shaped(output(amax_o, "amax_o", FLOAT), 1, 1, 1, 1)
    return graph


@dumped
def sdpa_unshaped_stats():
    # As most programs write it.
    graph = new_graph(TYPE.BFLOAT16)
    q, k, v = (graph.tensor(**row_major(*Q_DIM), name=name) for name in "QKV")
    o, stats = graph.sdpa(q=q, k=k, v=v, attn_scale=0.125, is_inference=False, name="sdpa")
    shaped(output(o, "O"), *Q_DIM)
    output(stats, "stats", FLOAT)
    return graph
