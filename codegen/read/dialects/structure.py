"""Structure of a graph as JSON text: ``repr(graph)``; its version decides how it is read."""

from __future__ import annotations

from typing import Any

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.kernel_plan import KEY
from cudnn_bindgen.codegen.read.dialects import refused, structure_v1
from cudnn_bindgen.codegen.read.dialects.decode import check, decode_json
from cudnn_bindgen.codegen.read.dialects.document import Document, PlanDocument, StructureDocument
from cudnn_bindgen.codegen.read.dialects.values_v1 import newer_plan
from cudnn_bindgen.codegen.read.options import ReadOptions

NAME = "structure"

VERSIONS = '"2.0" or "1.0"'

# Bounds on what reading and compiling take; the largest real graphs have some hundred.
_LIMITS = {"nodes": 5_000, "tensors": 10_000}

_BLANK = b"\xef\xbb\xbf \t\r\n"


def recognise(data: bytes) -> bool:
    """JSON text: an object, which UBJSON's would-be key length tells from a plan file."""
    head = data.lstrip(_BLANK)[:2]
    return head[:1] == b"{" and head[1:2] in b' \t\r\n"}'


def read(data: bytes, options: ReadOptions) -> list[Document]:
    """Decode JSON text."""
    return [read_object(decode_json(data.lstrip(b"\xef\xbb\xbf")), options)]


def read_object(raw: dict[str, Any], options: ReadOptions) -> Document:
    """Check a decoded object, whatever encoding it came in."""
    version = raw.get("json_version")
    warnings: tuple[GraphFormatError, ...] = ()
    if version not in ("1.0", "2.0"):
        refusal = refused.refuse_version(raw, VERSIONS)
        if not (options.allow_newer and refused.is_newer(version)):
            raise refusal
        refusal.hint = "read as if it were 2.0, as --allow-newer asks"
        warnings = (refusal,)
    _check_counts(raw)
    try:
        return _read_v1(raw) if version == "1.0" else _read_v2(raw, warnings)
    except GraphFormatError as error:
        error.dialect = "structure v1" if version == "1.0" else "structure v2"
        raise


def _check_counts(raw: dict[str, Any]) -> None:
    for field, limit in _LIMITS.items():
        found = raw.get(field)
        if isinstance(found, (list, dict)) and len(found) > limit:
            raise GraphFormatError(
                f"expected at most {limit}, got {len(found)}",
                path=f"$.{field}",
                hint="no cuDNN graph is that large; is it the right file?",
            )


def _read_v2(raw: dict[str, Any], warnings: tuple[GraphFormatError, ...]) -> Document:
    plan = _read_plan(raw)
    structure = check(raw, StructureDocument)
    return Document(
        dialect="plan" if plan else "structure v2",
        structure=structure,
        plan=plan,
        raw_nodes=raw["nodes"],
        tensor_paths=[f"$.tensors[{index}]" for index in range(len(structure.tensors))],
        warnings=warnings,
    )


def _read_v1(raw: dict[str, Any]) -> Document:
    converted = structure_v1.read_structure(raw)
    plan = _read_plan(newer_plan(raw, converted.frontend_version))
    return Document(
        dialect="plan" if plan else "structure v1",
        structure=converted.structure,
        plan=plan,
        raw_nodes=converted.raw_nodes,
        tensor_paths=converted.tensor_paths,
        loses_offsets=True,
        warnings=converted.warnings,
    )


def _read_plan(raw: dict[str, Any]) -> PlanDocument | None:
    found = [key for key in ("cudnn_backend_data", KEY) if key in raw]
    if not found:
        return None
    if len(found) > 1:
        raise GraphFormatError(f"expected one plan, got {' and '.join(found)}", path="$")
    for key in ("nodes", "tensors"):
        if key not in raw:
            raise GraphFormatError(
                f'expected a field "{key}", got a plan without its structure',
                path="$",
                hint="serialize the graph with its structure (serialize_structure=true)",
            )
    return check(raw, PlanDocument)
