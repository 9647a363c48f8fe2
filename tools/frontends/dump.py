"""Write each graph's dump, or one log of some, with the frontend that is on the path.

Usage: dump.py dumps DIRECTORY | dump.py log. Run by `regenerate.py`.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import cudnn
from matrix import FAILS, LEFT_OUT, is_validated
from shapes import BUILDERS

for module in ("names", "norms", "attention", "pointwise"):
    importlib.import_module(module)  # adds its graphs to BUILDERS

# Of each graph, how often it is built, and how often each of those is validated.
LOGGED = {"matmul_bias_relu": (1, 2), "sdpa_unshaped_stats": (1, 1), "conv_some_uids": (2, 1)}


def lower_without_device() -> None:
    """Let 1.29 and newer lower a graph without a handle, which takes a device, and at once."""
    if hasattr(cudnn, "pygraph") and cudnn.pygraph.__module__ == "cudnn._pygraph":
        front = importlib.import_module("cudnn._pygraph")
        front._default_backend_handle = lambda *arguments, **keywords: None
        # Where 1.32 ships engines of its own it puts lowering off until plans are made.
        front.pygraph._python_native_validator = lambda graph: None


def write_dump(name: str, directory: Path) -> None:
    """Build one graph and write its dump; raise if that is not as `matrix.py` says."""
    reason = FAILS.get((cudnn.__version__, name))
    try:
        graph = BUILDERS[name]()
        if is_validated(cudnn.__version__, name):
            graph.validate()
    except (AttributeError, RuntimeError, cudnn.cudnnGraphNotSupportedError):
        if reason:
            return
        raise
    if reason:
        raise SystemExit(f"{name} can be built, but matrix.py says: {reason}")
    (directory / f"{name}.json").write_text(str(graph), encoding="utf-8")


def write_dumps(directory: Path) -> None:
    """Write all dumps, each from a process of its own: the frontend counts its graphs."""
    for name in BUILDERS:
        if (cudnn.__version__, name) in LEFT_OUT:
            continue
        child = os.fork()
        if child == 0:
            try:
                write_dump(name, directory)
            except BaseException as error:
                print(f"{cudnn.__version__} {name}: {error!r}", file=sys.stderr)
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            raise SystemExit(f"{name} could not be dumped")


def write_log() -> None:
    """Validate some graphs; the frontend writes the log that its environment asks for."""
    for name, (builds, validations) in LOGGED.items():
        for _ in range(builds):
            graph = BUILDERS[name]()
            for _ in range(validations):
                try:
                    graph.validate()
                except RuntimeError:
                    if is_validated(cudnn.__version__, name):
                        raise


if __name__ == "__main__":
    lower_without_device()
    if sys.argv[1] == "log":
        write_log()
    else:
        write_dumps(Path(sys.argv[2]))
