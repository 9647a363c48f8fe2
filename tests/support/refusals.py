"""Every refusal that the tests know, by name: how to get it, and the line that a user gets.

A place in codegen that refuses something has to be reached by one of these: test_refusals.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from codegen.bind import test_bundle_refused
from codegen.model import test_identity
from codegen.read import (
    test_kernel_plan,
    test_logs,
    test_lost_v1,
    test_python_ir,
    test_read,
    test_read_bytes,
    test_read_plan,
    test_ubjson_scan,
    test_values_v1,
    test_warnings,
)
from cudnn_bindgen.codegen.bind.bundle import read_graphs, write_bundle
from cudnn_bindgen.codegen.bind.plan_file import read_plans
from cudnn_bindgen.codegen.read.dialects import plan
from cudnn_bindgen.codegen.read.dialects.decode import MAX_BYTES
from cudnn_bindgen.codegen.read.dialects.python_ir import read_printed
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions
from support.documents import add_graph, plan_document, to_json, to_ubjson, with_remedy
from support.documents_v1 import BY_NAME
from support.identities import edited

BROKEN = "expected a plan file, got broken UBJSON: "
STRICT = ReadOptions(strict=True)


@dataclass(frozen=True)
class Refusal:
    """`run` raises GraphFormatError with `message`, which ends in a remedy."""

    message: str
    run: Callable[[], Any]


def _reading(data: bytes, message: str, options: ReadOptions = ReadOptions()) -> Refusal:  # noqa: B008 - frozen
    return Refusal(with_remedy(f"F: {message}"), partial(read_graph, data, "F", options))


def _collect() -> Iterator[tuple[str, Refusal]]:
    for name, (edit, message) in test_read.REFUSED.items():
        yield f"structure: {name}", _reading(test_read.broken(edit), message)
    for name, (edit, message) in test_python_ir.REFUSED.items():
        raw = test_python_ir.edited(edit)
        yield f"python IR: {name}", Refusal(message, partial(read_printed, raw))
    for name, (fields, message) in test_read_plan.REFUSED.items():
        data = to_ubjson(plan_document(add_graph(), **fields))
        yield f"plan: {name}", _reading(data, message)
    for name, (data, message) in test_read_bytes.NO_GRAPH.items():
        yield f"bytes: {name}", _reading(data, message.replace("\\\\n", "\\n"))
    for name, (data, message) in test_ubjson_scan.REFUSED.items():
        expected, at = f"{BROKEN}expected {message}".rsplit(" ", 1)
        # The object around it counts as one of the values, and of the levels.
        inside = 3 if name in ("many", "deep") else 4
        if not plan.recognise(data):
            data, at = b"{i\x01a" + data, f"{int(at) + inside}"
        yield f"UBJSON: {name}", _reading(data, f"{expected} {at} {test_read_plan.TRUNCATED}")
    for name, (_, message) in test_lost_v1.REFUSED.items():
        yield f"v1: {name}", _reading(test_lost_v1.broken(name), message)
    for name, (fields, message) in test_values_v1.PAIRS.items():
        data = to_ubjson(test_values_v1.old_plan(BY_NAME, **fields))
        yield f"v1 plan: {name}", _reading(data, message)
    for name, (make, message) in test_logs.REFUSED.items():
        yield f"log: {name}", _reading(make(), message)
    for name, (path, edit, message) in test_identity.REFUSED.items():
        yield f"plan's text: {name}", _reading(edited(path, edit), message)
    for name, (only, message) in test_identity.CARRIED.items():
        yield f"carried: {name}", _reading(test_identity.carried(only), message)
    for name, (raw, message) in (test_warnings.WARNED | test_lost_v1.WARNED).items():
        encode = to_ubjson if "cudnn_backend_data" in raw else to_json
        yield f"strict: {name}", _reading(encode(raw), message, STRICT)
    for name, (make, message) in test_kernel_plan.REFUSED.items():
        yield f"kernels: {name}", _reading(make(), message)
    for name, (data, message) in test_bundle_refused.REFUSED.items():
        yield f"bundle: {name}", Refusal(f"F{message}", partial(read_graphs, data, "F"))
    for name, (files, message) in test_bundle_refused.REFUSED_FILES.items():
        yield f"bundle of {name}", Refusal(message, partial(write_bundle, files))
    yield from _wholes()
    yield from _others()


RIGHT_FILE = "(no graph is that large; is it the right file?)"


def _wholes() -> Iterator[tuple[str, Refusal]]:
    """What is wrong with a file as a whole."""
    text = b"{i\x01aSi\x01\xff}"
    problem = f"{BROKEN}Failed to decode utf8: string (at byte 8) {test_read_plan.TRUNCATED}"
    yield "UBJSON that is no UTF-8", _reading(text, problem)
    deep = "expected a graph file, got JSON nested too deep"
    yield "JSON as deep as the decoder goes", _reading(b'{"a":' * 10_000, deep)
    yield "JSON deeper than others go", _reading(b'{"a":' * 200 + b"1" + b"}" * 200, deep)
    beyond = "$[...]: expected a number that a double can hold, got a larger one"
    yield "number beyond all floats", _reading(b'{"json_version": 1e999}', beyond)
    endless = b'{"json_version": ' + b"1" * 5000 + b"}"
    beyond = "$[...]: expected an integer of at most 64 bits, got a larger one"
    yield "integer of 5000 digits", _reading(endless, beyond)
    large = f"expected a graph file with at most {MAX_BYTES}, got {MAX_BYTES + 2} bytes"
    yield "size", _reading(b"{" + b" " * MAX_BYTES + b"}", f"{large} {RIGHT_FILE}")
    graph = add_graph()
    nodes = "$.nodes: expected at most 5000, got 5001 "
    many = to_json(graph | {"nodes": graph["nodes"] * 5001})
    right = "(no cuDNN graph is that large; is it the right file?)"
    yield "nodes", _reading(many, nodes + right)
    lacking = plan_document(graph)
    del lacking["nodes"]
    problem = '$: expected a field "nodes", got a plan without its structure '
    remedy = "(serialize the graph with its structure (serialize_structure=true))"
    yield "plan without structure", _reading(to_ubjson(lacking), problem + remedy)


def _others() -> Iterator[tuple[str, Refusal]]:
    several = b"x\n" + b"\n".join(test_logs.line(add_graph(a=name)) for name in "abc")
    choose = "expected one graph, got 3 (choose one with --index 1 to 3; --list shows them)"
    yield "several graphs", _reading(several, choose)
    beyond = "expected an --index from 1 to 3, got 4 (--list shows the graphs)"
    yield "index", _reading(several, beyond, ReadOptions(index=4))
    virtual = plan_document(test_warnings.unread(3), variant_pack_uids=[1, 2, 3])
    problem = "$.variant_pack_uids: expected uids of tensors in memory, got 3, a virtual one "
    yield "plan of a virtual tensor", _reading(to_ubjson(virtual), problem + test_read_plan.OTHER)
    structure = (
        "plan: expected a plan, got structure only "
        '(write the file with graph.serialize(), or load it with on_missing="plan")'
    )
    yield "load_plan", Refusal(structure, partial(read_plans, to_json(add_graph())))


REFUSALS = dict(_collect())
