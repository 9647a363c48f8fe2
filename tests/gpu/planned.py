"""Plans of many files at once, each process with a context of its own on the GPU."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.planning.constants import Constants
from cudnn_bindgen.planning.make_plan import make_plan, read_input

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
