"""The document of a graph → what a picture of it shows: boxes, and arrows between them.

Nodes and operands are boxes, virtual tensors are arrows. All text is printable ASCII, and short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cudnn_bindgen.codegen.model.graph import is_made_up
from cudnn_bindgen.codegen.render.document import constants_of, say_attributes, say_number
from cudnn_bindgen.codegen.text import join_sizes, shorten

# The rest of a node is in the tables.
_MOST_LINES = 12
_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Box:
    """A node, or a tensor in memory; its first line is what it is called.

    `kind` is "node", "input", "output", "scalar" or, for memory that no caller passes, "other"; or
    "mark" for a place where an arrow goes on elsewhere.
    """

    key: str
    kind: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A tensor between two boxes; of a virtual tensor, which is none of them, `uid` says which.

    `is_offset`: it says where the rows of another tensor begin.
    """

    source: str
    target: str
    lines: tuple[str, ...]
    uid: int | None = None
    is_offset: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and arrows, each in the order of the graph."""

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def draw(document: dict[str, Any]) -> Picture:
    """Decide what a picture of the graph shows; `document` is `as_document`'s result."""
    drawing = _Drawing(document)
    nodes = [drawing.node(index, node) for index, node in enumerate(document["nodes"])]
    return Picture((*drawing.operands.values(), *nodes), tuple(drawing.arrows()))


class _Drawing:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.tensors = {tensor["uid"]: tensor for tensor in document["tensors"]}
        self.operands = {item["uid"]: _operand(item) for item in document["arguments"]}
        self.constants = constants_of(document)
        self.only_in_plan: dict[str, list[str]] = {}
        for only in document["only_in_plan"]:
            said = shorten(f"{only['what']}={only['value']}", _WIDTH)
            self.only_in_plan.setdefault(only["place"], []).append(said)
        self.writers: dict[int, str] = {}
        for index, node in enumerate(document["nodes"]):
            self.writers |= dict.fromkeys(node["outputs"].values(), f"n{index}")
        for node in document["nodes"]:
            for port, uid in _ports(node):
                tensor = self.tensors[uid]
                is_known = tensor["is_virtual"] or uid in self.operands or uid in self.constants
                if not is_known:
                    lines = (shorten(port, _WIDTH), "callers do not pass it", _shape(tensor))
                    self.operands[uid] = Box(f"t{len(self.operands)}", "other", lines)

    def node(self, index: int, node: dict[str, Any]) -> Box:
        compute_type = self.document["context"].get("compute_data_type")
        mode = node["attributes"].get("mode")
        title = [node["tag"], *([mode] if isinstance(mode, str) else [])]
        said = {**node, "attributes": {**node["attributes"], **({"mode": None} if mode else {})}}
        lines = [shorten(" ".join(title), _WIDTH)]
        if not is_made_up(node["name"]):
            lines.append(f'"{shorten(node["name"], _WIDTH - 2)}"')
        lines += (shorten(line, _WIDTH) for line in say_attributes(said, compute_type, bits=False))
        lines += (
            shorten(f"{port}={say_number(self.constants[uid])}", _WIDTH)
            for port, uid in node["inputs"].items()
            if uid in self.constants
        )
        lines += self.only_in_plan.get(f"node {index}", ())
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES:] = [f"and {len(lines) - _MOST_LINES} more"]
        return Box(f"n{index}", "node", tuple(lines))

    def arrows(self) -> Iterator[Arrow]:
        for index, node in enumerate(self.document["nodes"]):
            key = f"n{index}"
            for port, uid in node["inputs"].items():
                if uid in self.operands:
                    yield self._operand_arrow(uid, port, self.operands[uid].key, key)
                elif uid in self.writers:
                    shape = _shape(self.tensors[uid])
                    is_one = len(node["inputs"]) == 1 or not port
                    lines = (shape,) if is_one else (shape, shorten(port))
                    yield Arrow(self.writers[uid], key, lines, uid)
            for port, uid in node["outputs"].items():
                if uid in self.operands:
                    yield self._operand_arrow(uid, port, key, self.operands[uid].key)
        yield from self._offsets()

    def _operand_arrow(self, uid: int, port: str, source: str, target: str) -> Arrow:
        name = self.operands[uid].lines[0]
        is_said = port.lower() in ("", name.lower())
        return Arrow(source, target, () if is_said else (shorten(port),))

    def _offsets(self) -> Iterator[Arrow]:
        """Yield arrows to the tensors whose rows begin where an operand says."""
        for uid, box in self.operands.items():
            offset = self.tensors[uid]["ragged_offset_uid"]
            if offset in self.operands and offset != uid:
                yield Arrow(self.operands[offset].key, box.key, ("offsets",), is_offset=True)


def _ports(node: dict[str, Any]) -> Iterator[tuple[str, int]]:
    yield from node["inputs"].items()
    yield from node["outputs"].items()


def _operand(argument: dict[str, Any]) -> Box:
    default = argument["default"]
    lines = [
        argument["argument"].removesuffix("_ptr"),
        f"uid {argument['uid']}",
        f"default {default}" if default is not None else _shape(argument),
    ]
    return Box(f"a{argument['slot']}", argument["role"], tuple(lines))


def _shape(tensor: Mapping[str, Any]) -> str:
    return f"{join_sizes(tensor['dim'])} {tensor['data_type']}"
