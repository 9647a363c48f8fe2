"""Document → structure v2 as JSON text: all of the graph that a plan is made of, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from cudnn_bindgen.codegen.model.unsaid import OnlyInPlan
from cudnn_bindgen.codegen.read.dialects.document import Document, TensorDocument

# UBJSON has numbers beyond 64 bits as Decimal, which would become text.
_ENCODER = msgspec.json.Encoder(order="sorted", decimal_format="number")


def write_structure(
    document: Document,
    operands: Sequence[TensorDocument] = (),
    only_in_plan: OnlyInPlan = OnlyInPlan(),  # noqa: B008 - frozen
) -> bytes:
    """Return what reads back as the same structure, nulls and all.

    `operands` are tensors that only the plan has, and `only_in_plan` what else it alone says.

    The same bytes for the same graph, in whatever order, process and release it was written:
    tensors by uid, keys sorted, no number of the graph, no versions of libraries.
    """
    structure = document.structure
    tensors = [*structure.tensors, *operands]
    nodes = zip(structure.nodes, document.raw_nodes, strict=True)
    return _ENCODER.encode(
        {
            "json_version": "2.0",
            "context": _fields(structure.context),
            # Ports of version 1 are converted beside the raw node.
            "nodes": [raw | _given(inputs=n.inputs, outputs=n.outputs) for n, raw in nodes],
            "tensors": [_fields(item) for item in sorted(tensors, key=_uid)],
        }
        | ({"only_in_plan": only} if (only := _said(only_in_plan)) else {})
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _said(only_in_plan: OnlyInPlan) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(only_in_plan).items() if value}


def _fields(item: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that a reader would not fill in with the same."""
    return {
        field.encode_name: getattr(item, field.name)
        for field in _fields_of(type(item))
        if field.required or getattr(item, field.name) != field.default
    }


# Asking msgspec for each tensor anew took two thirds of the time of reading a plan.
_fields_of = cache(msgspec.structs.fields)


def _uid(item: Any) -> int:
    return int(item.uid)
