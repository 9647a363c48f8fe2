"""Plans cuDNN's causal attention and its gradient for one shape: attn.plan and attn_bwd.plan.

Needs the GPU that will run them, PyTorch and nvidia-cudnn-frontend.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

BATCH, HEADS, LENGTH, SIZE = 4, 8, 256, 64


def build_plans(
    handle: Any,
    batch: int = BATCH,
    heads: int = HEADS,
    length: int = LENGTH,
    size: int = SIZE,
    is_packed: bool = True,
    is_deterministic: bool = False,
) -> dict[str, Any]:
    """Return the frontend's graphs, built, by the name of their files.

    Tensors lie as [batch, length, heads, size]; `is_packed`: q, k and v in one buffer [batch,
    length, 3, heads, size]. `is_deterministic`: gradients have the same bits in every run, and take
    longer. Names pair the operands of both graphs; the ports would, too.
    """
    import cudnn

    def new_graph() -> Any:
        return cudnn.pygraph(
            handle=handle,
            io_data_type=cudnn.data_type.BFLOAT16,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
        )

    dim = [batch, heads, length, size]
    plain = [length * heads * size, size, heads * size, 1]
    packed = [3 * length * heads * size, size, 3 * heads * size, 1] if is_packed else plain
    rows = {"dim": [batch, heads, length, 1], "stride": [heads * length, length, 1, 1]}
    options: dict[str, Any] = {"attn_scale": size**-0.5, "use_causal_mask": True}

    def finish(graph: Any, names: str, tensors: Any) -> Any:
        for name, tensor in zip(names.split(), tensors, strict=True):
            tensor.set_output(True).set_name(name)
            if name == "stats":
                tensor.set_dim(rows["dim"]).set_stride(rows["stride"])
                tensor.set_data_type(cudnn.data_type.FLOAT)
            else:
                tensor.set_dim(dim).set_stride(plain)
                tensor.set_data_type(cudnn.data_type.BFLOAT16)
        graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        return graph

    forward = new_graph()
    q, k, v = (forward.tensor(dim=dim, stride=packed, name=name) for name in "qkv")
    outputs = forward.sdpa(q=q, k=k, v=v, generate_stats=True, **options)

    backward = new_graph()
    q, k, v = (backward.tensor(dim=dim, stride=packed, name=name) for name in "qkv")
    o, d_o = (backward.tensor(dim=dim, stride=plain, name=name) for name in ("o", "do"))
    stats = backward.tensor(name="stats", data_type=cudnn.data_type.FLOAT, **rows)
    if is_deterministic:
        options["use_deterministic_algorithm"] = True
    gradients = backward.sdpa_backward(q=q, k=k, v=v, o=o, dO=d_o, stats=stats, **options)
    return {
        "attn": finish(forward, "o stats", outputs),
        "attn_bwd": finish(backward, "dq dk dv", gradients),
    }


def main() -> None:
    """Write both files here."""
    import cudnn
    import torch

    torch.zeros(1, device="cuda")  # makes the CUDA context current
    for name, graph in build_plans(cudnn.create_handle()).items():
        Path(f"{name}.plan").write_bytes(bytes(graph.serialize(as_bytes=True)))


if __name__ == "__main__":
    main()
