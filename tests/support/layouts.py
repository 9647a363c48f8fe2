"""Layouts of small tensors, and the compiled rules for them."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cudnn_bindgen

Layout = tuple[Sequence[int], Sequence[int]]
"""Dims and strides, in elements."""

MOST = 2**63 - 1
LEAST = -(2**63)


def load_probe(builds: Any) -> ModuleType:
    """Compile cython/tensor_probe.pyx, which unlike an emitted module sees our headers."""
    headers = Path(cudnn_bindgen.__file__).parent / "runtime" / "cpp"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPATH", str(headers))
        path = builds.path("tensor_probe")
    spec = importlib.util.spec_from_file_location("tensor_probe", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packed(*dim: int) -> Layout:
    """Return the layout in which the last axis is the innermost."""
    stride, running = [], 1
    for size in reversed(dim):
        stride.insert(0, running)
        running *= size
    return dim, stride


def permuted(layout: Layout, *order: int) -> Layout:
    dim, stride = layout
    return [dim[axis] for axis in order], [stride[axis] for axis in order]


def elements(layout: Layout) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield coordinates and offset of each element."""
    dim, stride = layout
    for at in itertools.product(*map(range, dim)):
        yield at, sum(c * step for c, step in zip(at, stride, strict=True))
