"""A built graph of the frontend → the files that are written of it."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.dialects.python_plan import read_head
from cudnn_bindgen.codegen.read.dialects.python_plan import recognise as is_python_plan
from cudnn_bindgen.codegen.read.graph import build_graph, read_document, read_graph
from cudnn_bindgen.codegen.text import shorten

# Of the process, not of the graph; left out where a text stands for a graph that cannot be read.
_OF_THE_PROCESS = re.compile(r'"(gid|graph_uid)":\s*-?\d+')


@dataclass(frozen=True)
class Description:
    """What is known of a graph.

    Attributes
    ----------
    key
        The graph's fingerprint, from its plan if there is one; or of a graph that cannot be read
        ``unread-`` and a digest.
    nodes
        Tags, in the file's order.
    takes_overrides
        Whether calls may change shapes.
    plan
        Name of the plan's file, or empty.
    reasons
        Why there is no plan, or no graph that can be read.
    files
        File name → content; each name stands for its content.
    """

    key: str
    nodes: tuple[str, ...] = ()
    takes_overrides: bool = False
    plan: str = ""
    reasons: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def describe(graph: Any) -> Description:
    """Dump and serialize a graph that has been built; nothing of it changes.

    A graph that is not lowered stays so: its dump and its plan are of the frontend's Python part.
    """
    reasons = []
    engine = getattr(graph, "selected_engine", None)
    text, plan = b"", b""
    if engine is not None:
        name = getattr(engine, "name", type(engine).__name__)
        reasons.append(
            f"plan: of the frontend's own engine {shorten(str(name))}, which `build` traces"
        )
    dumped = repr(graph)
    if '"json_version"' in dumped:
        text = dumped.encode()
    else:
        reasons.append("structure: the frontend has not lowered the graph")
    if text or engine is not None:
        try:
            plan = _serialize(graph)
        except Exception as error:  # whatever cuDNN or the frontend says is the reason
            reasons.append(f"plan: cannot be serialized: {_say(error)}")
    return describe_files(text, plan, reasons)


def describe_loaded(arguments: Iterable[Any]) -> Description | None:
    """Describe what was given to ``deserialize``: the plan file itself, as no dump is as good."""
    for argument in arguments:
        if isinstance(argument, (bytes, bytearray, list)):
            return describe_files(b"", bytes(argument), [])
    return None


def describe_files(text: bytes, plan: bytes, reasons: Iterable[str]) -> Description:
    """Describe a graph by its structure, by its plan file, or both."""
    said = list(reasons)
    if is_python_plan(plan):
        return _add_python_plan(describe_files(text, b"", said), plan)
    planned = _read(plan, "plan", said)
    dumped = _read(text, "structure", said)
    # The plan says more of the graph.
    graph = planned or dumped
    files: dict[str, bytes] = {}
    if graph is None:
        if not text and not plan:
            return Description("", reasons=tuple(said))
        shown = _OF_THE_PROCESS.sub("", text.decode("utf-8", "replace")).encode() or plan
        key = f"unread-{_digest(shown)[:24]}"
        files = {f"{key}.json": text} if text else {f"{key}.plan": plan}
        return Description(key, reasons=tuple(said), files=files)
    key, name = fingerprint(graph), ""
    if text:
        files[f"{key}.json"] = text
    if planned is not None:
        if dumped is not None and fingerprint(_structure_of(plan)) != fingerprint(dumped):
            said.append("plan: its graph is another one than the dump's")
        name = f"{key}-{_plan_key(planned)}.plan"
        files[name] = plan
    return Description(
        key,
        tuple(node.tag for node in graph.nodes),
        graph.is_override_shape_enabled,
        name,
        tuple(said),
        files,
    )


def _add_python_plan(found: Description, plan: bytes) -> Description:
    """Add the file of a plan of the frontend's own engine, which says nothing here of its graph."""
    try:
        head = read_head(plan)
    except GraphFormatError as error:
        return dataclasses.replace(found, reasons=(*found.reasons, f"plan: {error}"))
    key = found.key or f"unread-{_digest(msgspec.json.encode(head.graph))[:24]}"
    made = _digest(f"{head.plan.engine_id} {head.plan.knobs}".encode())[:8]
    name = f"{key}-{made}.pyplan"
    return dataclasses.replace(found, key=key, plan=name, files={**found.files, name: plan})


def _serialize(graph: Any) -> bytes:
    try:
        return bytes(graph.serialize(as_bytes=True))
    except TypeError:  # older frontends have the list of numbers only
        return bytes(graph.serialize())


def _read(data: bytes, what: str, reasons: list[str]) -> Graph | None:
    if not data:
        return None
    try:
        return read_graph(data)
    except GraphFormatError as error:
        reasons.append(f"{what}: {error}")
        return None


def _structure_of(plan: bytes) -> Graph:
    """Return what a plan file says of its graph without the plan: as much as a dump."""
    return build_graph(msgspec.structs.replace(read_document(plan), plan=None))


def _plan_key(graph: Graph) -> str:
    """Tell plans of one graph apart by what makes them: the text holds kernels and process ids."""
    plan = graph.plan
    if plan is None:
        return "structure"
    made = f"{plan.cudnn_version} {plan.sm} {plan.engine}"
    return _digest(made.encode())[:8]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _say(error: Exception) -> str:
    return shorten(" ".join(str(error).split()) or type(error).__name__, 200)
