"""Graphs that take overrides, built by the frontend, and its results under them: the reference.

torch and the frontend are imported inside the functions: tests are collected without them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import graphs  # on the path since conftest

GRAPH_SINCE, WORKSPACE_SINCE, INDPTR_SINCE = 92100, 92300, 92400

Override = tuple[list[int], list[int]]
"""Dims and strides of one operand."""


@dataclass
class Overridden:
    """A built graph, and what its calls are like.

    `size` is what changes from call to call: rows of a matrix, or the lengths of sequences.
    """

    graph: Any
    handle: Any
    operands: Callable[[Any, Any], dict[int, Any]]
    """Fresh operands of a size, with a random generator: uid → tensor. Outputs are all 0xFF."""
    overrides: Callable[[Any], dict[int, Override]]
    """What a call of a size overrides."""
    outputs: tuple[int, ...]

    def workspace_size(self, overrides: Mapping[int, Override]) -> int:
        """Return the bytes that a call needs; before cuDNN 9.23 only the graph's own are known."""
        import cudnn

        if not overrides or cudnn.backend_version() < WORKSPACE_SINCE:
            return int(self.graph.get_workspace_size())
        return int(self.graph.get_workspace_size(self.handle, *as_lists(overrides)))

    def execute(self, tensors: Mapping[int, Any], overrides: Mapping[int, Override]) -> None:
        """Run the frontend on the handle's stream, with a workspace of its own."""
        import torch

        size = max(self.workspace_size(overrides), 1)
        workspace = torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda")
        uids, shapes, strides = as_lists(overrides)
        self.graph.execute(
            dict(tensors),
            workspace,
            handle=self.handle,
            override_uids=uids,
            override_shapes=shapes,
            override_strides=strides,
        )
        torch.cuda.synchronize()  # the workspace must outlive the call

    def expected(
        self, tensors: Mapping[int, Any], overrides: Mapping[int, Override]
    ) -> dict[int, Any]:
        """Return all bytes after the frontend ran on a copy of the operands: uid → bytes."""
        copies = graphs.clone(tensors)
        self.execute(copies, overrides)
        return {uid: graphs.storage(tensor) for uid, tensor in copies.items()}


