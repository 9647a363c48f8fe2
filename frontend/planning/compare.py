"""Two structures → what differs, node by node, attribute by attribute, tensor by tensor.

The proof that a graph was rebuilt. What is not compared, because the same graph has it in two ways,
stands in docs/plans.md with the reasons; each is a function here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.codegen.model.ports import ATTENTION, fields_with_tensors
from cudnn_bindgen.codegen.read.dialects.document import ContextDocument, TensorDocument
from cudnn_bindgen.codegen.text import member, shorten
from cudnn_bindgen.frontend.planning.implementation import ATTRIBUTE, names_one
from cudnn_bindgen.frontend.planning.structure import Structure

# Lowering gives this output of attention a name of its own (the frontend's softmax.h).
_RENAMED = {"Sum_exp": "SumExp"}

# How many differences an error tells of.
_TOLD = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not the same: where, what the file has, what the rebuilt graph has."""

    path: str
    expected: object
    found: object

    def __str__(self) -> str:
        return f"{self.path}: expected {_tell(self.expected)}, got {_tell(self.found)}"


def _tell(value: object) -> str:
    return "none" if value is None else shorten(repr(value))


def check_same(file: Structure, rebuilt: Structure, constants: frozenset[int]) -> None:
    """Raise PlanError if a rebuilt graph is not the one in the file.

    `constants` are the uids of those that the user gave the values of.
    """
    differences = list(compare(file, rebuilt, constants))
    if not differences:
        return
    first, *more = differences
    others = "; ".join(str(each) for each in more[: _TOLD - 1])
    left = f"; and {len(more) - _TOLD + 1} more" if len(more) >= _TOLD else ""
    raise PlanError(
        f"the rebuilt graph differs: expected {_tell(first.expected)}, got {_tell(first.found)}"
        + (f"; {others}{left}" if others else ""),
        path=first.path,
        hint="the frontend's Python API does not build this graph as it is",
    )


def compare(
    file: Structure, rebuilt: Structure, constants: frozenset[int] = frozenset()
) -> Iterator[Difference]:
    """Yield what differs between a file and the graph that was rebuilt from it."""
    yield from _contexts(file.context, rebuilt.context)
    if len(file.nodes) != len(rebuilt.nodes):
        yield Difference("$.nodes", len(file.nodes), len(rebuilt.nodes))
    for index, (expected, found) in enumerate(zip(file.nodes, rebuilt.nodes, strict=False)):
        yield from _nodes(expected, found, f"$.nodes[{index}]", file)
    renamed = {
        uid: _RENAMED[port]
        for node in file.nodes
        for port, uid in node.outputs
        if port in _RENAMED and node.tag in ATTENTION
    }
    for uid in sorted({*file.tensors, *rebuilt.tensors}):
        path = file.paths.get(uid, "$.tensors")
        if uid not in file.tensors or uid not in rebuilt.tensors:
            here = uid if uid in file.tensors else None
            yield Difference(f"{path}.uid", here, uid if here is None else None)
            continue
        yield from _tensors(uid, path, file, rebuilt)
        # The frontend makes names up where there is none, and for constants, which nobody binds.
        before, after = file.tensors[uid].name, rebuilt.tensors[uid].name or ""
        if before and uid not in constants and after not in (before, renamed.get(uid)):
            yield Difference(f"{path}.name", before, after)


def _contexts(file: ContextDocument, rebuilt: ContextDocument) -> Iterator[Difference]:
    for name in file.__struct_fields__:
        expected, found = getattr(file, name), getattr(rebuilt, name)
        if name == "sm_count":  # -1 or left out: all of them
            expected, found = (None if count == -1 else count for count in (expected, found))
        if expected != found:
            yield Difference(f"$.context.{name}", expected, found)


