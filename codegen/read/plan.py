"""The plan half of a plan file → PlanInfo, checked against the structure it came with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import OTHER_GRAPH, GraphFormatError
from cudnn_bindgen.codegen.model.evidence import MAX_BYTES
from cudnn_bindgen.codegen.model.graph import PlanInfo, Replacement, WorkspacePart
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelPlan, read_kernel_plan
from cudnn_bindgen.codegen.model.limits import Int64
from cudnn_bindgen.codegen.model.operation_graph import OperationGraph
from cudnn_bindgen.codegen.model.scalar import read_float, read_scalar
from cudnn_bindgen.codegen.read.dialects.decode import check_values, decode_json_as, placed
from cudnn_bindgen.codegen.read.dialects.document import PlanDocument
from cudnn_bindgen.codegen.read.operations import OperationGraphText, read_operations

T = TypeVar("T")
R = TypeVar("R")

_WHERE = "$.cudnn_backend_data"
_OTHER_CUDNN = "was the plan written by another cuDNN major version, or cut off?"

_LOST = ": a ragged offset, maybe, which this version leaves out of the structure"
_SERIALIZE_AGAIN = "serialize the graph again with nvidia-cudnn-frontend 1.27 or newer"

# What cuDNN writes for numbers that JSON has none for. In a text inside of the text, the quotes
# would have backslashes.
_NO_NUMBER = re.compile(rb'("\w+": ?)(-?Infinity|NaN)\b')

# They are emitted; real ones have up to 40 each.
_KNOB_NAMES = 100_000


# What the runtime keeps in a C int.
_Int = Annotated[int, Meta(ge=0, lt=2**31)]


class _Profile(msgspec.Struct, frozen=True):
    deviceVer: _Int  # noqa: N815 - cuDNN's own spelling
    multiProcessorCount: _Int = 0  # noqa: N815


class _Engine(msgspec.Struct, frozen=True):
    engineId: Int64 = -1  # noqa: N815
    knobChoices: Annotated[dict[str, Int64], Meta(max_length=1000)] = {}  # noqa: N815


class _Backend(msgspec.Struct, frozen=True):
    """The few fields of cuDNN's own plan text that a binding, or its graph's identity, needs."""

    cudnnVersion: _Int  # noqa: N815
    GPUProfile: _Profile
    engine: _Engine = _Engine()
    operationGraph: OperationGraphText | None = None  # noqa: N815


def read_plan(document: PlanDocument) -> PlanInfo:
    """Build the model of the plan; what it says of tensors is checked by `check_uids`."""
    if document.kernel_plan is not None:
        return _read_kernels(document, read_kernel_plan(document.kernel_plan))
    check_values(document.cudnn_backend_data, "a plan's text")
    backend = _read_backend(document.cudnn_backend_data)
    constants = _by_uid(document.pass_by_values, "pass_by_values", read_scalar)
    parts = _by_uid(document.workspace_modifications, "workspace_modifications", _read_part)
    aligned = _by_uid(document.aligned_operands, "aligned_operands", _read_alignment)
    plan = PlanInfo(
        text=document.cudnn_backend_data,
        cudnn_version=backend.cudnnVersion,
        sm=backend.GPUProfile.deviceVer // 10,
        sm_count=backend.GPUProfile.multiProcessorCount,
        engine=_engine(backend.engine),
        variant_pack_uids=tuple(sorted(set(document.variant_pack_uids))),
        constants=tuple(sorted(constants.items())),
        workspace_parts=tuple(
            WorkspacePart(uid, operation, offset, values)
            for uid, (operation, offset, values) in sorted(parts.items())
        ),
        replacements=tuple(
            Replacement(source, target, offset)
            for source, (target, offset) in sorted(document.variant_pack_replacements)
        ),
        aligned_operands=tuple(sorted(aligned.items())),
        frontend_workspace_size=document.fe_workspace_size,
        behavior_notes=tuple(note for notes in document.behavior_notes for note in notes if note),
        operation_graph=_read_operations(backend),
        evidence=_read_evidence(document.cudnn_bindgen),
    )
    _check_roles(plan)
    _check_parts(plan)
    return plan


def _read_kernels(document: PlanDocument, kernels: KernelPlan) -> PlanInfo:
    unknown = sorted(kernels.sources - set(document.variant_pack_uids))
    if unknown:
        raise GraphFormatError(
            f"expected addresses of variant_pack_uids, got {unknown[0]}", path=f"$.{KEY}"
        )
    return PlanInfo(
        text="",
        cudnn_version=0,
        sm=kernels.sm,
        sm_count=kernels.sm_count,
        engine=kernels.describe(),
        variant_pack_uids=tuple(sorted(set(document.variant_pack_uids))),
        constants=(),
        workspace_parts=(),
        replacements=(),
        aligned_operands=(),
        frontend_workspace_size=0,
        behavior_notes=(),
        evidence=_read_evidence(document.cudnn_bindgen),
        kernels=kernels,
    )


def _read_backend(text: str) -> _Backend:
    try:
        data = _NO_NUMBER.sub(rb'\1"\2"', text.encode())
        backend: _Backend = decode_json_as(data, "the plan as JSON text", _Backend)
    except msgspec.ValidationError as error:
        refusal = placed(str(error), _WHERE)
    except (GraphFormatError, UnicodeEncodeError):
        refusal = GraphFormatError("expected the plan as JSON text, got broken JSON", path=_WHERE)
    else:
        return backend
    refusal.hint = _OTHER_CUDNN
    raise refusal


def _read_operations(backend: _Backend) -> OperationGraph | None:
    if backend.operationGraph is None:
        return None
    return read_operations(backend.operationGraph, f"{_WHERE}.operationGraph")


def _engine(engine: _Engine) -> str:
    size = sum(map(len, engine.knobChoices))
    if size > _KNOB_NAMES:
        raise GraphFormatError(
            f"expected names with {_KNOB_NAMES} characters in all, got {size}",
            path=f"{_WHERE}.engine.knobChoices",
            hint=_OTHER_CUDNN,
        )
    knobs = [f"{name}={value}" for name, value in sorted(engine.knobChoices.items())]
    return " ".join([f"engine {engine.engineId}", *knobs]).replace("CUDNN_KNOB_TYPE_", "")


def _read_evidence(found: Any) -> str | None:
    if isinstance(found, str) and len(found) <= MAX_BYTES:
        return found
    return None if found is None else ""


def _read_part(
    part: tuple[int, int, list[str | float]], path: str
) -> tuple[int, int, tuple[float, ...]]:
    operation, offset, values = part
    return operation, offset, tuple(read_float(value, f"{path}[2]") for value in values)


def _read_alignment(item: tuple[int, int], path: str) -> int:
    alignment = item[0]
    if alignment & (alignment - 1):
        raise GraphFormatError(f"expected a power of two, got {alignment}", path=path)
    return alignment


def _by_uid(items: Mapping[str, T], field: str, read: Callable[[T, str], R]) -> dict[int, R]:
    result: dict[int, R] = {}
    for key, value in items.items():
        path = f"$.{field}.{key}"
        digits = key.removeprefix("-")
        # 19 digits: what an int64 can have; also keeps int() from hostile lengths.
        is_short = digits.isascii() and digits.isdigit() and len(digits) <= 19
        uid = int(key) if is_short else 2**63
        if not -(2**63) <= uid < 2**63:
            raise GraphFormatError("expected a uid as the key", path=path)
        if uid in result:
            raise GraphFormatError(f"expected each uid once, got {uid} twice", path=path)
        result[uid] = read(value, path)
    return result


def added_uids(plan: PlanInfo) -> set[int]:
    """Return what the frontend, or cuDNN, binds by itself."""
    added = {uid for uid, _ in plan.constants} | {part.uid for part in plan.workspace_parts}
    return added | {replacement.target for replacement in plan.replacements}


def check_uids(plan: PlanInfo, tensors: Set[int], *, loses_offsets: bool) -> None:
    """Raise GraphFormatError unless all that the plan binds is one of `tensors` or added.

    `loses_offsets`: the version of the structure leaves ragged offsets out.
    """
    known = tensors | added_uids(plan)
    for uid in plan.variant_pack_uids:
        if uid not in known:
            raise GraphFormatError(
                f"expected uids of tensors, constants or workspace parts, got {uid}"
                + (_LOST if loses_offsets else ""),
                path="$.variant_pack_uids",
                hint=_SERIALIZE_AGAIN if loses_offsets else OTHER_GRAPH,
            )
    for replacement in plan.replacements:
        if replacement.source not in known:
            raise GraphFormatError(
                f"expected the uid of a tensor, got {replacement.source}",
                path="$.variant_pack_replacements",
                hint=OTHER_GRAPH,
            )


def _check_roles(plan: PlanInfo) -> None:
    """Refuse a uid whose address would come from two places."""
    roles = {uid: "pass_by_values" for uid, _ in plan.constants}
    sources = {replacement.source for replacement in plan.replacements}
    others = [(part.uid, "workspace_modifications") for part in plan.workspace_parts]
    others += [(r.target, "variant_pack_replacements") for r in plan.replacements]
    for uid, field in others:
        if uid in roles or uid in sources:
            raise GraphFormatError(
                f"expected one place for the address of {uid}, got "
                f"{roles.get(uid, 'variant_pack_replacements')} too",
                path=f"$.{field}",
            )
        roles[uid] = field


def _check_parts(plan: PlanInfo) -> None:
    for part in plan.workspace_parts:
        path = f"$.workspace_modifications.{part.uid}"
        if part.operation == 2:
            size = 0
        elif part.operation == 0:
            size = 4 * len(part.values)
        else:
            if len(part.values) != 1 or not 0 <= part.values[0] < 2**53:
                raise GraphFormatError("expected one size in bytes to set to zero", path=path)
            size = int(part.values[0])
        if part.offset + size > plan.frontend_workspace_size:
            raise GraphFormatError(
                f"expected a part inside the {plan.frontend_workspace_size} bytes of "
                f"fe_workspace_size, got bytes {part.offset} to {part.offset + size}",
                path=path,
            )
