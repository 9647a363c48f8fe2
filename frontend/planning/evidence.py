"""A choice, and how it gets into the plan file."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.evidence import (
    KEY,
    Candidate,
    Evidence,
    Options,
    Timing,
    read_engine,
    write_evidence,
)
from cudnn_bindgen.codegen.model.graph import PlanInfo
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.frontend import Module
from cudnn_bindgen.frontend.planning.options import PlanOptions


@dataclass(frozen=True, slots=True)
class Choice:
    """Which plan was taken of those that there were.

    `chosen` is the rank of one of `candidates`. The rest is known where candidates ran.
    """

    method: str
    chosen: int
    candidates: tuple[Candidate, ...]
    gpu: str = ""
    driver: str = ""
    timing: Timing | None = None


def add_evidence(
    data: bytes, choice: Choice, options: PlanOptions, frontend: Module, properties: str = ""
) -> bytes:
    """Return the plan file `data` with evidence in it.

    `properties` are those of the device that it was made for, where it was not made on it.

    Raises
    ------
    PlanError
        The plan in the file is not the one that was chosen.
    """
    plan = _read_plan(data)
    engine, knobs = read_engine(plan.engine)
    candidates = []
    for item in choice.candidates:
        if item.rank == choice.chosen:
            if item.engine not in (None, engine) or (item.knobs and item.knobs != knobs):
                raise PlanError(
                    f"expected {_named(item.engine, item.knobs)} in the plan file, got "
                    f"{_named(engine, knobs)}",
                    hint="the frontend serialized another plan than the one that was chosen",
                )
            item = msgspec.structs.replace(item, engine=engine, knobs=knobs)
        candidates.append(item)
    evidence = Evidence(
        tool=__version__,
        method=choice.method,
        frontend=str(frontend.__version__),
        cudnn=plan.cudnn_version,
        sm=plan.sm,
        sm_count=plan.sm_count,
        options=Options(
            options.heuristics if options.engine is None else (),
            options.engine,
            dict(options.knobs),
            options.max_workspace,
        ),
        chosen=choice.chosen,
        candidates=tuple(candidates),
        gpu=choice.gpu,
        driver=choice.driver,
        timing=choice.timing,
        properties=properties,
    )
    return splice(data, write_evidence(evidence))


def splice(data: bytes, text: str) -> bytes:
    """Return a plan file with one more member at its end; every other byte stays as it is.

    Raises
    ------
    PlanError
        It is no object as nlohmann-json writes it: without a count of its members.
    """
    if data[:1] != b"{" or data[1:2] not in b"iUIlL" or data[-1:] != b"}":
        raise PlanError("expected serialize() to write a UBJSON object, got something else")
    key, value = KEY.encode(), text.encode()
    member = b"i%c%bSl%b%b" % (len(key), key, len(value).to_bytes(4, "big"), value)
    return data[:-1] + member + b"}"


def _read_plan(data: bytes) -> PlanInfo:
    try:
        plan = read_graph(data).plan
    except GraphFormatError as error:
        raise PlanError(
            f"cannot read the plan file: {error.problem}", path=error.path, hint=error.hint
        ) from error
    if plan is None:
        raise PlanError("expected a plan in what serialize() wrote, got structure only")
    return plan


def _named(engine: int | None, knobs: dict[str, int]) -> str:
    pairs = (f"{name}={value}" for name, value in sorted(knobs.items()))
    return " ".join([f"engine {engine}", *pairs])
