"""An attention block. What computes the attention itself is an argument."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q, k, v as [batch, heads, length, size] → the same for the output."""


class Attention(nn.Module):
    """Normalise, attend, add: one block of a transformer without its MLP."""

    def __init__(self, width: int, heads: int, attend: Attend) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.norm = nn.LayerNorm(width)
        self.inputs = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for [batch, length, width]."""
        batch, length, width = x.shape
        packed = self.inputs(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        # Views of one buffer, whose strides the graph declares (plans.py): nothing is copied.
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind()
        o = self.attend(q, k, v)
        return x + self.output(o.transpose(1, 2).reshape(batch, length, width))


def train(block: nn.Module, x: Tensor, target: Tensor, steps: int, rate: float) -> list[float]:
    """Train on one batch and return the loss of each step."""
    optimizer = torch.optim.Adam(block.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(block(x).to(target.dtype), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]
