"""What a graph binds and does, or why it cannot be used: for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cudnn_bindgen.codegen.bind.bundle import first_plan
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.evidence import as_rows, made_for, summarize
from cudnn_bindgen.codegen.model.graph import is_made_up, under
from cudnn_bindgen.codegen.read.graph import Entry, list_graphs, read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.read.source import display_name, is_stdin, read_source
from cudnn_bindgen.codegen.render.document import (
    constants_of,
    evidence_of,
    say_attributes,
    say_number,
)
from cudnn_bindgen.codegen.render.tables import Tables
from cudnn_bindgen.codegen.text import join_sizes, shorten

_MOST_PLACES = 20  # a refusal may hold for each of thousands of tensors
# Longer names are hostile; --json has the rest of them.
_MOST_LETTERS = 200


def explain(refusal: GraphFormatError) -> dict[str, Any]:
    """Return everything that is known of a refusal as plain data."""
    return {
        "file": refusal.file,
        "dialect": refusal.dialect or "unknown",
        "line": refusal.line or None,
        "path": refusal.path or None,
        "problem": refusal.problem,
        "also": list(refusal.also),
        "remedy": refusal.hint,
    }


def explain_lines(refusal: GraphFormatError) -> list[str]:
    """Return `explain`'s result as lines for people, without what is not known."""
    rows = [
        ("read as", refusal.dialect or "unknown"),
        ("line", str(refusal.line or "")),
        ("at", refusal.path),
        ("problem", refusal.problem),
        *(("also at", path) for path in refusal.also[:_MOST_PLACES]),
        ("", f"and at {more} more" if (more := len(refusal.also) - _MOST_PLACES) > 0 else ""),
        ("remedy", refusal.hint),
    ]
    return [f"  {title:8} {shorten(text, 300)}" for title, text in rows if text]


def _entry(index: int, entry: Entry) -> dict[str, Any]:
    graph, refusal = entry.graph, entry.refusal
    return {
        "index": index,
        "line": entry.line or None,
        "nodes": " ".join(entry.tags),
        "operands": sum(not t.is_virtual for t in graph.tensors) if graph else None,
        "refused": ": ".join(filter(None, (refusal.path, refusal.problem))) if refusal else None,
        "remedy": refusal.hint if refusal else None,
    }


def show_list(graph: Path, reading: ReadOptions, as_json: bool) -> None:
    """Print which graphs a file holds."""
    file = display_name(graph)
    # The plans of a bundle are of one graph.
    found = list_graphs(first_plan(read_source(graph), file), file, reading)
    entries = [_entry(index, entry) for index, entry in enumerate(found, 1)]
    if as_json:
        print_json(entries)
        return
    tables = Tables()
    tables.say("graphs, by --index", shorten("stdin" if is_stdin(graph) else graph.name, 60))
    tables.table("", [*map(_cells, entries)], {"remedy": "refused"})


def print_json(document: object) -> None:
    """Print plain data on standard output."""
    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def print_tables(document: dict[str, Any], source: str) -> None:
    """Print `as_document`'s result on standard output; `source` names the file."""
    tables = Tables()
    overrides = ", shapes can be overridden" if document["is_override_shape_enabled"] else ""
    tables.say(
        f"{document['dialect']}, graph {document['fingerprint']}{overrides}", shorten(source, 60)
    )
    types = {
        name: document["context"].get(f"{name}_data_type")
        for name in ("io", "intermediate", "compute")
    }
    tables.say(", ".join(f"{name} {shorten(of)}" for name, of in types.items() if of))
    tables.table(
        "arguments of execute",
        [*map(_argument, document["arguments"])],
        {"data type": "argument", "dim": "role", "stride": "name", "axes": "default"},
    )
    nodes = document["nodes"]
    tables.table(
        "nodes",
        [_node(index, node, types["compute"]) for index, node in enumerate(nodes)],
        {"name": "tag", "outputs": "inputs"},
    )
    tables.table("virtual tensors", [*_virtual(document["tensors"])], {"name": "uid"})
    tables.table("constants", [*_constants(document)])
    only = [row for row in document["only_in_plan"] if row["what"] != "constant"]
    tables.table("only in the plan", [*map(_cells, only)])
    tables.table("launch", [*map(_cells, document.get("launch", []))])
    plans = document["plans"]
    if len(plans) > 1:
        tables.table("plans, of which each device gets its own", [*map(_plan_row, plans)])
        tables.say("how each was made, and what it adds to a call: --json")
        return
    tables.say("")
    if plans:
        _print_plan(tables, plans[0])
    else:
        tables.say("none in this file; the module needs load_plan()", "plan")


