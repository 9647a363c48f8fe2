"""Print attention before it is lowered, with the real frontend, and lower it again from the text.

Run by test_planning_printed.py in a process of its own, as dump.py is. Prints, as JSON, for each
graph: what it prints in each state, what its text leaves out, the structure that the frontend
makes of the graph itself. And on standard input, {name: [text, facts]}: what comes of it.
"""

import ctypes
import json
import sys

import cudnn
from cudnn._pygraph import pygraph

_native = pygraph._python_native_validator  # which dump.py turns off

import every_attention  # noqa: E402, F401  (adds its graphs)
import every_tag  # noqa: E402

from cudnn_bindgen.codegen.errors import PlanError  # noqa: E402
from cudnn_bindgen.frontend.planning.printed import check_printed, lower_printed  # noqa: E402

_REFUSED = (RuntimeError, TypeError, ValueError, cudnn.cudnnGraphNotSupportedError)


def facts_of(graph):
    """Say all that is not printed, as whoever wrote the program would."""
    tensors = list(graph.tensors.values())
    facts = ["intermediate=FLOAT", "rest=default"]
    read = {id(tensor) for node in graph.nodes for tensor in node.inputs.values()}
    for tensor in tensors:
        if id(tensor) in read and tensor.dim and set(tensor.dim) == {1} and not tensor.is_virtual:
            facts.append(f"{tensor.name}={'by-value' if tensor.is_pass_by_value else 'by-address'}")
        if tensor.ragged_offset is not None:
            offset = f"{tensor.ragged_offset.name}*{tensor.ragged_offset_multiplier}"
            facts.append(f"{tensor.name}=ragged:{offset}")
    if not any(tensor.ragged_offset for tensor in tensors):
        facts.append("ragged=none")
    return facts


def printed(build):
    """Return what a graph prints, its facts, and its structure."""
    native = lambda graph: _native(graph)  # noqa: E731 - a method again
    lowering, pygraph._python_native_validator = pygraph._python_native_validator, native
    try:
        graph = build()
        texts = {"built": repr(graph)}
        graph.validate()
        texts["validated"] = repr(graph)
    finally:
        pygraph._python_native_validator = lowering
    graph = build()
    facts = facts_of(graph)
    graph.validate()
    texts["lowered"] = json.dumps(graph.inspect(), default=str)
    return {"texts": texts, "facts": facts, "structure": str(graph)}


def lowered(text, facts, sm=90):
    """Return the structure of a printed graph, or why there is none."""
    try:
        graph = check_printed(json.loads(text), facts)
        return lower_printed(graph, cudnn, {"sm_version": sm}).decode()
    except PlanError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    ctypes.CDLL("libcudnn.so.9").standin_set_version(ctypes.c_size_t(92800))
    found = {}
    for name, build in every_tag.BUILDERS.items():
        if name.startswith("sdpa"):
            try:
                found[name] = printed(build)
            except _REFUSED as error:
                found[name] = {"refused": str(error)}
                continue
            for state, text in found[name]["texts"].items():
                found[name][state] = lowered(
                    text, found[name]["facts"], 100 if "mxfp8" in name else 90
                )
    for name, (text, facts) in json.load(sys.stdin).items():
        found[name] = lowered(text, facts)
    print(json.dumps(found))