def as_lists(
    overrides: Mapping[int, Override],
) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Return the three lists that the frontend takes."""
    return (
        list(overrides),
        [list(dim) for dim, _ in overrides.values()],
        [list(stride) for _, stride in overrides.values()],
    )


def _graph():
    import cudnn

    return cudnn.pygraph(
        io_data_type=cudnn.data_type.BFLOAT16,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=graphs.frontend_handle(),
        is_override_shape_enabled=True,
    )


def _build(graph):
    import cudnn

    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    if graph.selected_engine is not None:
        raise RuntimeError(f"served by {graph.selected_engine.name}, not by cuDNN: no plan file")
    return graph


def _poisoned(shape, dtype):
    import torch

    filled = torch.full((*shape, dtype.itemsize), 0xFF, dtype=torch.uint8, device="cuda")
    return filled.view(dtype).view(shape)


# -- A matrix product with the rows overridden -----------------------------------------------------

A, B, C = 1, 2, 3


def matmul_geometry(m: int, n: int, k: int) -> dict[int, Override]:
    """Return all three operands, packed; B is column-major, as weights are kept."""
    return {
        A: ([1, m, k], [m * k, k, 1]),
        B: ([1, k, n], [k * n, 1, k]),
        C: ([1, m, n], [m * n, n, 1]),
    }


def declare_matmul(graph, declared):
    """Add relu(A @ B) to a graph."""
    a, b = (
        graph.tensor(dim=dim, stride=stride, name=name, uid=uid)
        for name, uid, (dim, stride) in (("a", A, declared[A]), ("b", B, declared[B]))
    )
    # Fused: a bare product may go to an engine that takes no overrides.
    c = graph.relu(graph.matmul(A=a, B=b))
    c.set_output(True).set_dim(declared[C][0]).set_stride(declared[C][1])
    c.set_uid(C).set_name("c")
    return graph


def matmul(cache_m: int = 512, n: int = 512, k: int = 256) -> Overridden:
    """Build a product for `cache_m` rows; a call's size is the rows it really has.

    All operands are overridden, the unchanged weights too, as FlashInfer does.
    """
    import torch

    graph = _build(declare_matmul(_graph(), matmul_geometry(cache_m, n, k)))

    def operands(m, generator):
        def random(*shape):
            values = torch.randn(shape, generator=generator, device="cuda")
            return values.to(torch.bfloat16)

        return {
            A: random(1, m, k),
            B: random(1, n, k).transpose(1, 2),
            C: _poisoned((1, m, n), torch.bfloat16),
        }

    return Overridden(
        graph, graphs.frontend_handle(), operands, lambda m: matmul_geometry(m, n, k), (C,)
    )


# -- Attention over sequences of varying lengths ---------------------------------------------------

Q, K, V, O = 1, 2, 3, 1000  # noqa: E741  (as FlashInfer numbers them)
LENGTHS_Q, LENGTHS_KV = 100, 101
RAGGED_Q, RAGGED_O, RAGGED_K, RAGGED_V = 50, 51, 53, 54


@dataclass(frozen=True)
class Heads:
    q: int = 8
    kv: int = 2
    dim: int = 128


@dataclass(frozen=True)
class Batch:
    """Lengths of each sequence. The longest are what cuDNN sees as s_q and s_kv."""

    q: tuple[int, ...]
    kv: tuple[int, ...]

    @property
    def longest(self) -> tuple[int, int]:
        return max(self.q), max(self.kv)


def ragged_geometry(b: int, s_q: int, s_kv: int, heads: Heads, indptr: bool) -> dict[int, Override]:
    """Return the ten operands of a ragged call of `b` sequences.

    Tokens follow each other without gaps, so a batch stride says nothing: the ragged offsets do
    its work. With `indptr` the lengths are prefix sums like the offsets, one more than sequences.
    """

    def tokens(count, n_heads):
        row = n_heads * heads.dim
        return [b, n_heads, count, heads.dim], [count * row, heads.dim, row, 1]

    offsets: Override = ([b + 1, 1, 1, 1], [1, 1, 1, 1])
    lengths: Override = offsets if indptr else ([b, 1, 1, 1], [1, 1, 1, 1])
    return {
        Q: tokens(s_q, heads.q),
        RAGGED_Q: offsets,
        K: tokens(s_kv, heads.kv),
        RAGGED_K: offsets,
        V: tokens(s_kv, heads.kv),
        RAGGED_V: offsets,
        LENGTHS_Q: lengths,
        LENGTHS_KV: lengths,
        O: tokens(s_q, heads.q),
        RAGGED_O: offsets,
    }


def declare_sdpa(graph, declared, heads, indptr):
    """Add causal attention to a graph, its ten operands with FlashInfer's uids.

    With `indptr` offsets and lengths are one prefix sum of tokens (32 bits), which multipliers turn
    into elements; without, offsets count elements (64 bits) and lengths are per sequence.
    """
    import cudnn

    integer = cudnn.data_type.INT32 if indptr else cudnn.data_type.INT64

    def declare(name, uid, data_type=cudnn.data_type.BFLOAT16):
        dim, stride = declared[uid]
        return graph.tensor(dim=dim, stride=stride, data_type=data_type, name=name, uid=uid)

    def make_ragged(tensor, name, uid, n_heads):
        tensor.set_ragged_offset(declare(name, uid, integer))
        if indptr:
            tensor.set_ragged_offset_multiplier(n_heads * heads.dim)

    q, k, v = declare("q", Q), declare("k", K), declare("v", V)
    make_ragged(q, "ragged_q", RAGGED_Q, heads.q)
    make_ragged(k, "ragged_k", RAGGED_K, heads.kv)
    make_ragged(v, "ragged_v", RAGGED_V, heads.kv)
    prefix = "cu_seq_len" if indptr else "seq_len"
    lengths = {
        f"{prefix}_{side}": declare(f"{prefix}_{side}", uid, cudnn.data_type.INT32)
        for side, uid in (("q", LENGTHS_Q), ("kv", LENGTHS_KV))
    }
    o, _ = graph.sdpa(
        name="sdpa",
        q=q,
        k=k,
        v=v,
        **lengths,
        use_padding_mask=True,
        attn_scale=heads.dim**-0.5,
        generate_stats=False,
        use_causal_mask_bottom_right=True,
        implementation=cudnn.attention_implementation.UNIFIED,  # the one that takes overrides
        compute_data_type=cudnn.data_type.FLOAT,
    )
    o.set_uid(O).set_output(True).set_dim(declared[O][0]).set_stride(declared[O][1])
    o.set_data_type(cudnn.data_type.BFLOAT16)
    make_ragged(o, "ragged_o", RAGGED_O, heads.q)
    return graph


def sdpa(
    cache_b: int = 64,
    cache_s_q: int = 128,
    cache_s_kv: int = 1024,
    *,
    heads: Heads | None = None,
    indptr: bool = True,
) -> Overridden:
    """Build attention for a cache shape; a call's size is a `Batch`.

    All ten operands are overridden, as in FlashInfer's ragged prefill (its pull request 5245).
    A graph for s_q = 1 refuses any other, and the other way round.
    """
    import torch

    heads = heads or Heads()
    declared = ragged_geometry(cache_b, cache_s_q, cache_s_kv, heads, indptr)
    graph = _build(declare_sdpa(_graph(), declared, heads, indptr))

    def operands(batch, generator):
        def prefix_sums(lengths, elements, dtype):
            sums = torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0) * elements
            return sums.to(dtype).view(-1, 1, 1, 1).cuda()

        def offsets(lengths, n_heads):
            if indptr:
                return prefix_sums(lengths, 1, torch.int32)
            return prefix_sums(lengths, n_heads * heads.dim, torch.int64)

        def counts(lengths):
            if indptr:
                return prefix_sums(lengths, 1, torch.int32)
            return torch.tensor(lengths, dtype=torch.int32, device="cuda").view(-1, 1, 1, 1)

        def random(lengths, n_heads):
            shape = (sum(lengths), n_heads, heads.dim)
            values = torch.randn(shape, generator=generator, device="cuda")
            return values.to(torch.bfloat16)

        return {
            Q: random(batch.q, heads.q),
            RAGGED_Q: offsets(batch.q, heads.q),
            K: random(batch.kv, heads.kv),
            RAGGED_K: offsets(batch.kv, heads.kv),
            V: random(batch.kv, heads.kv),
            RAGGED_V: offsets(batch.kv, heads.kv),
            LENGTHS_Q: counts(batch.q),
            LENGTHS_KV: counts(batch.kv),
            O: _poisoned((sum(batch.q), heads.q, heads.dim), torch.bfloat16),
            RAGGED_O: offsets(batch.q, heads.q),
        }

    def overrides(batch):
        return ragged_geometry(len(batch.q), *batch.longest, heads, indptr)

    return Overridden(graph, graphs.frontend_handle(), operands, overrides, (O,))
