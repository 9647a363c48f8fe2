"""Families for the stand-in: each member computes another sum, so that a wrong one shows."""

from __future__ import annotations

from typing import Any

from cudnn_bindgen.codegen.bind.alike import BoundGraph
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.family import Family, make_family
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render_family
from support.cases import Case, chain, make_case, planned, scalar, tensor
from support.documents import to_json

_WORKSPACE = 256


def _case(
    module: str,
    number: int,
    tensors: list[dict[str, Any]],
    outputs: list[int],
    *,
    is_bare: bool = False,
) -> Case:
    """A member: a constant of its own in the sum, and a workspace of its own size."""
    structure = chain(tensors, outputs)
    for item in structure["tensors"]:
        if item.get("is_virtual"):
            item |= {"dim": [], "stride": []}  # as before shape inference
    constant = {"900": scalar("FLOAT", 10.0 + number)}
    document = planned(structure, pass_by_values=constant)
    document["variant_pack_uids"] = [*document["variant_pack_uids"], 900]
    graph = to_json(structure) if is_bare else None
    size = _WORKSPACE * (number + 1)
    return make_case(f"{module}_{number}", module, document, graph=graph, workspace=size)


def _float(uid: int, name: str, *dim: int, stride: list[int] | None = None) -> dict[str, Any]:
    strides = [1]
    for size in reversed(dim[1:]):
        strides.insert(0, strides[0] * size)
    return tensor(uid, name, dim=list(dim), stride=stride or strides)


def _rows(number: int, m: int, default: float | None = 2.0) -> Case:
    value = {} if default is None else {"pass_by_value": scalar("FLOAT", default)}
    epsilon = tensor(5, "epsilon", is_pass_by_value=True, dim=[1], **value)
    tensors = [_float(1, "x", m, 16), _float(2, "w", 16, 16), _float(4, "y", m, 16), epsilon]
    return _case("rows", number, tensors, [4])


def _grid(number: int, b: int, s: int) -> Case:
    """Four axes of which two differ, in the order of memory [b, s, h, d]; and lengths."""
    strides = [s * 2 * 8, 8, 2 * 8, 1]
    tensors = [
        _float(1, "q", b, 2, s, 8, stride=strides),
        _float(2, "k", b, 2, s, 8, stride=strides),
        _float(3, "lengths", b + 1, 1, 1, 1),
        _float(4, "o", b, 2, s, 8, stride=strides),
    ]
    return _case("grid", number, tensors, [4])


def _bare(number: int, m: int) -> Case:
    tensors = [_float(1, "x", m, 16), _float(2, "w", 16, 16), _float(4, "y", m, 16)]
    return _case("bare", number, tensors, [4], is_bare=True)


# Not in the order of their keys: sizes as users have them, and files as a shell lists them.
ROWS = [_rows(0, 64), _rows(1, 16), _rows(2, 4096, default=3.0), _rows(3, 32), _rows(4, 0)]
"""By the number of rows; the scalar has a default, but not the same in all. One has no rows."""

GRID = [_grid(0, 2, 32), _grid(1, 4, 16), _grid(2, 2, 16), _grid(3, 8, 64)]
"""By batch and length."""

BARE = [_bare(0, 16), _bare(1, 32)]
"""The same from structures: no plan comes with the module."""

FAMILIES: dict[str, list[Case]] = {"rows": ROWS, "grid": GRID, "bare": BARE}
KEYS = {"grid": ("B=q.0", "S=q.2")}


def family(module: str) -> Family:
    """The family of a module that the tests build."""
    graphs = []
    for case in FAMILIES[module]:
        graph = read_graph(case.graph)
        graphs.append(BoundGraph(f"{case.name}.plan", f"{case.name}.plan", graph, bind(graph)))
    return make_family(graphs, KEYS.get(module, ()))


def emit(module: str) -> dict[str, str]:
    """The files of such a module."""
    return render_family(family(module), module)


def case_of(module: str, *key: int) -> Case:
    """The member that has `key`."""
    for case in FAMILIES[module]:
        dim = case.operands[0].dim
        if key == ((dim[0], dim[2]) if module == "grid" else (dim[0],)):
            return case
    raise AssertionError(key)
