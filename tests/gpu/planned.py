"""Plans of many files at once, each process with a context of its own on the GPU; operands."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.constants import Constants
from cudnn_bindgen.frontend.planning.make_plan import make_plan, read_input
from cudnn_bindgen.frontend.planning.operands import make_operands
from cudnn_bindgen.frontend.planning.wanted import find_wanted, packed_stride, span

# What the frontend or cuDNN says, as against what is found out about the rebuilt graph.
THEIR_WORDS = (
    "cannot build",
    "cannot set",
    "cannot dump",
    "cannot make",
    "cuDNN",
    "the rebuilt graph is not valid",
)


def make_plans(files: Mapping[str, tuple[Path, Constants]]) -> dict[str, bytes | str | Exception]:
    """Return every plan by name; else the reason to skip it as text, or what went wrong."""
    workers = min(8, os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        made = pool.map(_make_plan, files.values())
        return dict(zip(files, made, strict=True))


def _make_plan(item: tuple[Path, Constants]) -> bytes | str | Exception:
    path, said = item
    try:
        return make_plan(read_input(path.read_bytes()), said)
    except GraphFormatError as error:
        return f"no graph: {error}"
    except PlanError as error:
        # As a plain exception: ours have more arguments than pickle hands over.
        is_refused = error.problem.startswith(THEIR_WORDS)
        return str(error) if is_refused else RuntimeError(str(error))


# Elements of one operand that are made at random, and that are allocated: PyTorch's tests of nested
# tensors declare strides beyond all memory.
RANDOM = 1 << 28
LARGEST = 1 << 34


def make_planned_operands(plan: bytes, generator: Any) -> dict[int, Any]:
    """Return fresh operands by uid, made for the ports that the file names."""
    import torch

    wanted = find_wanted(read_graph(plan))
    ports = {item.port for item in wanted}
    strides = {item.uid: packed_stride(item, ports) for item in wanted}
    sparse = [item for item in wanted if span(item.dim, strides[item.uid]) > RANDOM]
    dense = {
        item.uid: replace(item, stride=torch.empty(item.dim, device="meta").stride())
        for item in sparse
    }
    made = make_operands(
        torch, [dense.get(item.uid, item) for item in wanted], generator, generator.device
    )
    for item in sparse:
        size = span(item.dim, strides[item.uid])
        if size > LARGEST:
            pytest.skip(f"{item.name} spans {size} elements")
        flat = torch.empty(size, dtype=made[item.uid].dtype, device=generator.device)
        made[item.uid] = flat.as_strided(item.dim, item.stride).copy_(made[item.uid])
    return made
