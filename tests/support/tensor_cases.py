"""Graphs whose operands lie in memory in every way that `run` knows, with plans of the stand-in."""

from __future__ import annotations

from typing import Any

from support.cases import Case, chain, make_case, planned, tensor


def _case(name: str, tensors: list[dict[str, Any]], outputs: list[int], workspace: int = 0) -> Case:
    document = planned(chain(tensors, outputs))
    for item in document["tensors"]:
        if item.get("is_virtual"):
            item |= {"dim": [], "stride": []}  # as before shape inference
    return make_case(name, name, document, workspace=workspace)


def _float(uid: int, name: str, dim: list[int], stride: list[int], **fields: Any) -> dict[str, Any]:
    return tensor(uid, name, dim=dim, stride=stride, **{"data_type": "FLOAT", **fields})


KINDS = _case(
    "kinds",
    [
        _float(1, "square", [1, 16, 16], [256, 16, 1]),
        _float(2, "image", [2, 8, 4, 4], [128, 1, 32, 8], data_type="HALF"),
        _float(3, "rows", [32, 8, 1, 1], [24, 1, 1, 1]),
        _float(4, "broadcast", [4, 16, 16], [0, 16, 1]),
        _float(5, "fp8", [16, 16], [16, 1], data_type="FP8_E4M3"),
        _float(6, "fp4", [16, 64], [64, 1], data_type="FP4_E2M1"),
        _float(
            7,
            "swizzled",
            [1, 128, 4],
            [512, 4, 1],
            data_type="FP8_E4M3",
            reordering_type="F8_128x4",
        ),
        _float(8, "mask", [16, 512], [512, 1], data_type="BOOLEAN"),
        _float(9, "result", [2, 16, 16], [256, 16, 1]),
    ],
    [8, 9],
    workspace=4096,
)
"""An operand of each sort; a bit mask and a float as outputs."""

IN_PLACE = _case(
    "in_place",
    [
        _float(1, "x", [16, 16], [16, 1]),
        _float(2, "y", [16, 16], [16, 1]),
        _float(3, "row", [1, 16], [16, 1]),
        _float(4, "result", [16, 16], [16, 1]),
    ],
    [4],
)
"""Pointwise nodes: the output may replace `x` or `y`, but not the row that is broadcast."""

STRIDED_OUTPUT = _case(
    "strided_output",
    [
        _float(1, "x", [16, 16], [16, 1]),
        _float(2, "y", [16, 16], [16, 1]),
        _float(3, "result", [16, 16], [1, 16]),
    ],
    [3],
)
"""An output that is not row-major."""

CASES = {"kinds": KINDS, "in_place": IN_PLACE, "strided_output": STRIDED_OUTPUT}
GRAPHS = {name: case.graph for name, case in CASES.items()}
