"""What a structure file with one thing wrong is told; accepted ones: test_read_accepted.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.documents import (
    HALF_INFERRED,
    STRUCTURES,
    Document,
    add_graph,
    document,
    node,
    scalar,
    tensor,
    to_json,
    with_remedy,
)

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.data_types import BITS
from cudnn_bindgen.codegen.read.graph import read_graph

Edit = Callable[[Document], Any]
VALIDATE = "(call graph.validate() before dumping the graph)"
KNOWN_TYPES = f"(set it to one of {', '.join(BITS)})"
BY_ADDRESS = "(give set_ragged_offset() a tensor that the caller passes by address)"
NOT_INFERRED = (
    "expected the shape of an operand, got []: the graph was dumped before its shapes were "
    "inferred (call graph.validate() first, or set dim and stride of this tensor)"
)


def refusal(data: bytes, file: str = "F") -> str:
    with pytest.raises(GraphFormatError) as caught:
        read_graph(data, file)
    return str(caught.value)


def at(index: int, **fields: Any) -> Edit:
    """Set fields of the tensor with this index."""
    return lambda raw: raw["tensors"][index].update(fields)


def node_with(**fields: Any) -> Edit:
    return lambda raw: raw["nodes"][0].update(fields)


def without(*path: Any) -> Edit:
    """Delete a field."""

    def edit(raw: Any) -> None:
        for step in path[:-1]:
            raw = raw[step]
        del raw[path[-1]]

    return edit


def both(*edits: Edit) -> Edit:
    return lambda raw: [edit(raw) for edit in edits]


def more(*tensors: Document) -> Edit:
    return lambda raw: raw["tensors"].extend(tensors)


def value(index: int, bits: Any) -> Edit:
    pass_by_value = {"index": index, "value": bits}
    return at(1, is_pass_by_value=True, pass_by_value=pass_by_value, data_type=None)


NO_IO_TYPE: Edit = lambda raw: raw["context"].update(io_data_type=None)  # noqa: E731

REFUSED: dict[str, tuple[Edit, str]] = {
    "no nodes field": (without("nodes"), '$: expected a field "nodes", got none'),
    "no tensors field": (without("tensors"), '$: expected a field "tensors", got none'),
    "no context": (without("context"), '$: expected a field "context", got none'),
    "no uid": (without("tensors", 0, "uid"), '$.tensors[0]: expected a field "uid", got none'),
    "no dim": (without("tensors", 1, "dim"), '$.tensors[1]: expected a field "dim", got none'),
    "no tag": (without("nodes", 0, "tag"), '$.nodes[0]: expected a field "tag", got none'),
    "uid is text": (at(0, uid="1"), "$.tensors[0].uid: expected int, got str"),
    "uid is a float": (at(0, uid=1.5), "$.tensors[0].uid: expected int, got float"),
    "uid is a bool": (at(0, uid=True), "$.tensors[0].uid: expected int, got bool"),
    "dim is text": (at(0, dim="2"), "$.tensors[0].dim: expected array, got str"),
    "stride entry": (at(0, stride=[1, None]), "$.tensors[0].stride[1]: expected int, got null"),
    "negative dim": (at(0, dim=[2, -4]), "$.tensors[0].dim[1]: expected int >= 0"),
    "rank": (
        at(0, dim=[1] * 65, stride=[1] * 65),
        "$.tensors[0].dim: expected array of length <= 64",
    ),
    "strides of rank": (
        at(0, dim=[], stride=[1] * 65),
        "$.tensors[0].stride: expected array of length <= 64",
    ),
    "name": (at(0, name=5), "$.tensors[0].name: expected str | null, got int"),
    "nodes is an object": (
        lambda raw: raw.update(nodes={}),
        "$.nodes: expected array, got object",
    ),
    "node is a number": (lambda raw: raw.update(nodes=[1]), "$.nodes[0]: expected object, got int"),
    "port": (node_with(inputs={"A": "q"}), "$.nodes[0].inputs[...]: expected int, got str"),
    "uid over int64": (at(2, uid=2**63), f"$.tensors[2].uid: expected int <= {2**63 - 1}"),
    "uid under int64": (at(2, uid=-(2**63) - 1), f"$.tensors[2].uid: expected int >= {-(2**63)}"),
    "stride over int64": (
        at(2, stride=[2**64, 1]),
        f"$.tensors[2].stride[0]: expected int <= {2**63 - 1}",
    ),
    "uid twice": (
        at(2, uid=1),
        "$.tensors[2].uid: expected a uid of its own, got 1, the uid of $.tensors[0] too "
        "(set_uid() each tensor to another number, or none of them)",
    ),
    "uid unset": (at(1, uid=-1), f"$.tensors[1].uid: expected an assigned uid, got -1 {VALIDATE}"),
    "rank of strides": (
        at(0, stride=[4]),
        "$.tensors[0].stride: expected 2 entries as in dim, got 1 "
        "(set dim and stride of this tensor to the same rank)",
    ),
    "dangling input": (
        node_with(inputs={"IN_0": 1, "IN_1": 9}),
        "$.nodes[0].inputs.IN_1: expected the uid of a tensor, got 9",
    ),
    "dangling output": (
        node_with(outputs={"OUT_0": 2**62}),
        f"$.nodes[0].outputs.OUT_0: expected the uid of a tensor, got {2**62}",
    ),
    "dangling ragged offset": (
        at(0, ragged_offset_uid=9),
        "$.tensors[0].ragged_offset_uid: expected the uid of a tensor in device memory, got 9 "
        + BY_ADDRESS,
    ),
    "its own ragged offset": (
        at(0, ragged_offset_uid=1),
        "$.tensors[0].ragged_offset_uid: expected the uid of another tensor, got this one's "
        "(give set_ragged_offset() a tensor of its own)",
    ),
    "scalar as ragged offset": (
        both(at(0, ragged_offset_uid=9), more(scalar(9))),
        "$.tensors[0].ragged_offset_uid: expected the uid of a tensor in device memory, got 9 "
        + BY_ADDRESS,
    ),
    "virtual ragged offset": (
        both(at(0, ragged_offset_uid=9), more(tensor(9, is_virtual=True))),
        "$.tensors[0].ragged_offset_uid: expected a tensor that a node writes, "
        "got virtual tensor 9, which none does "
        "(call set_is_virtual(False) on it if the caller has it)",
    ),
    "written twice": (
        lambda raw: raw["nodes"].append(node("RELU", {"X": 1}, {"Y": 3})),
        "$.nodes[1].outputs.Y: expected a tensor that no other port writes, got 3, "
        "which $.nodes[0].outputs.OUT_0 writes too",
    ),
    "written by two ports": (
        node_with(outputs={"OUT_0": 3, "more": 3}),
        "$.nodes[0].outputs.more: expected a tensor that no other port writes, got 3, "
        "which $.nodes[0].outputs.OUT_0 writes too",
    ),
    "virtual without producer": (
        at(1, is_virtual=True),
        "$.nodes[0].inputs.IN_1: expected a tensor that a node writes, "
        "got virtual tensor 2, which none does "
        "(call set_is_virtual(False) on it if the caller has it)",
    ),
    "no output": (
        at(2, is_virtual=True),
        "$.nodes: expected an output that is not virtual, got none "
        "(call set_output(True) on what the graph computes)",
    ),
    "no nodes": (
        lambda raw: raw.update(nodes=[]),
        "$.nodes: expected at least one node, got none "
        "(add the operations before dumping the graph)",
    ),
    "shape not inferred": (at(2, dim=[], stride=[]), f"$.tensors[2].dim: {NOT_INFERRED}"),
    "shape of a tensor at no port": (
        more(tensor(9, dim=[], stride=[])),
        f"$.tensors[3].dim: {NOT_INFERRED}",
    ),
    "unknown data type": (
        at(0, data_type="FLOAT\n8"),
        "$.tensors[0].data_type: expected a data type such as BFLOAT16, got FLOAT\\n8 "
        f"{KNOWN_TYPES}",
    ),
    "unknown data type to inherit": (
        both(at(0, data_type=None), lambda raw: raw["context"].update(io_data_type="HALF2")),
        f"$.context.io_data_type: expected a data type such as BFLOAT16, got HALF2 {KNOWN_TYPES}",
    ),
    "no data type to inherit": (
        both(at(0, data_type=None), NO_IO_TYPE),
        "$.tensors[0].data_type: expected a data type, "
        "got null and no context.io_data_type to inherit "
        "(set the tensor's data_type, or io_data_type of the graph)",
    ),
    "no data type at no port": (
        both(more(tensor(9, dim=[1], stride=[1], data_type=None)), NO_IO_TYPE),
        "$.tensors[3].data_type: expected a data type, "
        "got null and no context.io_data_type to inherit "
        "(set the tensor's data_type, or io_data_type of the graph)",
    ),
    "alignment 0": (at(0, alignment=0), "$.tensors[0].alignment: expected int >= 1"),
    "alignment 24": (
        at(0, alignment=24),
        "$.tensors[0].alignment: expected a power of two, got 24",
    ),
    "scalar of a type that no argument has": (
        at(1, is_pass_by_value=True, data_type="INT8"),
        "$.tensors[1].data_type: expected one of INT64, INT32, HALF, FLOAT, DOUBLE, BFLOAT16 "
        "for a scalar, got INT8 (set the scalar's data_type)",
    ),
    "scalar with many elements": (
        at(1, is_pass_by_value=True, data_type="FLOAT"),
        "$.tensors[1].dim: expected one element for a scalar, got (2, 4) "
        "(pass it as a tensor in device memory: set_is_pass_by_value(False))",
    ),
    "scalar of another type than its tensor": (
        both(value(3, "3F800000"), at(1, data_type="INT64", dim=[1], stride=[1])),
        "$.tensors[1].pass_by_value.index: expected INT64 as in data_type, got FLOAT "
        "(set the tensor's data_type to that of its value)",
    ),
    "scalar that a node writes": (
        at(2, is_pass_by_value=True, dim=[1, 1]),
        "$.nodes[0].outputs.OUT_0: expected a tensor in device memory, "
        "got 3, a scalar passed by value (call set_is_pass_by_value(False) on it)",
    ),
    "cycle": (
        lambda raw: raw["nodes"].append(node("RELU", {"X": 3}, {"Y": 1})),
        "$.nodes[0]: expected inputs that other nodes write, "
        "got some that depend on this node's outputs",
    ),
    "node without outputs": (
        lambda raw: raw["nodes"].append(node("RELU", {"X": 3}, {})),
        "$.nodes[1].outputs: expected at least one output, got none",
    ),
    "bytes over int64": (
        at(0, dim=[2**40, 2**40]),
        f"$.tensors[0].dim: expected at most 2**63 bytes, got ({2**40}, {2**40}) "
        "(cuDNN counts in int64: set a smaller dim)",
    ),
    "offsets over int64": (
        at(0, stride=[2**62, 2**62]),
        f"$.tensors[0].stride: expected offsets below 2**63 elements, got ({2**62}, "
        "461168601842738... (cuDNN counts in int64: set a smaller stride)",
    ),
    "more operands than cuDNN takes": (
        more(*(tensor(uid) for uid in range(10, 310))),
        "$.tensors: expected at most 300 tensors that are not virtual, got 303 "
        "(cuDNN takes no more in one variant pack; split the graph)",
    ),
    "key twice": (
        lambda raw: raw["nodes"][0].update({"inputs": {"TWICE": 1, "TWICE ": 2}}),
        '$: expected each key of an object once, got "TWICE" twice',
    ),
    "value of an operand": (
        at(1, pass_by_value={"index": 1, "value": 3}),
        "$.tensors[1].is_pass_by_value: expected true beside a pass_by_value, got false",
    ),
    "scalar index": (value(6, 0), "$.tensors[1].pass_by_value.index: expected int <= 5"),
    "scalar bits": (
        value(3, "3F80000"),
        "$.tensors[1].pass_by_value.value: expected 8 hex digits, "
        "the bits of a FLOAT, got '3F80000'",
    ),
    "scalar bits that int() would take": (
        value(2, "+1_00000"),
        "$.tensors[1].pass_by_value.value: expected 8 hex digits, "
        "the bits of a FLOAT that a HALF can hold, got '+1_00000'",
    ),
    "scalar bits as a number": (
        value(5, 1.0),
        "$.tensors[1].pass_by_value.value: expected 8 hex digits, "
        "the bits of a FLOAT that a BFLOAT16 can hold, got 1.0",
    ),
    "bits that no half has": (
        value(2, "3F800001"),
        "$.tensors[1].pass_by_value.value: expected 8 hex digits, "
        "the bits of a FLOAT that a HALF can hold, got '3F800001'",
    ),
    "int32 out of range": (
        value(1, 2**31),
        f"$.tensors[1].pass_by_value.value: expected an INT32, got {2**31}",
    ),
    "int64 as a float": (
        value(0, 1.5),
        "$.tensors[1].pass_by_value.value: expected an INT64, got 1.5",
    ),
    "double that JSON has no number for": (
        value(4, None),
        "$.tensors[1].pass_by_value.value: expected the value of a DOUBLE, got null, which stands "
        "for NaN and infinities "
        "(JSON has none of them: pass the scalar as a FLOAT, or write graph.serialize())",
    ),
    "double as text": (
        value(4, "1.0"),
        "$.tensors[1].pass_by_value.value: expected a number, got '1.0'",
    ),
    "double that no double holds": (
        value(4, 10**400),
        f"$.tensors[1].pass_by_value.value: expected a number, got 1{'0' * 36}...",
    ),
    "version 3": (
        lambda raw: raw.update(json_version="3.0"),
        '$.json_version: expected "2.0" or "1.0", got \'3.0\' '
        "(a newer cudnn-bindgen may read it, and --allow-newer tries to with this one)",
    ),
    "version before 1": (
        lambda raw: raw.update(json_version="0.9"),
        '$.json_version: expected "2.0" or "1.0", got \'0.9\' '
        "(dump the graph again with nvidia-cudnn-frontend 1.27 or newer)",
    ),
    "version of no sort": (
        lambda raw: raw.update(json_version=[2]),
        '$.json_version: expected "2.0" or "1.0", got [2] '
        "(dump the graph again with nvidia-cudnn-frontend 1.27 or newer)",
    ),
    "frontend 1.5": (
        without("json_version"),
        '$.json_version: expected "2.0" or "1.0", got a graph of frontend 1.5 or older '
        "(dump the graph again with nvidia-cudnn-frontend 1.27 or newer)",
    ),
    "python-IR": (
        both(without("json_version"), lambda raw: raw.update(nodes=[{"type": "SDPA"}])),
        '$.json_version: expected "2.0" or "1.0", '
        "got a graph that was printed before it was lowered "
        "(`cudnn-bindgen plan` has NVIDIA's frontend lower it, and asks for what the text leaves "
        "out; or print it after graph.validate(), graph.build_operation_graph() and "
        "graph.create_execution_plans([...]), or write graph.serialize() of a built graph)",
    ),
    "another JSON object": (
        lambda raw: [raw.pop(key) for key in list(raw)],
        '$: expected a field "json_version", got none '
        "(a graph file is written by repr(graph) or graph.serialize())",
    ),
}


def broken(edit: Edit) -> bytes:
    raw = add_graph()
    edit(raw)
    # A dict cannot have the key twice, the file can.
    return to_json(raw).replace(b'"TWICE "', b'"TWICE"')


@pytest.mark.parametrize(("edit", "message"), REFUSED.values(), ids=REFUSED)
def test_a_broken_structure_is_refused_with_place_and_reason(edit: Edit, message: str) -> None:
    assert refusal(broken(edit)) == with_remedy(f"F: {message}")


@pytest.mark.parametrize("stem", HALF_INFERRED)
def test_a_real_file_without_shapes_is_refused(stem: str) -> None:
    (path,) = (path for path in STRUCTURES if path.stem == stem)
    assert refusal(path.read_bytes()).endswith(NOT_INFERRED)


def test_broken_peer_stats_are_named_by_their_place() -> None:
    raw = document(
        [node("BATCHNORM", {"X": 1}, {"Y": 2}, peer_stats=[tensor(7), {"uid": "x"}])],
        [tensor(1), tensor(2)],
    )
    assert refusal(to_json(raw)) == with_remedy(
        "F: $.nodes[0].peer_stats[1].uid: expected int, got str"
    )
    raw["nodes"][0]["peer_stats"] = [tensor(1)]
    assert refusal(to_json(raw)) == (
        "F: $.nodes[0].peer_stats[0].uid: expected a uid of its own, got 1, "
        "the uid of $.tensors[0] too (set_uid() each tensor to another number, or none of them)"
    )
