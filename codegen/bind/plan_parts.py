"""A plan file's plan → what the runtime is handed of it, beside the arguments of callers."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from cudnn_bindgen.codegen.model.graph import PlanInfo, Scalar


@dataclass(frozen=True, slots=True)
class PlanParts:
    """What belongs to one plan, not to the graph: handed to the runtime as data.

    `uids` are the arguments that the plan binds; `workspace_size` the frontend's share of the
    workspace in bytes, which lies before cuDNN's own.
    """

    fingerprint: str
    cudnn_version: int
    sm: int
    sm_count: int
    engine: str
    uids: tuple[int, ...]
    constants: tuple[tuple[int, Scalar], ...]
    workspace_parts: tuple[tuple[int, int, int, tuple[float, ...]], ...]
    replacements: tuple[tuple[int, int, int], ...]
    dropped: tuple[int, ...]
    workspace_size: int
    text: bytes
    alignments: tuple[tuple[int, int], ...]


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
        constants=tuple((uid, value) for uid, value in plan.constants if uid not in bound),
        workspace_parts=tuple(
            (part.uid, part.operation, part.offset, part.values) for part in plan.workspace_parts
        ),
        replacements=tuple((r.source, r.target, r.offset) for r in plan.replacements),
        dropped=tuple(sorted(sources - set(plan.variant_pack_uids))),
        workspace_size=plan.frontend_workspace_size,
        text=plan.text.encode(),
        alignments=tuple((uid, size) for uid, size in plan.aligned_operands if uid in bound),
    )
