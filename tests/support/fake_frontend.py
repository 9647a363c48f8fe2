"""What planning calls of the frontend when it chooses a plan, with plans as a test wants them.

The graph that it dumps is the one that it is told to: that graphs are rebuilt as they are is tested
with the real frontend (test_planning_rebuild.py), how plans are chosen takes a GPU or this.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from support.documents import Document, plan_document, to_json, to_ubjson


class NotSupportedError(RuntimeError):
    """Raised as cudnn.cudnnGraphNotSupportedError."""


@dataclass
class Candidate:
    """A plan that heuristics offer: its engine, its workspace, or why it does not build.

    `computes` is what it does when it is executed, with addresses by uid; `stuck` why it does not
    serialize, `idle` why it does not run.
    """

    engine_id: int
    workspace: int = 0
    reason: str = ""
    knobs: dict[str, int] = field(default_factory=dict)
    computes: Callable[[Mapping[int, int]], None] | None = None
    stuck: str = ""
    idle: str = ""


class Enum:
    """An enum as pybind makes them."""

    def __init__(self, *names: str) -> None:
        self.__members__ = {name: name for name in names}
        for name in names:
            setattr(self, name, name)


@dataclass
class Tensor:
    """A tensor whose setters do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set_"):
            return lambda value: self
        raise AttributeError(name)


@dataclass
class Frontend:
    """The module ``cudnn``.

    `raw` is the graph that every graph is; `in_plan` the one in a plan file, if another. `refuses`
    holds a message for each method of a graph that raises one. `serializes` is the position of the
    plan that is serialized, if not the one that was built last.
    """

    raw: Document
    candidates: Sequence[Candidate] = ()
    in_plan: Document | None = None
    refuses: dict[str, str] = field(default_factory=dict)
    has_gpu: bool = True
    is_lazy: bool = False
    has_list: bool = True
    serializes: int | None = None
    __version__: str = "1.32.0"

    def __post_init__(self) -> None:
        self.calls: list[str] = []
        self.live_handles = 0
        self.streams: list[int] = []
        self.graphs: weakref.WeakSet[Graph] = weakref.WeakSet()
        self.data_type = Enum("BFLOAT16", "FLOAT", "HALF")
        self.heur_mode = Enum("A", "B", "FALLBACK")
        self.knob_type = Enum("STAGES", "TILE_SIZE")
        self.scalar_type = Enum("RUNTIME_PARAM", "COMPILE_TIME_CONST")
        self.cudnnGraphNotSupportedError = NotSupportedError

    def create_handle(self) -> object:
        if not self.has_gpu:
            raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED")
        self.live_handles += 1
        return object()

    def destroy_handle(self, handle: object) -> None:
        assert not self.graphs, "a graph outlives its handle"
        self.live_handles -= 1

    def set_stream(self, handle: object, stream: int) -> None:
        self.streams.append(stream)

    def pygraph(self, **options: Any) -> Any:
        graph = Graph(self)
        self.graphs.add(graph)
        if not self.has_list:
            del graph.plans
        return graph


class Graph:
    """A graph that counts what is asked of it."""

    def __init__(self, frontend: Frontend) -> None:
        self.frontend = frontend
        self.plans = list(frontend.candidates)
        self.offered = self.plans
        self.candidate = -1
        self.is_lowered = not frontend.is_lazy

    def called(self, method: str, *arguments: object) -> None:
        self.frontend.calls.append(f"{method}({', '.join(map(str, arguments))})")
        if method in self.frontend.refuses:
            raise NotSupportedError(self.frontend.refuses[method])

    def tensor(self, **options: Any) -> Tensor:
        return Tensor()

    def add(self, **options: Any) -> Tensor:
        return Tensor()

    def validate(self) -> None:
        self.called("validate")

    def key(self) -> int:
        self.called("key")
        self.is_lowered = True
        return 0

    def __repr__(self) -> str:
        return to_json(self.frontend.raw).decode() if self.is_lowered else "{}"

    def build_operation_graph(self) -> None:
        self.called("build_operation_graph")

    def create_execution_plans(self, modes: list[str]) -> None:
        self.called("create_execution_plans", *modes)

    def create_execution_plan(self, engine: int, knobs: dict[str, int]) -> None:
        self.called("create_execution_plan", engine, knobs)
        self.offered.append(Candidate(engine))

    def deselect_workspace_greater_than(self, limit: int) -> None:
        self.called("deselect_workspace_greater_than", limit)

    def get_execution_plan_count(self) -> int:
        return len(self.offered)

    def build_plan_at_index(self, index: int) -> None:
        self.called("build_plan_at_index", index)
        if self.offered[index].reason:
            raise NotSupportedError(self.offered[index].reason)
        self.candidate = index

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self.offered[index].workspace

    def serialize(self) -> list[int]:
        self.called("serialize", self.candidate)
        index = self.candidate if self.frontend.serializes is None else self.frontend.serializes
        plan = self.offered[index]
        if plan.stuck:
            raise NotSupportedError(plan.stuck)
        backend = {
            "cudnnVersion": 91900,
            "GPUProfile": {"deviceVer": 900, "multiProcessorCount": 132},
            "engine": {"engineId": plan.engine_id, "knobChoices": plan.knobs},
        }
        raw = self.frontend.in_plan or self.frontend.raw
        return list(to_ubjson(plan_document(raw, cudnn_backend_data=json.dumps(backend))))

    def execute_plan_at_index(
        self, tensor_dict: dict[int, int], workspace: int, index: int, handle: object
    ) -> None:
        plan = self.offered[index]
        assert set(map(type, tensor_dict.values())) == {int} and workspace
        if plan.idle:
            raise NotSupportedError(plan.idle)
        if plan.computes is not None:
            plan.computes(tensor_dict)


def installed(frontend: Frontend) -> SimpleNamespace:
    """Return what stands in for importlib where the frontend is loaded."""
    return SimpleNamespace(import_module=lambda name: {"cudnn": frontend}[name])
