"""What a rule of replaying says, and how attributes become arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cudnn_bindgen.codegen.model.graph import Node
from cudnn_bindgen.codegen.model.scalar import read_float
from cudnn_bindgen.codegen.read.dialects.decode import check
from cudnn_bindgen.frontend.planning.call import Member

_HUGE = 1 << 200  # beyond every FLOAT, so that read_float refuses it

Convert = Callable[[Any, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one method of ``pygraph`` builds a node.

    Attributes
    ----------
    method
        Its name.
    inputs
        Input port → keyword.
    outputs
        Ports in the order in which their tensors are returned.
    made
        Output ports whose tensors are not returned but passed → keyword.
    values
        Attribute → keyword and conversion; null is not passed, nor what becomes None.
    extend
        Makes the arguments that no single port or attribute stands for.
    read
        Input ports that `extend` reads.
    derived
        Attributes that `extend` reads or that the frontend works out: only compared afterwards.
    fixed
        Attributes without an argument → the values at which a node can be built.
    has_compute_type
        Whether the method takes ``compute_data_type``.
    """

    method: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...]
    made: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, tuple[str, Convert]] = field(default_factory=dict)
    extend: Callable[[Node, str], dict[str, object]] | None = None
    read: frozenset[str] = frozenset()
    derived: frozenset[str] = frozenset()
    fixed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    has_compute_type: bool = True


def flag(value: Any, path: str) -> object:
    """Take true or false."""
    return check(value, bool, path)


def switch(value: Any, path: str) -> object:
    """Take true; false is what every switch is without being told, also where there is none yet."""
    return check(value, bool, path) or None


def integer(value: Any, path: str) -> object:
    """Take a whole number."""
    return check(value, int, path)


def integers(value: Any, path: str) -> object:
    """Take a list of whole numbers."""
    return check(value, list[int], path)


def number(value: Any, path: str) -> object:
    """Take a FLOAT: the bits of one as a hex string, or a plain number."""
    if isinstance(value, int):
        # UBJSON has integers of any size.
        value = float(max(-_HUGE, min(value, _HUGE)))
    return read_float(value, path)


def enum(name: str) -> Convert:
    """Take the name of a member of one of the frontend's enums."""

    def convert(value: Any, path: str) -> object:
        return Member(name, check(value, str, path))

    return convert


data_type = enum("data_type")


def same(*names: str) -> dict[str, str]:
    """Return keywords that are spelled as their ports."""
    return {name: name for name in names}
