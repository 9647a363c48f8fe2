"""What the user says of a graph that was printed before it was lowered.

The text leaves much out: the type of intermediate tensors, ragged offsets, which scalars callers
pass by value. Two graphs that differ in these print alike, and cuDNN computes them differently. So
nothing of it is guessed: whoever wrote the program says it, with a `--say` for each fact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.data_types import BITS, INTEGERS
from cudnn_bindgen.codegen.read.dialects.python_ir import PrintedGraph
from cudnn_bindgen.codegen.text import member, shorten

_SAY = "--say"
_REST = "rest=default"
_NONE = "ragged=none"
_BY_VALUE, _BY_ADDRESS, _UNUSED = "by-value", "by-address", "unused"
_RAGGED = "ragged:"
# How many facts a message asks for; gradients of FP8 have 15.
_TOLD = 40


@dataclass(slots=True)
class Said:
    """What was said of a graph; tensors by name.

    `offsets` has the tensor of offsets for each ragged one, and how many elements an offset counts.
    `scalars` has true for what callers pass by value, `unused` what no node reads.
    """

    intermediate: str = ""
    compute: str = ""
    is_dense: bool = False
    is_rest_default: bool = False
    scalars: dict[str, bool] = field(default_factory=dict)
    offsets: dict[str, tuple[str, int]] = field(default_factory=dict)
    unused: set[str] = field(default_factory=set)


def read_said(printed: PrintedGraph, texts: Sequence[str]) -> Said:
    """Return what `texts` say of a graph, if that is all that there is to say.

    Raises
    ------
    PlanError
        One says nothing, or what cannot be, or some fact is left unsaid.
    """
    said = Said()
    for text in texts:
        _add(said, text, printed)
    _check_offsets(said, printed)
    unsaid = [*_unsaid(said, printed)]
    if unsaid:
        facts = " ".join(f'{_SAY} "{fact}"' for fact in unsaid[:_TOLD])
        facts += f" and {len(unsaid) - _TOLD} more" if len(unsaid) > _TOLD else ""
        raise PlanError(
            "expected all of the graph, got what is printed before it is lowered, which leaves out "
            "some of it",
            hint=f"tell `cudnn-bindgen plan` what the program set: {facts}; docs/planning.md has "
            "the words",
        )
    return said


def _add(said: Said, text: str, printed: PrintedGraph) -> None:
    name, _, word = text.rpartition("=")
    if text == _NONE:
        said.is_dense = True
    elif text == _REST:
        said.is_rest_default = True
    elif name == "intermediate" and word in BITS:
        said.intermediate = word
    elif name == "compute" and word in BITS:
        said.compute = word
    elif word in (_BY_VALUE, _BY_ADDRESS):
        scalar = _find(name, printed, text)
        if scalar not in _scalars(printed):
            raise _wrong(text, "an input of one element", scalar, printed)
        if said.scalars.setdefault(scalar, word == _BY_VALUE) != (word == _BY_VALUE):
            raise PlanError(f"{_SAY} {shorten(text)}: expected one of both, got both")
    elif word == _UNUSED:
        said.unused.add(_find(name, printed, text))
    elif _RAGGED in word:
        owner, offset, unit = _ragged(text, printed)
        said.offsets[owner] = (offset, unit)
    else:
        raise PlanError(
            f"{_SAY}: expected a fact such as {_NONE}, {_REST}, intermediate=FLOAT or "
            f"NAME={_BY_VALUE}, got {shorten(text)}"
        )


def _ragged(text: str, printed: PrintedGraph) -> tuple[str, str, int]:
    """Read ``NAME=ragged:OFFSETS``, or ``NAME=ragged:OFFSETS*UNIT``."""
    name, _, word = text.rpartition(f"={_RAGGED}")
    offset, star, unit = word.rpartition("*")
    if not star or not unit.isdecimal() or len(unit) > 18:
        offset, unit = word, "1"
    owner, offset = _find(name, printed, text), _find(offset, printed, text)
    if owner not in {*_inputs(printed), *_outputs(printed)}:
        raise _wrong(text, "a tensor of a node", owner, printed)
    kind = printed.tensors[offset]
    if kind.is_virtual or kind.data_type not in INTEGERS or offset in _outputs(printed):
        raise _wrong(text, f"offsets of {' or '.join(INTEGERS)} in device memory", offset, printed)
    return owner, offset, int(unit)


def _check_offsets(said: Said, printed: PrintedGraph) -> None:
    if said.is_dense and said.offsets:
        raise PlanError(f"{_SAY}: expected {_NONE} or {_RAGGED}, got both")
    for name in sorted({offset for offset, _ in said.offsets.values()} & {*said.scalars}):
        if said.scalars[name]:
            raise PlanError(f"{_SAY}: expected offsets in device memory, got {shorten(name)}")
    loose = {*printed.tensors} - {*_inputs(printed), *_outputs(printed)}
    for name in sorted(said.unused - loose):
        raise _wrong(f"{name}={_UNUSED}", "a tensor at no port", name, printed)


def _unsaid(said: Said, printed: PrintedGraph) -> Iterator[str]:
    """Yield the facts that are missing, with what they may say."""
    if not said.intermediate:
        yield "intermediate=TYPE"
    used = {*_inputs(printed), *_outputs(printed), *said.unused}
    used |= {offset for offset, _ in said.offsets.values()}
    loose = [name for name in printed.tensors if name not in used]
    for name in loose:
        yield f"NAME={_RAGGED}{_call(name, printed)}"
    if not said.is_dense and not said.offsets and not loose:
        yield _NONE
    for name in _scalars(printed):
        if name not in said.scalars:
            yield f"{_call(name, printed)}={_BY_VALUE}|{_BY_ADDRESS}"
    if not said.is_rest_default:
        yield _REST


def _scalars(printed: PrintedGraph) -> list[str]:
    """Return the inputs that may be passed by value: cuDNN takes one element so, and no more."""
    written = _outputs(printed)
    return [
        name
        for name in dict.fromkeys(_inputs(printed))
        if name not in written
        and not printed.tensors[name].is_virtual
        and math.prod(printed.tensors[name].dim) == 1
    ]


def _inputs(printed: PrintedGraph) -> list[str]:
    return [name for node in printed.nodes for name in node.inputs.values()]


def _outputs(printed: PrintedGraph) -> set[str]:
    return {name for node in printed.nodes for name in node.outputs.values()}


def _call(name: str, printed: PrintedGraph) -> str:
    """Return a tensor's name, or its uid where a shell or `--say` would read the name otherwise."""
    plain = name.replace("::", "").replace(".", "").replace("-", "")
    return name if plain.isidentifier() else str(printed.tensors[name].uid)


def _find(name: str, printed: PrintedGraph, text: str) -> str:
    if name in printed.tensors:
        return name
    by_uid: Mapping[str, str] = {str(item.uid): key for key, item in printed.tensors.items()}
    if name not in by_uid:
        raise PlanError(
            f"{_SAY} {shorten(text)}: expected the name or the uid of a tensor, got "
            f"{shorten(name) or 'none'}"
        )
    return by_uid[name]


def _wrong(text: str, expected: str, name: str, printed: PrintedGraph) -> PlanError:
    item = printed.tensors[name]
    return PlanError(
        f"{_SAY} {shorten(text)}: expected {expected}, got {item.data_type} of "
        f"{shorten(str(item.dim))}",
        path=member("$.tensors", name),
    )
