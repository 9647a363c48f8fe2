"""What was recorded, as one document for programs and as tables for people."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.bind.layouts import find_layout_rules
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.source import MAX_BYTES, read_file
from cudnn_bindgen.codegen.text import printable, shorten
from cudnn_bindgen.frontend.recording.accepts import explain_refusal
from cudnn_bindgen.frontend.recording.estimate import SOURCE, find_figures
from cudnn_bindgen.frontend.recording.merge import read_recording
from cudnn_bindgen.frontend.recording.symbols import suggest_symbols
from cudnn_bindgen.frontend.recording.tally import Tally


def as_document(folder: Path) -> dict[str, Any]:
    """Return everything `print_report` shows as plain data, the hottest graph first."""
    recording = read_recording(folder)
    hottest = sorted(recording.graphs.items(), key=lambda item: (-_calls(item[1]), item[0]))
    total = sum(map(_calls, recording.graphs.values()))
    return {
        "processes": recording.processes,
        "calls": total,
        "estimate": SOURCE,
        "graphs": [_graph(folder, key, tally, total) for key, tally in hottest],
        "problems": [
            {"where": where, "what": what, "count": count}
            for (where, what), count in recording.problems.most_common()
        ],
    }


def _calls(tally: Tally) -> int:
    return sum(tally.threads.values())


def _graph(folder: Path, key: str, tally: Tally, total: int) -> dict[str, Any]:
    calls = _calls(tally)
    plans = [name for name, _ in tally.plans.most_common() if name and _holds(folder, name)]
    dump = [f"{key}.json"] if _holds(folder, f"{key}.json") else []
    # Those of the frontend's own engines, which cannot be read here, come last.
    files = sorted([*plans, *dump], key=lambda name: name.endswith(".pyplan"))
    file = files[0] if files else None
    document: dict[str, Any] = {
        "fingerprint": key,
        "file": file,
        "plans": {name: tally.plans[name] for name in plans},
        "nodes": list(tally.tags),
        "objects": tally.objects,
        "calls": calls,
        "share": calls / total if total else 0.0,
        "executed_by_index": tally.indexed,
        "threads": dict(tally.threads.most_common()),
        "looks": tally.looks,
        "captured_looks": tally.captured,
        "run": {"accepted": None, "refused": [], "unknown": []},
        "overrides": {"values": len(tally.overrides), "symbols": [], "notes": []},
        "saving": None,
        "reasons": list(tally.reasons),
    }
    if file is None:
        document["reasons"].append("no file of it is in the folder")
        return document
    try:
        graph = read_graph(read_file(folder / file, MAX_BYTES), file)
        binding = bind(graph)
    except GraphFormatError as error:
        document["reasons"].append(str(error))
        return document
    document["run"] = _judge(graph, binding, tally)
    if tally.overrides:
        symbols, notes = suggest_symbols(binding, tally.overrides)
        document["overrides"] |= {"symbols": symbols, "notes": notes}
    figures = find_figures(tally.tags, graph.is_ragged, bool(tally.overrides))
    document["saving"] = {
        "benchmark": figures.benchmark,
        "us_a_call": round(figures.saved, 2),
        "ms": round(figures.saved * calls / 1000, 3),
    }
    return document


def _holds(folder: Path, name: str) -> bool:
    """Whether the folder has a file of that name, not a link that leads out of it."""
    path = folder / name
    return path.exists() and path.resolve().parent == folder.resolve()


def _judge(graph: Graph, binding: Binding, tally: Tally) -> dict[str, Any]:
    """Say which of the layouts seen `run` would take."""
    tensors = {tensor.uid: tensor for tensor in graph.tensors}
    rules = find_layout_rules(graph, is_sized=False)
    names = {a.uid: a.argument.removesuffix("_ptr") for a in binding.arguments if not a.is_scalar}
    overridden = {uid for override in tally.overrides for uid in override.uids}
    refused, unknown, accepted = [], [], 0
    for uid, name in names.items():
        for seen in tally.layouts.get(uid, Counter()):
            # Of an overridden operand the call's own dims count, not those declared.
            why = None
            if uid not in overridden:
                why = explain_refusal(tensors[uid], rules[uid], seen)
            if why is None:
                unknown.append(name)
            elif why:
                refused.append(f"{name} {why}")
            else:
                accepted += 1
    return {"accepted": accepted, "refused": refused, "unknown": sorted({*unknown})}


def print_report(document: dict[str, Any], folder: Path) -> None:
    """Print `as_document`'s result on standard output."""
    width = None if sys.stdout.isatty() else 200
    console = Console(highlight=False, emoji=False, width=width)
    console.print(
        f"[bold]{escape(shorten(str(folder), 60))}[/bold]: {len(document['graphs'])} graphs, "
        f"{document['calls']} calls, processes: {document['processes']}"
    )
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("graph", "nodes", "calls", "share", "run takes", "saves a call", "in all"):
        table.add_column(column, justify="left" if column in ("graph", "nodes") else "right")
    for graph in document["graphs"]:
        saving = graph["saving"]
        table.add_row(
            escape(graph["file"] or graph["fingerprint"]),
            escape(_nodes(graph["nodes"])),
            str(graph["calls"]),
            f"{graph['share']:.1%}",
            _takes(graph["run"]),
            f"{saving['us_a_call']:.1f} µs" if saving else "",
            f"{saving['ms']:.1f} ms" if saving else "",
        )
    console.print(table)
    console.print(f"Savings are estimated host time ({escape(document['estimate'])}).")
    for graph in document["graphs"]:
        for line in _remarks(graph):
            console.print(escape(printable(f"{graph['fingerprint'][:12]}: {line}")))
    for problem in document["problems"]:
        text = f"recording: {problem['where']}: {problem['what']} ({problem['count']} times)"
        console.print(escape(printable(text)))


def _nodes(tags: list[str]) -> str:
    counted = Counter(tags)
    return shorten(" ".join(t if n == 1 else f"{t}x{n}" for t, n in counted.items()), 48)


def _takes(run: dict[str, Any]) -> str:
    if run["refused"]:
        return f"not of {len(run['refused'])}"
    if run["unknown"]:
        return "unknown"
    return "all" if run["accepted"] else ""


def _remarks(graph: dict[str, Any]) -> list[str]:
    overrides = graph["overrides"]
    remarks = [f"run would refuse: {text}" for text in graph["run"]["refused"]]
    if graph["captured_looks"]:
        remarks.append(
            f"{graph['captured_looks']} of {graph['looks']} calls looked at were captured into a "
            "CUDA graph, whose replays are not counted and save nothing"
        )
    if graph["executed_by_index"]:
        remarks.append(f"{graph['executed_by_index']} calls of execute_plan_at_index, not counted")
    if overrides["values"]:
        remarks.append(f"{overrides['values']} override values")
    remarks += [f'--symbol "{symbol}"' for symbol in overrides["symbols"]]
    if len(graph["plans"]) > 1:
        plans = ", ".join(f"{name} {calls}" for name, calls in graph["plans"].items())
        remarks.append(f"{len(graph['plans'])} plans, by calls: {plans}")
    return [*remarks, *overrides["notes"], *graph["reasons"]]
