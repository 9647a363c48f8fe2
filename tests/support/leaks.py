"""What a call may leave behind: references, memory, objects of the stand-in libraries."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cudnn_bindgen.runtime.errors import OperandError
from support.device_tensors import DeviceTensor
from support.producers import Array, Producer
from support.standin import Standin

SHARED = (None, (), DeviceTensor, torch.Tensor, torch.dtype, Producer, Array, OperandError)
"""Others take and drop references to these now and then."""


class State:
    """Counts of references, Python's blocks, resident bytes and cuDNN's objects."""

    def __init__(self, standin: Standin, objects: list[Any]) -> None:
        self.standin, self.objects = standin, objects
        self.before = self.now()

    def now(self) -> tuple[list[int], list[int], int, int, dict[str, int]]:
        gc.collect()
        kinds = ("handle", "plan", "pack", "memory", "stream", "graph", "exec")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return (
            # Small integers are everybody's.
            [sys.getrefcount(item) for item in self.objects if not isinstance(item, int)],
            [sys.getrefcount(item) for item in SHARED],
            sys.getallocatedblocks(),
            pages * resource.getpagesize(),
            {kind: self.standin.live(kind) for kind in kinds},
        )

    def check(self, most_executables: int | None = None) -> None:
        """Nothing is left; `most_executables` may be there where addresses are the allocator's."""
        references, shared, blocks, resident, objects = self.now()
        if most_executables is not None:
            assert objects.pop("exec") <= most_executables
            self.before[4].pop("exec")
        assert references == self.before[0]
        assert all(abs(a - b) < 100 for a, b in zip(shared, self.before[1], strict=True))
        assert blocks - self.before[2] < 500
        assert resident - self.before[3] < 2 << 20
        assert objects == self.before[4], (objects, self.before[4])
        assert all(item.alive == 0 for item in self.objects if isinstance(item, Producer))


def repeat(count: int, run: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    for _ in range(count):
        run(*arguments, **named)
