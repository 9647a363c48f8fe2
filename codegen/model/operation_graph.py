"""The graph as cuDNN's text of a plan has it: what the engine computes, lowered.

Fields that this project does not need are ignored, and none is required: what an older cuDNN leaves
out is not known of its plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.model.limits import Int64, Rank, Size

# One operation: its fields are values or names of tensors.
Operation: TypeAlias = Mapping[str, Any]


class TextTensor(msgspec.Struct, frozen=True):
    """A tensor; its `name` is its uid."""

    name: str = ""
    dataType: str = ""  # noqa: N815 - cuDNN's own spelling, here and below
    dim: Annotated[list[Size], Rank] = []
    stride: Annotated[list[Int64], Rank] = []
    isVirtual: bool = False  # noqa: N815
    isByValue: bool = False  # noqa: N815
    hasConstValue: bool = False  # noqa: N815
    constValue: str | int | float | None = None  # noqa: N815
    ptrAlignment: Annotated[int, Meta(ge=1, le=2**20)] = 16  # noqa: N815
    reordering: str = ""
    isRagged: Annotated[list[TextTensor], Meta(max_length=1)] = []  # noqa: N815

    @property
    def data_type(self) -> str:
        """The frontend's name of the data type."""
        return self.dataType.removeprefix("CUDNN_DATA_")


@dataclass(frozen=True, slots=True)
class OperationGraph:
    """Operations, and those inside of each that has a subgraph; tensors by name, with JSON path."""

    operations: Sequence[Operation]
    subgraphs: Mapping[int, Sequence[Operation]]
    tensors: Mapping[str, tuple[str, TextTensor]]


def kind(operation: Operation) -> str:
    """Return what an operation is; of a pointwise one, its mode."""
    name = str(operation.get("operation", ""))
    name = name.removeprefix("CUDNN_BACKEND_OPERATION_").removesuffix("_DESCRIPTOR")
    mode = str(operation.get("pointwiseMode", ""))
    return mode.removeprefix("CUDNN_POINTWISE_") if name == "POINTWISE" else name


def names_in(operation: Operation) -> set[str]:
    """Return the texts among an operation's fields: those of them that are names name tensors."""
    found: set[str] = set()
    for value in operation.values():
        items: Sequence[Any] = value if isinstance(value, list) else (value,)
        found |= {item for item in items if isinstance(item, str)}
    return found
