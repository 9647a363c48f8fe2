"""Whether a CUDA graph is being captured, asked without waking anything that sleeps."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

# What cuStreamIsCapturing says of a legacy stream beside a capture (CUDA_ERROR_STREAM_CAPTURE_*).
_CAPTURE_ERRORS = range(900, 909)


def is_capturing(frontend: Any, handle: Any) -> bool:
    """Whether the caller's stream is being captured: PyTorch's current one, or the handle's.

    Neither PyTorch nor the driver is loaded by asking, no context is made, no stream waits.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing():
        return True
    if handle is None:
        return False
    driver = _driver()
    if driver is None:
        return False
    state = ctypes.c_int(0)
    status = driver(ctypes.c_void_p(frontend.get_stream(handle)), ctypes.byref(state))
    return status in _CAPTURE_ERRORS or (status == 0 and state.value != 0)


def _driver() -> Callable[..., int] | None:
    """Return cuStreamIsCapturing if the process has a driver loaded."""
    try:
        return _load()
    except (OSError, AttributeError):
        return None


@functools.cache
def _load() -> Callable[..., int]:
    library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    function: Callable[..., int] = library.cuStreamIsCapturing
    return function
