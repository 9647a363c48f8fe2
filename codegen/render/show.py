"""What a graph binds or why it cannot be, for people (tables) and for programs (one document)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.bundle import first_plan, merge_warnings
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.evidence import (
    as_plain,
    as_rows,
    made_for,
    read_evidence,
    summarize,
)
from cudnn_bindgen.codegen.model.graph import Graph, Node, PlanInfo, under
from cudnn_bindgen.codegen.read.graph import Entry, list_graphs, read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.read.source import display_name, is_stdin, read_source
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.module_data import PlanParts

_MOST_PLACES = 20  # a refusal may hold for each of thousands of tensors
# Laying out a table takes a while; real graphs have some hundred nodes.
_MOST_ROWS = 1000

_OPERATIONS = ("copy to device", "set to zero", "address only")


def as_document(graphs: Sequence[Graph], binding: Binding) -> dict[str, Any]:
    """Return everything `print_tables` shows as plain data; `graphs` are what was bound."""
    return {
        "fingerprint": binding.fingerprint,
        "dialect": binding.dialect,
        "is_override_shape_enabled": binding.is_override_shape_enabled,
        "warnings": [str(warning) for warning in merge_warnings(graphs)],
        "arguments": [
            _argument(argument) | _axes(binding, argument) for argument in binding.arguments
        ],
        "nodes": [
            {
                "tag": node.tag,
                "name": node.name,
                "inputs": dict(node.inputs + node.optional) | _carried(node),
                "outputs": dict(node.outputs),
            }
            for node in graphs[0].nodes
        ],
        "only_in_plan": _only_in_plan(graphs[0]),
        "plans": [
            _plan(plan, info)
            for plan, info in zip(
                binding.plans, (graph.plan for graph in graphs if graph.plan), strict=True
            )
        ],
    }


def _only_in_plan(graph: Graph) -> list[dict[str, Any]]:
    """Return what of the graph no dump would say."""
    found = [(f"uid {t.uid}", "constant", t.constant.value) for t in graph.tensors if t.constant]
    said = [(f"node {index}", what, how) for index, what, how in graph.unsaid if index >= 0]
    return [
        {"place": place, "what": what, "value": None if isinstance(how, list) else str(how)}
        for place, what, how in (*found, *said)
    ]


def _carried(node: Node) -> dict[str, int]:
    """Return the tensors in a node's field, which may hold several."""
    return {f"{field}[{index}]": uid for index, (field, uid) in enumerate(node.extra)}


def _plan(plan: PlanParts, info: PlanInfo) -> dict[str, Any]:
    return {
        "cudnn_version": plan.cudnn_version,
        "sm": plan.sm,
        "sm_count": plan.sm_count,
        "engine": plan.engine,
        "behavior_notes": list(info.behavior_notes),
        "evidence": _evidence(info),
        "bytes": len(plan.text),
        "constants": [
            {"uid": uid, "data_type": value.data_type, "bits": value.data[::-1].hex()}
            for uid, value in info.constants
            if uid not in plan.uids
        ],
        "frontend_workspace_size": plan.workspace_size,
        "workspace_parts": [
            {"uid": uid, "operation": _OPERATIONS[operation], "offset": offset}
            for uid, operation, offset, _ in plan.workspace_parts
        ],
        "replacements": [
            {"source": source, "target": target, "offset": offset}
            for source, target, offset in plan.replacements
        ],
    }


def _evidence(plan: PlanInfo) -> dict[str, Any] | None:
    """Return how the plan was chosen; no members if that cannot be read."""
    if plan.evidence is None:
        return None
    found = read_evidence(plan.evidence)
    return {} if found is None else as_plain(found)


def _axes(binding: Binding, argument: Argument) -> dict[str, Any]:
    """Return the names that symbols call an operand's axes by, where calls may override them."""
    if binding.overrides is None:
        return {}
    return {"axes": None if argument.is_scalar else binding.overrides.shapes[argument.slot].axes}