def _argument(argument: dict[str, Any]) -> dict[str, str]:
    """Return a row that says nothing twice: a port that the argument is named after, 16 bytes."""
    name, port = argument["name"], argument["port"]
    called = argument["argument"].removesuffix("_ptr")
    aligned = "" if argument["alignment"] in (1, 16) else f", align {argument['alignment']}"
    default = argument["default"]
    return {
        "slot": str(argument["slot"]),
        "uid": str(argument["uid"]),
        "argument": argument["argument"],
        "role": argument["role"] + ("" if port.lower() == called else f" {_text(port)}"),
        "name": "" if name.lower() == called else _text(name),
        "data type": argument["data_type"] + aligned,
        "dim": join_sizes(argument["dim"]),
        "stride": join_sizes(argument["stride"]),
        "default": "" if default is None else f"{default} ({argument['default_bits']})",
        "axes": ",".join(argument.get("axes") or ()),
    }


def _node(index: int, node: dict[str, Any], compute_type: str | None) -> dict[str, str]:
    return {
        "node": str(index),
        "tag": _text(node["tag"]),
        "name": "" if is_made_up(node["name"]) else _text(node["name"]),
        "inputs": _ports(node["inputs"]),
        "outputs": f"-> {_ports(node['outputs'])}",
        "attributes": ", ".join(say_attributes(node, compute_type)),
    }


def _virtual(tensors: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for tensor in tensors:
        if tensor["is_virtual"]:
            yield {
                "uid": str(tensor["uid"]),
                "name": _text(tensor["name"]),
                "data type": tensor["data_type"],
                "dim": join_sizes(tensor["dim"]),
                "stride": join_sizes(tensor["stride"]),
            }


def _constants(document: dict[str, Any]) -> Iterator[dict[str, str]]:
    tensors = {tensor["uid"]: tensor for tensor in document["tensors"]}
    ports = {uid: port for node in document["nodes"] for port, uid in node["inputs"].items()}
    for uid, value in constants_of(document).items():
        name = tensors[uid]["name"] if uid in tensors else ""
        yield {
            "uid": str(uid),
            "name": "" if is_made_up(name) else _text(name),
            "port": _text(ports[uid]) if uid in ports else "",
            "data type": value["data_type"],
            "value": say_number(value),
            "bits": value["bits"],
            "": "" if uid in tensors else "added by lowering",
        }


def _plan_row(plan: dict[str, Any]) -> dict[str, str]:
    return {
        "SM": str(plan["sm"]),
        "SM count": str(plan["sm_count"] or ""),
        "cuDNN": under(plan["cudnn_version"]).removeprefix("cuDNN "),
        "made": _text(made_for(plan["evidence"] or {})),
        "engine": _text(plan["engine"]),
        "workspace": str(plan["frontend_workspace_size"] or ""),
        "bytes": str(plan["bytes"]),
    }


def _print_plan(tables: Tables, plan: dict[str, Any]) -> None:
    tables.say(
        f"{under(plan['cudnn_version'])}, SM {plan['sm']}, {_text(plan['engine'])}, "
        f"{plan['bytes']} bytes",
        "plan",
    )
    notes = ", ".join(shorten(note) for note in plan["behavior_notes"])
    tables.say(f"behavior notes: {notes or 'none'}")
    if plan["kernels"]:
        tables.say(f"workspace: {plan['kernels']['workspace_size']} bytes")
        tables.say(f"kernels: SHA-256 {plan['kernels']['sha256']}")
        tables.table("launches", [*map(_cells, plan["kernels"]["launches"])])
    else:
        tables.say(
            f"workspace: {plan['frontend_workspace_size']} bytes of the frontend's, and cuDNN's "
            "own, which it tells once the plan is on a device"
        )
    _print_evidence(tables, plan["evidence"])
    for part in ("workspace_parts", "replacements"):
        tables.table(part.replace("_", " "), [*map(_cells, plan[part])])


def print_candidates(data: bytes) -> None:
    """Print on standard error how the plan of a plan file was chosen."""
    plan = read_graph(data).plan
    if plan is not None:
        _print_evidence(Tables(stderr=True), evidence_of(plan))


def _print_evidence(tables: Tables, evidence: dict[str, Any] | None) -> None:
    if evidence is None:
        return
    if not evidence:
        tables.say("chosen: cannot be read")
        return
    tables.say(f"chosen: {_text(summarize(evidence))}")
    tables.table("candidates", [*map(_cells, as_rows(evidence))])


def _text(text: str) -> str:
    return shorten(text, _MOST_LETTERS)


def _ports(ports: dict[str, int]) -> str:
    return " ".join(f"{_text(port)}={uid}" for port, uid in ports.items())


def _cells(row: dict[str, Any]) -> dict[str, str]:
    return {name.replace("_", " "): _cell(value) for name, value in row.items()}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], dict):  # the patches of a launch
            return " ".join(f"{item['byte']}:{item['operand']}" for item in value)
        return ",".join(map(str, value))
    return _text(str(value))
