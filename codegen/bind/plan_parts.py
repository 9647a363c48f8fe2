"""A plan file's plan → what the runtime is handed of it, beside the arguments of callers."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec

from cudnn_bindgen.codegen.model import kernel_plan
from cudnn_bindgen.codegen.model.graph import PlanInfo
from cudnn_bindgen.module_data import KernelLaunch, KernelPlan, PlanParts, TensorMap


def plan_parts(plan: PlanInfo, digest: str, bound: Set[int]) -> PlanParts:
    """Return what `plan` adds to a call of the graph `digest`, whose callers bind `bound`."""
    sources = {replacement.source for replacement in plan.replacements}
    return PlanParts(
        fingerprint=digest,
        cudnn_version=plan.cudnn_version,
        sm=plan.sm,
        sm_count=plan.sm_count,
        engine=plan.engine,
        uids=tuple(sorted(bound)),
        constants=tuple((uid, value.data) for uid, value in plan.constants if uid not in bound),
        workspace_parts=tuple(
            (part.uid, part.operation, part.offset, part.values) for part in plan.workspace_parts
        ),
        replacements=tuple((r.source, r.target, r.offset) for r in plan.replacements),
        dropped=tuple(sorted(sources - set(plan.variant_pack_uids))),
        workspace_size=plan.frontend_workspace_size,
        text=plan.text.encode(),
        alignments=tuple((uid, size) for uid, size in plan.aligned_operands if uid in bound),
        kernels=_kernels(plan.kernels) if plan.kernels else None,
    )


def _kernels(plan: kernel_plan.KernelPlan) -> KernelPlan:
    return KernelPlan(
        tuple(plan.binaries),
        tuple(TensorMap(*_fields(each)) for each in plan.tensor_maps),
        tuple(KernelLaunch(*_fields(each)) for each in plan.launches),
        plan.workspace_size,
    )


def _fields(value: msgspec.Struct) -> tuple[Any, ...]:
    return tuple(map(_plain, msgspec.structs.astuple(value)))


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
