"""Graphs to accelerate on the stand-in, and integrations that execute them as FlashInfer does.

Each function below has the shape of one of FlashInfer's: the same uids, variant packs, keywords and
handles, around a graph that it does not know to be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from support.cases import Case, chain, make_case, planned, tensor


class Uids(Enum):
    """Of a product of block-scaled matrices; they begin at 0."""

    A = 0
    B = 1
    ALPHA = 2
    DESCALE_A = 3
    DESCALE_B = 4
    O = 5  # noqa: E741 - as FlashInfer has it


def _gemm() -> Case:
    rows = {"dim": [1, 16, 64], "stride": [1024, 64, 1], "data_type": "FP4_E2M1"}
    scales = {
        "dim": [1, 128, 4],
        "stride": [512, 4, 1],
        "data_type": "FP8_E4M3",
        "reordering_type": "F8_128x4",
    }
    one = {"dim": [1, 1, 1], "stride": [1, 1, 1]}
    out = {"dim": [1, 16, 16], "stride": [256, 16, 1], "data_type": "BFLOAT16"}
    tensors = [
        tensor(Uids.A.value, "a", **rows),
        tensor(Uids.B.value, "b", **rows),
        tensor(Uids.DESCALE_A.value, "block_descale_a", **scales),
        tensor(Uids.DESCALE_B.value, "block_descale_b", **scales),
        tensor(Uids.ALPHA.value, "global_scale", **one),
        tensor(Uids.O.value, "c", **out),
    ]
    return make_case("gemm", "gemm", planned(chain(tensors, [Uids.O.value])), workspace=512)


GEMM = _gemm()


def prefill(graph: Any, tensors: Mapping[int, Any], workspace: Any, handle: Any) -> None:
    """A dict of uids that grows, workspace and handle by name."""
    var_map = {}
    for uid, one in tensors.items():
        var_map[uid] = one
    graph.execute(var_map, workspace=workspace, handle=handle)


def decode_prepared(graph: Any, tensors: Mapping[int, Any], workspace: Any, handle: Any) -> None:
    """A list of buffers for uids that were fixed before."""
    buffers = []
    buffers.extend(tensors.values())
    graph.execute(buffers, workspace=workspace, handle=handle, tensor_uids=tuple(tensors))


def gemm(graph: Any, tensors: Mapping[int, Any], workspace: Any, handle: Any) -> None:
    """Workspace by position."""
    variant_pack = {uid: tensors[uid] for uid in reversed(tensors)}
    graph.execute(variant_pack, workspace, handle=handle)


FORMS = (prefill, decode_prepared, gemm)


def overridden(
    graph: Any,
    tensors: Mapping[int, Any],
    workspace: Any,
    handle: Any,
    overrides: Mapping[int, tuple[Sequence[int], Sequence[int]]],
) -> None:
    """Lists that are new for each call."""
    graph.execute(
        dict(tensors),
        workspace,
        handle=handle,
        override_uids=list(overrides),
        override_shapes=[list(dim) for dim, _ in overrides.values()],
        override_strides=[list(stride) for _, stride in overrides.values()],
    )
