"""The plain data that a generated module states about itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from cudnn_bindgen.runtime.errors import OperandError, OperandTypeError, describe
from cudnn_bindgen.runtime.tensor_types import STORED


class Operand(NamedTuple):
    """One argument of ``execute``, in argument order, which is slot order.

    Attributes
    ----------
    uid
        cuDNN's unique id of the tensor.
    argument
        Parameter name: ``q_ptr`` for an address, ``epsilon`` for a scalar.
    name
        The tensor's name in the graph file, as it stands there.
    role
        ``"input"``, ``"output"`` or ``"scalar"`` (passed by value).
    data_type
        cuDNN's name of the element type: ``BFLOAT16``, ``FLOAT``, ``INT64`` ...
    dim, stride
        In elements, in the graph's axis order.
    alignment
        What the address must be a multiple of, in bytes; 1 for a scalar.
    default
        A scalar's default; None if it is required.
    """

    uid: int
    argument: str
    name: str
    role: str
    data_type: str
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    alignment: int
    default: float | int | None = None

    @property
    def span(self) -> int:
        """Bytes from the address on that the elements take, at most 2**62."""
        if 0 in self.dim:
            return 0
        stored = STORED[self.data_type][0]
        steps = zip(self.dim, self.stride, strict=True)
        elements = 1 + sum((size - 1) * abs(step) for size, step in steps)
        return min(elements * stored.bits * stored.lanes // (8 * stored.pack) + 1, 2**62)


class PlanParts(NamedTuple):
    """One plan as the runtime takes it: cuDNN's own text and what the frontend adds around it.

    Attributes
    ----------
    fingerprint
        Of the graph the plan was built for.
    cudnn_version, sm, sm_count
        What it was built with: 91900 is 9.19.0, 90 is SM 9.0; a count of 0 is not known.
    uids
        The arguments it binds, ascending.
    constants
        ``(uid, bits)``: scalars that lowering added, little-endian.
    workspace_parts
        ``(uid, operation, offset, values)``: 0 copies `values` (float32) to the offset before each
        launch, 1 sets ``int(values[0])`` bytes to zero, 2 is an address only.
    replacements
        ``(source, target, offset)``: the target's address is the source's plus `offset` bytes.
    dropped
        Arguments that only feed replacements; cuDNN itself does not take them.
    workspace_size
        Bytes that the parts above take, before cuDNN's own workspace.
    text
        cuDNN's serialized execution plan.
    alignments
        ``(uid, bytes)``: what the plan asks of arguments' addresses, where it says so.
    """

    fingerprint: str
    cudnn_version: int
    sm: int
    sm_count: int
    uids: tuple[int, ...]
    constants: tuple[tuple[int, bytes], ...]
    workspace_parts: tuple[tuple[int, int, int, tuple[float, ...]], ...]
    replacements: tuple[tuple[int, int, int], ...]
    dropped: tuple[int, ...]
    workspace_size: int
    text: bytes
    alignments: tuple[tuple[int, int], ...] = ()


class Member(NamedTuple):
    """One graph of a module for several.

    Attributes
    ----------
    fingerprint, operands, graph
        What FINGERPRINT, OPERANDS and GRAPH are of a module for this graph alone.
    """

    fingerprint: str
    operands: tuple[Operand, ...]
    graph: Mapping[str, object]

    @property
    def source(self) -> object:
        """Base name of the graph file."""
        return self.graph["source"]


class Loadable(NamedTuple):
    """What `load_plan` knows of a member.

    Attributes
    ----------
    fingerprint, plans, structure
        Of its graph, the plans that came with the module, and what others can be made of.
    uids
        Its arguments, in order.
    """

    fingerprint: str
    plans: tuple[PlanParts, ...]
    structure: bytes
    uids: list[int]


# Bytes of a scalar's storage, by data type.
SCALAR_BYTES = {"BFLOAT16": 2, "DOUBLE": 8, "FLOAT": 4, "HALF": 2, "INT32": 4, "INT64": 8}


def arguments_by_uid(
    arguments: Mapping[int, float | int], operands: tuple[Operand, ...]
) -> list[float | int]:
    """Return the arguments of ``execute`` in order, from a mapping keyed by uid.

    Raises
    ------
    OperandError
        It is no mapping, or a uid is missing or names no operand of the graph.
    """
    if not isinstance(arguments, Mapping):
        raise OperandTypeError(
            "arguments", "a mapping from uids to addresses and values", describe(arguments)
        )
    values = []
    for operand in operands:
        value = arguments.get(operand.uid, operand.default)
        if value is None:
            given = [describe(uid) for uid in islice(arguments, len(operands) + 1)]
            got = f"uids {', '.join(given)}"
            raise OperandError(operand.argument, f"an entry for uid {operand.uid}", got)
        values.append(value)
    uids = [operand.uid for operand in operands]
    unknown = [uid for uid in arguments if uid not in uids]
    if unknown:
        raise OperandError(
            "arguments", f"uids among {', '.join(map(str, uids))}", f"uid {describe(unknown[0])}"
        )
    return values


def plan_source(plan: object) -> bytes | str:
    """Return what `load_plan` was given: a file's content, or its path as text.

    Raises
    ------
    OperandError
        It is neither.
    """
    if isinstance(plan, (bytes, bytearray, memoryview)):
        return bytes(plan)
    expected = "bytes of a plan file, or its path"
    try:
        path = os.fsencode(plan)  # type: ignore[arg-type]
    except TypeError as error:
        raise OperandTypeError("plan", expected, describe(plan)) from error
    except UnicodeEncodeError as error:
        raise OperandError("plan", expected, describe(plan)) from error
    if b"\0" in path:
        raise OperandError("plan", expected, describe(plan))
    return os.fsdecode(path)
