"""The frontend as a live program has it: a built graph, handles, and nothing of it real.

Its `execute` only remembers that it was called: what an accelerated graph hands back to it shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any


class NotSupportedError(Exception):
    """Raised as cudnn.cudnnGraphNotSupportedError."""


class Handle:
    """A cuDNN handle, with the stream that it was given."""

    def __init__(self, stream: int | None = 0) -> None:
        self.stream = stream


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph, as a key of variant packs."""

    uid: int
    name: str = ""

    def get_uid(self) -> int:
        return self.uid


@dataclass
class Graph:
    """A built graph that serializes to `plan`.

    `plans` are all that it has, of which it executes the one at `selected` and, as frontends before
    1.32 do, serializes the one that was built last; none for a graph that was deserialized.
    """

    plan: bytes
    handle: Handle | None = None
    selected_engine: Any = None
    refusal: Exception | None = None
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    _data_bindings: dict[int, Any] = field(default_factory=dict)
    plans: tuple[bytes, ...] = ()
    selected: int = 0

    def __post_init__(self) -> None:
        self._handle = self.handle
        self._planning_done = self._is_built = bool(self.plans)
        self._plan_index = self.selected

    def build_plan_at_index(self, index: int) -> None:
        self.plan = self.plans[index]
        self._plan_index = index

    def serialize(self) -> list[int]:
        if self.refusal is not None:
            raise self.refusal
        return list(self.plan)

    def execute(self, *arguments: Any, **options: Any) -> None:
        self.calls.append((arguments, options))

    def execute_plan_at_index(self, *arguments: Any, **options: Any) -> None:
        self.calls.append((arguments, options))

    def get_workspace_size(self, *arguments: Any) -> int:
        return 1234 + len(arguments)

    def _prepare_backend_execution(self) -> None:
        raise AssertionError("nobody is to go around execute()")

    def __repr__(self) -> str:
        return '{"json_version": "2.0"}'


def frontend() -> ModuleType:
    """Return what stands in for the module ``cudnn``."""
    module = ModuleType("cudnn")
    module.pygraph = Graph
    module.get_stream = lambda handle: handle.stream
    module.cudnnGraphNotSupportedError = NotSupportedError
    return module


def engine(name: str) -> SimpleNamespace:
    """Return an engine of the frontend's own."""
    return SimpleNamespace(name=name)


def uids_of(tensors: dict[int, Any]) -> Iterator[Callable[[int], Any]]:
    """Yield ways to write the key of a uid."""
    yield int
    yield Tensor
    numbers = itertools.count()
    made = {uid: Tensor(uid) for uid in tensors}
    yield lambda uid: made[uid] if next(numbers) % 2 else uid
