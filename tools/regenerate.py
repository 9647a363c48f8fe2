"""Emit generated/ anew: ``python tools/regenerate.py [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path

from cudnn_bindgen.cli import main

ROOT = Path(__file__).resolve().parents[1]
_PLANS = "tests/data/plans/cudnn-9.19-sm90"
_OVERRIDES = "tests/data/plans/cudnn-9.27-sm90"
_STRUCTURES = "tests/data/structure-v2"
_FRONTEND = "tests/data/frontends/1.32.0"

# Module → the graph file it is emitted from.
MODULES = {
    "layernorm": f"{_PLANS}/layernorm.plan",
    "matmul_bias_relu": f"{_PLANS}/matmul_bias_relu.plan",
    "paged_attention": f"{_STRUCTURES}/paged.json",
    "scale_by_value": f"{_PLANS}/scale_by_value.plan",
    "sdpa_overridden": f"{_OVERRIDES}/sdpa_override.plan",
    "sdpa_training": f"{_FRONTEND}/sdpa_causal.json",
    "sdpa_varlen": f"{_PLANS}/sdpa_thd.plan",
}

# Module → its symbols. This attention keeps to its declared strides (docs/overrides.md).
SYMBOLS = {
    "sdpa_overridden": (
        "B:declared=q.b,k.b,v.b,o.b,stats.b",
        "S_q:declared=q.s,o.s,stats.s",
        "S_kv:declared=k.s,v.s",
    ),
}

# Module → the graph files of its gradients: it gets operators of PyTorch, as they do.
BACKWARD = {"sdpa_training": (f"{_FRONTEND}/sdpa_backward.json",)}


def regenerate(*options: str) -> bool:
    """Run ``cudnn-bindgen emit`` for each module; return whether all of them exited with 0."""
    clean = True
    for module, graph in MODULES.items():
        target = ROOT / "generated" / f"{module}.pyx"
        command = ["emit", str(ROOT / graph), "--output", str(target), *options]
        command += [f"--symbol={symbol}" for symbol in SYMBOLS.get(module, ())]
        command += ["--torch"] if module in BACKWARD else []
        command += [f"--backward={ROOT / graph}" for graph in BACKWARD.get(module, ())]
        try:
            main(command, standalone_mode=False)
        except SystemExit as done:
            clean = clean and not done.code
    return clean


if __name__ == "__main__":
    sys.exit(0 if regenerate(*sys.argv[1:]) else 1)
