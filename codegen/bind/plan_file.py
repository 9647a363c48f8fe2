"""A file's plans as the runtime takes them: what a generated `load_plan` calls."""

from __future__ import annotations

import os

from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.source import read_given
from cudnn_bindgen.module_data import PlanParts


def read_plans(
    source: bytes | str | os.PathLike[str], may_be_none: bool = False
) -> tuple[PlanParts, ...]:
    """Read the plans of a plan file or of a bundle.

    Parameters
    ----------
    source
        Content of the file, or its path.
    may_be_none
        Take a file that holds structure only, and so no plan.

    Returns
    -------
    tuple of PlanParts
        At least one, unless there may be none.

    Raises
    ------
    GraphFormatError
        It is no graph file, has no plan, or is a bundle that is not as it was written.
    OSError
        It cannot be read.
    """
    data, file = read_given(source, "plan")
    plans = bind_graphs(read_graphs(data, file)).plans
    if not plans and not may_be_none:
        refusal = GraphFormatError(
            "expected a plan, got structure only",
            hint='write the file with graph.serialize(), or load it with on_missing="plan"',
        )
        refusal.file = file
        raise refusal
    return plans