def _argument(argument: Argument) -> dict[str, Any]:
    return {
        "slot": argument.slot,
        "uid": argument.uid,
        "argument": argument.argument,
        "name": argument.original,
        "role": argument.role,
        "port": argument.port,
        "data_type": argument.data_type,
        "dim": list(argument.dim),
        "stride": list(argument.stride),
        "alignment": argument.alignment,
        # JSON has no NaN and no infinities.
        "default": None if argument.default is None else str(argument.default.value),
    }


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
    console = _console()
    source = "stdin" if is_stdin(graph) else graph.name
    console.print(f"[bold]{escape(shorten(source, 60))}[/bold]: graphs, by --index")
    _print(console, "", entries, width=120)


def print_json(document: object) -> None:
    """Print plain data on standard output."""
    print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def print_tables(document: dict[str, Any], source: str) -> None:
    """Print `as_document`'s result on standard output; `source` names the file."""
    console = _console()
    overrides = ", shapes can be overridden" if document["is_override_shape_enabled"] else ""
    console.print(
        f"[bold]{escape(shorten(source, 60))}[/bold]: {document['dialect']}, "
        f"graph {document['fingerprint']}{overrides}"
    )
    _print(console, "arguments of execute", document["arguments"])
    _print(console, "nodes", document["nodes"])
    _print(console, "only in the plan", document["only_in_plan"])
    _print(console, "launch", document.get("launch", []))
    plans = document["plans"]
    if not plans:
        console.print("plan: none in this file; the module needs load_plan()")
    elif len(plans) == 1:
        _print_plan(console, plans[0])
    else:
        _print(console, "plans, of which each device gets its own", [*map(_plan_row, plans)])
        console.print("constants, workspace, and how each was made: --json")


def _plan_row(plan: dict[str, Any]) -> dict[str, Any]:
    return {
        "SM": plan["sm"],
        "SM count": plan["sm_count"] or None,
        "cuDNN": under(plan["cudnn_version"]).removeprefix("cuDNN "),
        "made": made_for(plan["evidence"] or {}),
        "engine": plan["engine"],
        "bytes": plan["bytes"],
    }


def _print_plan(console: Console, plan: dict[str, Any]) -> None:
    console.print(
        f"[bold]plan[/bold]: {under(plan['cudnn_version'])}, "
        f"SM {plan['sm']}, {escape(shorten(plan['engine'], 80))}, {plan['bytes']} bytes"
    )
    notes = ", ".join(shorten(note) for note in plan["behavior_notes"])
    console.print(f"behavior notes: {escape(notes) or 'none'}")
    console.print(
        f"workspace: {plan['frontend_workspace_size']} bytes of the frontend's, and cuDNN's own, "
        "which it tells once the plan is on a device"
    )
    _print_evidence(console, plan["evidence"])
    for part in ("constants", "workspace_parts", "replacements"):
        _print(console, part.replace("_", " "), plan[part])


def print_candidates(data: bytes) -> None:
    """Print on standard error how the plan of a plan file was chosen."""
    plan = read_graph(data).plan
    if plan is not None:
        _print_evidence(_console(stderr=True), _evidence(plan))


def _print_evidence(console: Console, evidence: dict[str, Any] | None) -> None:
    if evidence is None:
        return
    if not evidence:
        console.print("chosen: cannot be read")
        return
    console.print(f"chosen: {escape(shorten(summarize(evidence), 190))}")
    _print(console, "candidates", as_rows(evidence), width=80)


def _console(*, stderr: bool = False) -> Console:
    # Cut to a terminal's width, but not for a pipe, where rich would assume 80 columns.
    # No emoji: a tensor may be named ":x:".
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 200
    return Console(stderr=stderr, highlight=False, emoji=False, width=width)


def _print(console: Console, title: str, rows: list[dict[str, Any]], width: int = 60) -> None:
    if not rows:
        return
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in rows[0]:
        table.add_column(column.replace("_", " "))
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(escape(_cell(value, width)) for value in row.values()))
    console.print(table)
    if len(rows) > _MOST_ROWS:
        console.print(f"and {len(rows) - _MOST_ROWS} more; --json has all of them")


def _cell(value: Any, width: int) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], dict):  # the patches of a launch
            return " ".join(f"{item['byte']}:{item['operand']}" for item in value)
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{shorten(key)}={item}" for key, item in value.items())
    return shorten(str(value), width)
