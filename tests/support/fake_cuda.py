"""A GPU for autotuning, made of PyTorch's CPU part: everything is real but streams and time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from cudnn_bindgen.frontend.planning.cuda import Cuda


class FakeCuda(Cuda):
    """Takes as long as it is told, by plan; `memory` is what is free, `stuck` cannot be captured.

    `empty` are the plans of which a capture holds nothing.
    """

    def __init__(
        self,
        times: Mapping[int, Sequence[float]],
        *,
        memory: int = 1 << 20,
        stuck: Sequence[int] = (),
        empty: Sequence[int] = (),
    ) -> None:
        self.torch = torch
        self.device = torch.device("cpu")
        self.name = "NVIDIA FAKE"
        self.l2_bytes = 256
        self.times = {index: list(values) for index, values in times.items()}
        self.memory = memory
        self.stuck = stuck
        self.empty = empty
        self.replayed: list[int] = []

    @property
    def stream(self) -> int:
        return 77

    @property
    def driver(self) -> str:
        return "580.65.06"

    def free_bytes(self) -> int:
        return self.memory

    @contextmanager
    def running(self) -> Iterator[None]:
        yield

    def time(self, call: Callable[[], object]) -> float:
        call()
        return 10.0

    def capture(self, calls: Sequence[Callable[[], object]]) -> Any:
        call: Any = calls[0]
        index = call.args[0]
        if index in self.stuck:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")
        return index, [] if index in self.empty else list(calls), len(calls)

    def replay(self, graph: Any) -> None:
        for call in graph[1]:
            call()

    def time_replay(self, graph: Any) -> float:
        index, _, executions = graph
        self.replayed.append(index)
        return self.times[index].pop(0) * float(executions)


def at(address: int, count: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return the elements that lie at an address."""
    size = count * dtype.itemsize
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=dtype)
