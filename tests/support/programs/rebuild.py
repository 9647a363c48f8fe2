"""Rebuild graphs with the real frontend, without a GPU, and say how each came out, as JSON.

Usage: rebuild.py [FILE...], and on standard input JSON: {name: {"text": ..., "const": [...],
"argument": [...]}}. Run by test_planning_rebuild.py in a process of its own, as dump.py is.
The graphs of every_tag.py and every_attention.py are dumped first; {name: {"text", "error"}}.
"""

import ctypes
import json
import sys
from pathlib import Path

import cudnn
import every_attention  # noqa: F401  (adds its graphs)
import every_tag

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.graph import list_graphs, read_document
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.frontend.planning.constants import parse_constants, resolve_constants
from cudnn_bindgen.frontend.planning.lowering import undo_lowering
from cudnn_bindgen.frontend.planning.rebuild import rebuild
from cudnn_bindgen.frontend.planning.structure import read_structure

pygraph = cudnn.pygraph
# New enough for all tags; the frontend has loaded the same library.
ctypes.CDLL("libcudnn.so.9").standin_set_version(ctypes.c_size_t(92800))


def rebuild_for(sm, data, **said):
    """Rebuild for a GPU that is not there; without an SM lowering would ask CUDA for it."""
    cudnn.pygraph = lambda **options: pygraph(sm_version=sm, **options)
    return rebuilt(data, **said)


def dumped(build):
    """Return a graph's dump, or why this frontend or its stand-in cuDNN does not take it."""
    try:
        graph = build()
        graph.validate()
    except (RuntimeError, TypeError, ValueError, cudnn.cudnnGraphNotSupportedError) as error:
        return {"refused": str(error)}
    return {"text": str(graph)}


def rebuilt(data, const=(), argument=(), index=None):
    """Return nothing if the graph came out the same, else the error."""
    try:
        structure = undo_lowering(read_structure(read_document(data, options=ReadOptions(index))))
        values = resolve_constants(structure, parse_constants(const, argument))
        rebuild(structure, values, cudnn)
    except (GraphFormatError, PlanError) as error:
        return {"error": str(error)}
    return {}


if __name__ == "__main__":
    results = {}
    made = {name: dumped(build) for name, build in every_tag.BUILDERS.items()}
    for name, found in made.items():
        results[name] = found
        if "text" in found:
            sm = 100 if "mxfp8" in name else 90
            results[name] |= rebuild_for(sm, found["text"].encode())
    for path in map(Path, sys.argv[1:]):
        data = path.read_bytes()
        if path.suffix != ".log":
            results[str(path)] = rebuild_for(90, data)
            continue
        for index, _ in enumerate(list_graphs(data), 1):
            results[f"{path} {index}"] = rebuild_for(90, data, index=index)
    for name, item in json.load(sys.stdin).items():
        results[name] = rebuild_for(90, item.pop("text").encode(), **item)
    print(json.dumps(results))
