"""A graph as the frontend's Python part prints it before it lowers it to C++ ("python IR").

Such a text leaves out too much to be bound: ragged offsets, which scalars are passed by value, the
type of intermediate tensors. So reading one ends in a refusal; that refusal has what the text says,
for `plan`, which asks the user for the rest and has the frontend lower the graph.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.model.limits import Int64, Rank, Size
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.codegen.text import member, shorten

NAME = "python IR"

REMEDY = (
    "`cudnn-bindgen plan` has NVIDIA's frontend lower it, and asks for what the text leaves out; "
    "or print it after graph.validate(), graph.build_operation_graph() and "
    "graph.create_execution_plans([...]), or write graph.serialize() of a built graph"
)

# A number, a switch, or `enum.MEMBER`.
Param = bool | int | float | str | None

# Node → the method that builds it. Attention is all that a frontend prints so after validate(). Of
# other nodes the text has strides that the frontend made up, and replaces when it lowers them.
METHODS = {
    "SDPA": "sdpa",
    "SDPA_BWD": "sdpa_backward",
    "SDPA_FP8": "sdpa_fp8",
    "SDPA_FP8_BWD": "sdpa_fp8_backward",
    "SDPA_MXFP8": "sdpa_mxfp8",
    "SDPA_MXFP8_BWD": "sdpa_mxfp8_backward",
}

_TYPE = "data_type."
_MEMBER = re.compile(r"[a-z]\w*\.[A-Z]\w*")
# One that is frozen is printed as Python writes a dict, in a string.
_VALUE = r"True|False|None|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|<\w+\.\w+: -?\d+>|\w+\.\w+"
_PAIR = re.compile(rf"'(\w+)': ({_VALUE})(?:, (?=')|\}}\Z)")
_AS_JSON = {"True": "true", "False": "false", "None": "null"}


class PrintedTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor; its name is its key."""

    dim: Annotated[list[Size], Rank]
    stride: Annotated[list[Int64], Rank]
    dtype: str
    is_virtual: bool
    uid: Int64

    @property
    def data_type(self) -> str | None:
        """Return the type as structures have it; None if the graph's stands for it."""
        return _data_type(self.dtype)


class PrintedNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node: ports are the arguments of the method that built it, and so are `params`."""

    name: str
    type: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    params: dict[str, Param]


class PrintedContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the graph."""

    io_data_type: str
    compute_data_type: str

    @property
    def io(self) -> str | None:
        """Return the type of operands."""
        return _data_type(self.io_data_type)

    @property
    def compute(self) -> str | None:
        """Return the type that nodes compute in."""
        return _data_type(self.compute_data_type)


class PrintedGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that such a text says; a field that is not known is refused."""

    context: PrintedContext
    nodes: list[PrintedNode]
    tensors: dict[str, PrintedTensor]


class UnloweredError(GraphFormatError):
    """Why such a text cannot be bound; `raw` is what it decodes to, unchecked."""

    def __init__(self, raw: dict[str, Any], known: str) -> None:
        super().__init__(
            f"expected {known}, got a graph that was printed before it was lowered",
            path="$.json_version",
            hint=REMEDY,
        )
        self.raw = raw
        self.dialect = NAME


def read_printed(raw: dict[str, Any]) -> PrintedGraph:
    """Check a decoded object.

    Raises
    ------
    GraphFormatError
        The frontend prints no such graph, or it left a tensor out.
    """
    nodes = raw.get("nodes")
    if isinstance(nodes, list):
        nodes = [_unfreeze(node, f"$.nodes[{index}]") for index, node in enumerate(nodes)]
    printed = check({**raw, "nodes": nodes}, PrintedGraph)
    for path, dtype in (
        ("$.context.io_data_type", printed.context.io_data_type),
        ("$.context.compute_data_type", printed.context.compute_data_type),
        *((f"{member('$.tensors', name)}.dtype", t.dtype) for name, t in printed.tensors.items()),
    ):
        if dtype != "None" and _data_type(dtype) not in BITS:
            raise GraphFormatError(
                f"expected a data type such as data_type.HALF, got {shorten(dtype)}", path=path
            )
    for index, node in enumerate(printed.nodes):
        for side, ports in (("inputs", node.inputs), ("outputs", node.outputs)):
            for port, name in ports.items():
                if name not in printed.tensors:
                    raise GraphFormatError(
                        f"expected the name of one tensor, got {shorten(name)}: the frontend "
                        "leaves tensors out that have one name",
                        path=member(f"$.nodes[{index}].{side}", port),
                        hint="name each tensor by itself, or write graph.serialize()",
                    )
        for name, value in node.params.items():
            if isinstance(value, str) and not _MEMBER.fullmatch(value):
                raise _not_said(value, member(f"$.nodes[{index}].params", name))
    _check_uids(printed)
    return printed


def _unfreeze(node: Any, path: str) -> Any:
    """Return a node whose params are an object, in whichever way they were printed."""
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("type"), str) and node["type"] not in METHODS:
        raise GraphFormatError(
            f"expected nodes of attention, got {shorten(node['type'])}: before graph.validate() "
            "its strides are not those that it will have",
            path=f"{path}.type",
            hint="print it after graph.validate()",
        )
    text = node.get("params")
    if not isinstance(text, str):
        return node
    params: dict[str, Param] = {}
    at = 1 if text != "{}" else len(text)
    while at < len(text) or not text.endswith("}"):
        pair = _PAIR.match(text, at)
        if text[:1] != "{" or pair is None or pair[1] in params:
            raise _not_said(text[at - 1 :].strip(), f"{path}.params")
        name, value = pair.groups()
        if value[0] == "<" or _MEMBER.fullmatch(value):
            params[name] = value.strip("<>").partition(":")[0]
        else:
            params[name] = json.loads(_AS_JSON.get(value, value))
        at = pair.end()
    return node | {"params": params}


def _not_said(value: str, path: str) -> GraphFormatError:
    return GraphFormatError(
        f"expected a number, a switch or the name of a constant, got {shorten(value)}",
        path=path,
        hint="a function such as score_mod is in no text: plan the graph in the program that "
        "builds it, and write graph.serialize() there",
    )


def _check_uids(printed: PrintedGraph) -> None:
    names: dict[int, str] = {}
    for name, tensor in printed.tensors.items():
        if tensor.uid in names:
            raise GraphFormatError(
                f"expected a uid of its own, got {tensor.uid}, the uid of "
                f"{shorten(names[tensor.uid])} too",
                path=f"{member('$.tensors', name)}.uid",
            )
        names[tensor.uid] = name


def _data_type(text: str) -> str | None:
    return text.removeprefix(_TYPE) if text.startswith(_TYPE) else None
