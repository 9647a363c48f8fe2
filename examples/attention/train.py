"""Trains the block three times from the same weights, and prints the losses side by side."""

from __future__ import annotations

import copy
import functools

import torch
from attention import Attention, train
from plans import BATCH, HEADS, LENGTH, SIZE
from torch.nn import functional

STEPS, RATE = 50, 1e-3


def main() -> None:
    """Train by generated operators, eagerly and compiled, and by PyTorch's own attention."""
    from attn_torch import attn

    torch.manual_seed(0)
    own = functools.partial(functional.scaled_dot_product_attention, is_causal=True)
    reference = Attention(HEADS * SIZE, HEADS, own).to("cuda", torch.bfloat16)
    generated = copy.deepcopy(reference)
    generated.attend = lambda q, k, v: attn(q, k, v)[0]
    compiled = torch.compile(copy.deepcopy(generated), fullgraph=True)
    x, target = torch.randn(2, BATCH, LENGTH, HEADS * SIZE, device="cuda")
    x = x.bfloat16()  # the loss is not: it would hide what bfloat16 rounds
    curves = [train(block, x, target, STEPS, RATE) for block in (reference, generated, compiled)]
    print("step  PyTorch   generated  compiled")
    for step in range(0, STEPS, 7):
        print(f"{step:4}", *(f"{curve[step]:9.6f}" for curve in curves))


if __name__ == "__main__":
    main()