def _nodes(file: Node, rebuilt: Node, path: str, structure: Structure) -> Iterator[Difference]:
    if not _is_same_tag(file.tag, rebuilt.tag):
        yield Difference(f"{path}.tag", file.tag, rebuilt.tag)
    if file.name and file.name != rebuilt.name:  # the frontend gives every node some name
        yield Difference(f"{path}.name", file.name, rebuilt.name)
    for side, before, after in (
        ("inputs", file.inputs + file.optional, rebuilt.inputs + rebuilt.optional),
        ("outputs", file.outputs, rebuilt.outputs),
    ):
        yield from _ports(dict(before), dict(after), f"{path}.{side}")
    if file.extra != rebuilt.extra:
        yield Difference(f"{path}.peer_stats", file.extra, rebuilt.extra)
    carried = {*fields_with_tensors(file.tag), *fields_with_tensors(rebuilt.tag)}
    for name in sorted({*file.attributes, *rebuilt.attributes} - carried):
        expected = _attribute(name, file, structure)
        found = _attribute(name, rebuilt, structure)
        if name == ATTRIBUTE and expected is None and names_one(rebuilt):
            continue  # the frontend chose
        if not _is_equal(expected, found) and not _is_forced(name, expected, found):
            place = member(path, name)
            yield Difference(place, file.attributes.get(name), rebuilt.attributes.get(name))


def _ports(file: Mapping[str, int], rebuilt: Mapping[str, int], path: str) -> Iterator[Difference]:
    for port in sorted({*file, *rebuilt}):
        if file.get(port) != rebuilt.get(port):
            yield Difference(member(path, port), file.get(port), rebuilt.get(port))


def _is_same_tag(file: str, rebuilt: str) -> bool:
    """Frontend 1.18 calls all forward attention SDPA_FWD; its attributes tell what it is."""
    return file == rebuilt or (file == "SDPA_FWD" and rebuilt in ("SDPA", "SDPA_FP8_FWD"))


def _attribute(name: str, node: Node, structure: Structure) -> Any:
    """Return an attribute in the one way in which it is compared.

    Older frontends leave out what newer ones write as null, false or what the graph says anyway.
    """
    value = node.attributes.get(name)
    if value is False:
        return None
    if name == "compute_data_type" and value == structure.context.compute_data_type:
        return None
    if name == ATTRIBUTE and not names_one(node):
        return None
    if node.tag == "RESHAPE" and name in ("dim", "stride"):
        return _reshape(name, value, node, structure)
    if (node.tag, name) == ("RESHAPE", "reshape_mode") and value == "VIEW_ONLY":
        return None
    if (node.tag, name) == ("SLICE", "slice_strides") and isinstance(value, list):
        return None if all(step == 1 for step in value) else value
    return value


def _is_equal(expected: Any, found: Any) -> bool:
    """Whether two attributes are the same; 1 is not True, nor is 0 the same as -0.0."""
    return type(expected) is type(found) and repr(expected) == repr(found)


def _is_forced(name: str, expected: Any, found: Any) -> bool:
    """Whether the frontend set a switch by itself: some GPUs have deterministic kernels only."""
    return name == "is_deterministic_algorithm" and expected is None and found is True


def _reshape(name: str, value: Any, node: Node, structure: Structure) -> Any:
    """Drop dim and stride of a reshape where they only repeat those of its output."""
    output = structure.tensors.get(dict(node.outputs).get("Y", -1))
    return None if not value or (output and value == getattr(output, name)) else value


def _tensors(uid: int, path: str, file: Structure, rebuilt: Structure) -> Iterator[Difference]:
    before, after = file.tensors[uid], rebuilt.tensors[uid]
    for name in ("dim", "stride"):
        expected, found = getattr(before, name), getattr(after, name)
        # What was never inferred stands for what the frontend infers.
        if expected and expected != found:
            yield Difference(f"{path}.{name}", expected, found)
    expected, found = _type(before, file.context), _type(after, rebuilt.context)
    if expected != found:
        yield Difference(f"{path}.data_type", expected, found)
    for name in ("is_virtual", "is_pass_by_value", "alignment", "ragged_offset_uid"):
        expected, found = getattr(before, name), getattr(after, name)
        if expected != found:
            yield Difference(f"{path}.{name}", expected, found)
    for name, default in (("reordering_type", "NONE"), ("ragged_offset_multiplier", 1)):
        expected, found = getattr(before, name) or default, getattr(after, name) or default
        if expected != found:
            yield Difference(f"{path}.{name}", expected, found)
    if file.value(uid) != rebuilt.value(uid):
        yield Difference(f"{path}.pass_by_value", file.value(uid), rebuilt.value(uid))


def _type(tensor: TensorDocument, context: ContextDocument) -> str | None:
    """Return a tensor's data type: where none is stated, the one that the graph has for it."""
    if tensor.data_type:
        return tensor.data_type
    return context.intermediate_data_type if tensor.is_virtual else context.io_data_type
