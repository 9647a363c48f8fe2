"""Bytes of a graph file → bytes of a plan file: what ``cudnn-bindgen plan`` does."""

from __future__ import annotations

from cudnn_bindgen.codegen.options import ReadOptions
from cudnn_bindgen.codegen.read import read_document, read_graph
from cudnn_bindgen.planning.build_plan import build_plan
from cudnn_bindgen.planning.constants import Constants, resolve_constants
from cudnn_bindgen.planning.frontend import load_frontend
from cudnn_bindgen.planning.lowering import undo_lowering
from cudnn_bindgen.planning.options import PlanOptions
from cudnn_bindgen.planning.structure import read_structure


def make_plan(
    data: bytes,
    file: str = "",
    reading: ReadOptions | None = None,
    constants: Constants | None = None,
    options: PlanOptions | None = None,
) -> bytes:
    """Make a plan for the current CUDA device.

    Parameters
    ----------
    data
        Content of a graph file in any dialect.
    file
        Its name, for error messages only.
    reading
        Which graph of several, and whether to read a newer format; `strict` is not kept here.
    constants
        What the user says of scalars without a value.
    options
        Which plan to take.

    Returns
    -------
    bytes
        What ``graph.serialize()`` returned, proven to hold the graph of `data`.

    Raises
    ------
    GraphFormatError
        `data` is no graph.
    PlanError
        The graph cannot be rebuilt, or cuDNN has no plan for it on this device.
    """
    document = read_document(data, file, reading or ReadOptions())
    structure = undo_lowering(read_structure(document))
    values = resolve_constants(structure, constants or Constants())
    return build_plan(structure, values, options or PlanOptions(), load_frontend())


def describe(plan: bytes) -> str:
    """Say in one line for what a plan file was made."""
    info = read_graph(plan).plan
    if info is None:
        return "no plan in it"
    version = info.cudnn_version
    numbers = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    return f"cuDNN {numbers}, SM {info.sm}, {info.engine}"
