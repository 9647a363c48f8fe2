"""A plan file as the runtime takes it: what a generated `load_plan` calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cudnn_bindgen.codegen.binding import bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read import read_graph


def read_plan_parts(source: bytes | str | os.PathLike[str]) -> dict[str, Any]:
    """Read the plan of a plan file.

    Parameters
    ----------
    source
        Content of the file, or its path.

    Returns
    -------
    dict
        The fields of ``cudnn_bindgen.runtime.metadata.PlanParts``.

    Raises
    ------
    GraphFormatError
        It is no plan file.
    OSError
        It cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, file = bytes(source), "plan"
    else:
        data, file = Path(source).read_bytes(), os.fspath(source)
    plans = bind(read_graph(data, file)).plans
    if not plans:
        refusal = GraphFormatError(
            "expected a plan, got structure only", hint="write the file with graph.serialize()"
        )
        refusal.file = file
        raise refusal
    [plan] = plans
    return {
        "fingerprint": plan.fingerprint,
        "cudnn_version": plan.cudnn_version,
        "sm": plan.sm,
        "sm_count": plan.sm_count,
        "uids": plan.uids,
        "constants": tuple((uid, value.data) for uid, value in plan.constants),
        "workspace_parts": plan.workspace_parts,
        "replacements": plan.replacements,
        "dropped": plan.dropped,
        "workspace_size": plan.workspace_size,
        "text": plan.text,
        "alignments": plan.alignments,
    }
