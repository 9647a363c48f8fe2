"""Graphs and their binding → all that `show` tells, as plain data: what --json prints."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.bundle import merge_warnings
from cudnn_bindgen.codegen.model.evidence import as_plain, read_evidence
from cudnn_bindgen.codegen.model.graph import Graph, Node, PlanInfo, Scalar, Tensor
from cudnn_bindgen.codegen.model.kernel_plan import KernelPlan
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.module_data import PlanParts

_OPERATIONS = ("copy to device", "set to zero", "address only")
_BITS = re.compile("[0-9A-Fa-f]{8}")
_SCALAR = {"data_type", "value", "bits"}


def as_document(graphs: Sequence[Graph], binding: Binding) -> dict[str, Any]:
    """Return all that is known of a graph and its plans; `graphs` are what was bound."""
    graph = graphs[0]
    return {
        "fingerprint": binding.fingerprint,
        "dialect": binding.dialect,
        "is_override_shape_enabled": binding.is_override_shape_enabled,
        "context": dict(graph.context),
        "warnings": [str(warning) for warning in merge_warnings(graphs)],
        "arguments": [
            _argument(argument) | _axes(binding, argument) for argument in binding.arguments
        ],
        "nodes": [_node(node) for node in graph.nodes],
        "tensors": [_tensor(tensor) for tensor in graph.tensors],
        "only_in_plan": _only_in_plan(graph),
        "plans": [
            _plan(plan, info)
            for plan, info in zip(
                binding.plans, (graph.plan for graph in graphs if graph.plan), strict=True
            )
        ],
    }


def as_number(value: object) -> dict[str, str] | None:
    """Return an attribute that is a number in the file's words, its bits in hex; else None.

    No mode and no type is called by eight hex digits.
    """
    if not isinstance(value, str) or not _BITS.fullmatch(value):
        return None
    return as_scalar(Scalar("FLOAT", struct.pack("<I", int(value, 16))))


def as_scalar(scalar: Scalar) -> dict[str, str]:
    """Return a value as number and bits. JSON has no NaN and no infinities: the number is text."""
    return {
        "data_type": scalar.data_type,
        "value": str(scalar.value),
        "bits": scalar.data[::-1].hex(),
    }


def constants_of(document: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the values that callers do not pass, by uid: the graph's, and those of its plan.

    Several plans may each have their own, which are not the graph's.
    """
    found = {item["uid"]: item["value"] for item in document["tensors"] if item["value"]}
    if len(document["plans"]) == 1:
        found |= {item["uid"]: item for item in document["plans"][0]["constants"]}
    bound = {argument["uid"] for argument in document["arguments"]}
    return {uid: found[uid] for uid in sorted(found.keys() - bound)}


def say_number(scalar: Mapping[str, str]) -> str:
    """Return the number of `as_scalar`'s result in few digits; its bits are exact."""
    return f"{float(scalar['value']):.7g}" if "." in scalar["value"] else scalar["value"]


def say_attributes(
    node: Mapping[str, Any], compute_type: str | None, *, bits: bool = True
) -> Iterator[str]:
    """Yield the attributes of a node of the document that change what it does.

    Frontends write the others as null, false or an empty list. `compute_type` is the graph's.
    """
    for name, value in node["attributes"].items():
        if value is True:
            yield shorten(name)
        elif isinstance(value, dict) and value.keys() == _SCALAR:
            exact = f" ({value['bits']})" if bits else ""
            yield f"{shorten(name)}={say_number(value)}{exact}"
        elif (name, value) != ("compute_data_type", compute_type) and not _says_nothing(value):
            yield f"{shorten(name)}={_value(value)}"


def _says_nothing(value: object) -> bool:
    # Not `in`: a bound of 0 is equal to False, and is one.
    return value is None or value is False or value == []


def _value(value: object) -> str:
    if isinstance(value, list):
        value = ",".join(str(item).replace(" ", "") for item in value)
    return shorten(str(value), 100)


def _node(node: Node) -> dict[str, Any]:
    carried = {field for field, _ in node.extra}
    tensors = {f"{field}[{index}]": uid for index, (field, uid) in enumerate(node.extra)}
    return {
        "tag": node.tag,
        "name": node.name,
        "inputs": dict(node.inputs + node.optional) | tensors,
        "outputs": dict(node.outputs),
        "attributes": {
            name: as_number(value) or value
            for name, value in node.attributes.items()
            if name not in carried
        },
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    value = tensor.value or tensor.constant
    return {
        "uid": tensor.uid,
        "name": tensor.name,
        "data_type": tensor.data_type,
        "dim": list(tensor.dim),
        "stride": list(tensor.stride),
        "is_virtual": tensor.is_virtual,
        "is_pass_by_value": tensor.is_pass_by_value,
        "value": as_scalar(value) if value else None,
        "reordering_type": tensor.reordering_type,
        "alignment": tensor.alignment,
        "ragged_offset_uid": tensor.ragged_offset_uid,
    }


def _only_in_plan(graph: Graph) -> list[dict[str, Any]]:
    """Return what of the graph no dump would say."""
    found = [(f"uid {t.uid}", "constant", t.constant.value) for t in graph.tensors if t.constant]
    said = [(f"node {index}", what, how) for index, what, how in graph.unsaid if index >= 0]
    return [
        {"place": place, "what": what, "value": _operations(how)}
        for place, what, how in (*found, *said)
    ]


def _operations(how: object) -> str:
    """Return a value, or the modes of a score modifier's operations in their order."""
    if not isinstance(how, (list, tuple)):
        return str(how)
    steps = [part for step in how if isinstance(step, (list, tuple)) for part in step]
    modes = [
        step.get("pointwiseMode") or step.get("operation")
        for step in steps
        if isinstance(step, dict)
    ]
    return ", ".join(str(mode).removeprefix("CUDNN_POINTWISE_") for mode in modes)


def _plan(plan: PlanParts, info: PlanInfo) -> dict[str, Any]:
    return {
        "cudnn_version": plan.cudnn_version,
        "sm": plan.sm,
        "sm_count": plan.sm_count,
        "engine": plan.engine,
        "behavior_notes": list(info.behavior_notes),
        "evidence": evidence_of(info),
        "bytes": len(plan.text) + sum(map(len, info.kernels.binaries if info.kernels else ())),
        "kernels": _kernels(info.kernels) if info.kernels else None,
        "constants": [
            {"uid": uid} | as_scalar(value) for uid, value in info.constants if uid not in plan.uids
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


def _kernels(plan: KernelPlan) -> dict[str, Any]:
    """Return what a plan of kernels launches."""
    return {
        "sha256": plan.digest,
        "workspace_size": plan.workspace_size,
        "tensor_maps": len(plan.tensor_maps),
        "launches": [
            {
                "kernel": launch.kernel,
                "grid": launch.grid,
                "block": launch.block,
                "shared": launch.shared,
                "addresses": len(launch.addresses) + len(launch.tensor_maps),
            }
            for launch in plan.launches
        ],
    }


def evidence_of(plan: PlanInfo) -> dict[str, Any] | None:
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
        "default": None if argument.default is None else str(argument.default.value),
        "default_bits": None if argument.default is None else argument.default.data[::-1].hex(),
    }
