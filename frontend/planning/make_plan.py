"""Bytes of a graph file → bytes of a plan file: what ``cudnn-bindgen plan`` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cudnn_bindgen.codegen.bind.bundle import first_plan
from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.graph import under
from cudnn_bindgen.codegen.read.dialects.python_ir import UnloweredError
from cudnn_bindgen.codegen.read.graph import read_document, read_graph
from cudnn_bindgen.codegen.read.options import DEFAULT, ReadOptions
from cudnn_bindgen.frontend.planning.autotune import Watch, unwatched
from cudnn_bindgen.frontend.planning.build_plan import build_plan, forget_frames
from cudnn_bindgen.frontend.planning.constants import NOTHING, Constants, resolve_constants
from cudnn_bindgen.frontend.planning.frontend import device_of, load_frontend
from cudnn_bindgen.frontend.planning.lowering import undo_lowering
from cudnn_bindgen.frontend.planning.options import HEURISTICS, PlanOptions
from cudnn_bindgen.frontend.planning.printed import Printed, check_printed, lower_printed
from cudnn_bindgen.frontend.planning.structure import Structure, read_structure
from cudnn_bindgen.frontend.planning.trace import Trace


def read_input(
    data: bytes,
    file: str = "",
    reading: ReadOptions = DEFAULT,
    bound: frozenset[int] | None = None,
) -> Structure:
    """Read the graph that a plan is wanted of, as it was before lowering.

    `bound` are the uids that callers bind, for a file that does not say.

    Raises
    ------
    GraphFormatError
        `data` is no graph and no bundle of plans, or an odd graph and `reading` is strict.
    """
    data = first_plan(data, file)
    try:
        structure = read_structure(read_document(data, file, reading))
        if reading.strict and structure.warnings:
            raise structure.warnings[0]
        if structure.bound is None:
            structure = replace(structure, bound=bound)
        return undo_lowering(structure)
    except GraphFormatError as error:
        error.file = file
        raise


def read_any(
    data: bytes, constants: Constants, file: str = "", reading: ReadOptions = DEFAULT
) -> Structure | Printed:
    """Read as `read_input` does, and what was printed before lowering, with what the user says.

    Raises
    ------
    GraphFormatError
        `data` is neither.
    PlanError
        The graph cannot be rebuilt, or the user has to say more of it.
    """
    try:
        try:
            structure = read_input(data, file, reading)
        except UnloweredError as error:
            return check_printed(error.raw, constants.said)
        if constants.said:
            raise PlanError("--say: expected a graph printed before it was lowered, got another")
        check_rebuildable(structure)
        resolve_constants(structure, constants)
    except PlanError as error:
        error.file = file
        raise
    return structure


def make_plan(
    structure: Structure | Printed,
    constants: Constants = NOTHING,
    options: PlanOptions = HEURISTICS,
    tell: Callable[[str], None] = lambda text: None,
    watch: Watch = unwatched,
    properties: str | None = None,
    trace: Trace | None = None,
) -> bytes:
    """Make a plan for the current CUDA device, or for one that is described.

    Parameters
    ----------
    structure
        What `read_input` or `read_any` returned.
    constants
        What the user says of scalars without a value.
    options
        Which plan to take.
    tell
        Called with a line of text if the plan is not quite what was asked for, but right.
    watch
        Told how far autotuning has come.
    properties
        JSON text of a device's properties, where it is not the current one; needs the driver or
        the stub of one (`deviceless`).
    trace
        Listens to that stub, so that engines of the frontend's own have plans too.

    Returns
    -------
    bytes
        What ``graph.serialize()`` returned, proven to hold the graph, with how the plan was chosen
        (`cudnn_bindgen.codegen.model.evidence`).

    Raises
    ------
    PlanError
        The graph cannot be rebuilt, or cuDNN has no plan for it on this device.
    """
    if isinstance(structure, Printed):
        structure = _lower(structure, properties)
    check_rebuildable(structure)
    values = resolve_constants(structure, constants)
    return build_plan(structure, values, options, load_frontend(), tell, watch, properties, trace)


def _lower(printed: Printed, properties: str | None) -> Structure:
    frontend = load_frontend()
    with device_of(frontend, properties) as device:
        try:
            return read_input(lower_printed(printed, frontend, device))
        except BaseException as error:
            forget_frames(error)
            raise


def check_rebuildable(structure: Structure) -> None:
    """Raise PlanError if the graph has what no call that is in a file makes."""
    for index, what, _ in structure.unsaid:
        if index >= 0:
            raise PlanError(
                f"expected a graph that a file describes, got one with a {what}, of which only "
                "cuDNN's text in its plan tells",
                path=f"$.nodes[{index}]",
                hint="plan it in the program that builds it, and write graph.serialize() there",
            )
        if what == "text":
            raise PlanError(
                "expected a plan whose text tells whether attention has a score_mod, got another",
                path="$.cudnn_backend_data",
                hint="plan a structure file of the graph, or plan it in the program that builds it",
            )


def is_of_kernels(plan: bytes) -> bool:
    """Tell a plan file of kernels from one of cuDNN's."""
    return read_graph(plan).has_kernels


def describe(plan: bytes) -> str:
    """Say in one line for what a plan file was made."""
    info = read_graph(plan).plan
    if info is None:
        return "no plan in it"
    return f"{under(info.cudnn_version)}, SM {info.sm}, {info.engine}"
