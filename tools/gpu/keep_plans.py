"""pytest plugin: keeps a plan file of each kind of graph that tests of the frontend execute.

    export KEEP=plans PYTHONPATH=tools/gpu:$FRONTEND/test/python
    python3 -m pytest -p keep_plans -p no:benchmark -n 16 $FRONTEND/test/python/test_layernorm.py

FRONTEND is a checkout of NVIDIA's public repository. A kind is a set of node tags with an engine
and its knobs. The files are what sweep.py takes.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import cudnn

FOLDER = Path(os.environ["KEEP"])
FOLDER.mkdir(parents=True, exist_ok=True)
TAG = re.compile(rb"tagSi.([A-Z0-9_]+)")
ENGINE = re.compile(rb'"engine":\{.*?\}\s*[,}]', re.DOTALL)

frontends_execute = cudnn.pygraph.execute


def execute(graph: Any, *args: Any, **kwargs: Any) -> Any:
    """Keep the graph's plan, then do what was asked for."""
    data = bytes(graph.serialize(as_bytes=True))
    engine = ENGINE.search(data)
    kind = b"|".join([*sorted(set(TAG.findall(data))), engine[0] if engine else b""])
    path = FOLDER / f"{hashlib.sha256(kind).hexdigest()[:16]}.plan"
    if not path.exists():
        staged = path.with_suffix(f".{os.getpid()}")  # several processes may be at work
        staged.write_bytes(data)
        staged.rename(path)
    return frontends_execute(graph, *args, **kwargs)


cudnn.pygraph.execute = execute
