"""The GPU of this process as PyTorch sees it: memory, a stream, captures, times.

The one place that imports PyTorch, and only to autotune. Loaded after the frontend, so that the
frontend finds the cuDNN that it finds without PyTorch.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.frontend.planning.torch_types import Torch

_INSTALL = "install a PyTorch that was built for CUDA, or plan without --autotune"
_DRIVER = Path("/proc/driver/nvidia/version")

# What PyTorch raises for what CUDA says.
CUDA_ERRORS = (RuntimeError,)

# A CUDA graph.
Capture: TypeAlias = Any


def load_cuda() -> Cuda:
    """Import PyTorch and return its current GPU.

    Raises
    ------
    PlanError
        It is not installed, or sees no GPU.
    """
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise PlanError(f"--autotune: cannot import PyTorch: {error}", hint=_INSTALL) from None
    if not torch.cuda.is_available():
        raise PlanError("--autotune: expected PyTorch to see a GPU, got none", hint=_INSTALL)
    return Cuda(torch)


class Cuda:
    """The current device, with a stream of its own that everything runs on."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(self.device)
        self.name: str = properties.name
        self.l2_bytes: int = properties.L2_cache_size
        self._stream = torch.cuda.Stream(self.device)

    @property
    def stream(self) -> int:
        """The raw ``cudaStream_t``."""
        return int(self._stream.cuda_stream)

    @property
    def driver(self) -> str:
        """The version of the GPU's driver, empty where the system does not say."""
        with suppress(OSError):
            found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", _DRIVER.read_text())
            return found[0] if found else ""
        return ""

    def free_bytes(self) -> int:
        """Return how much memory can be allocated."""
        self.torch.cuda.empty_cache()
        return int(self.torch.cuda.mem_get_info(self.device)[0])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let PyTorch run on the stream, and wait for it at the end."""
        with self.torch.cuda.device(self.device), self.torch.cuda.stream(self._stream):
            yield
            self._stream.synchronize()

    def time(self, call: Callable[[], object]) -> float:
        """Return how many microseconds the stream takes for a call."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(self._stream)
        call()
        end.record(self._stream)
        end.synchronize()
        return float(start.elapsed_time(end)) * 1000

    def capture(self, calls: Sequence[Callable[[], object]]) -> Capture:
        """Return a CUDA graph of calls that were made once before, which load what they need."""
        graph = self.torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for call in calls:
                call()
        except BaseException:
            # It has the same reason, or none.
            with suppress(*CUDA_ERRORS):
                graph.capture_end()
            raise
        graph.capture_end()
        return graph

    def replay(self, graph: Capture) -> None:
        """Launch a CUDA graph."""
        graph.replay()

    def time_replay(self, graph: Capture) -> float:
        """Return how many microseconds one launch of a CUDA graph takes the GPU.

        One launch before it keeps the GPU busy, and its caches warm, while the host prepares.
        """
        graph.replay()
        return self.time(graph.replay)
