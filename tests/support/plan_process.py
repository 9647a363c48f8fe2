"""A program that needs a plan which is not there: plan_process.py GRAPH LOG START [SECONDS].

Run by test_planning_missing.py, several times at once. It waits until START (seconds since
the epoch), appends a line to LOG for each plan that is made, which takes SECONDS, and prints what
it got.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from cudnn_bindgen.frontend.planning.missing import plan_maker
from support.documents import plan_document, to_ubjson
from support.fake_frontend import Candidate, Frontend, Graph

DEVICE = (90, 132, 91900)


def backend(sm: int, sm_count: int, version: int, engine: int = 2) -> str:
    """Return cuDNN's own text for a device."""
    profile = {"deviceVer": 10 * sm, "multiProcessorCount": sm_count}
    return json.dumps(
        {"cudnnVersion": version, "GPUProfile": profile, "engine": {"engineId": engine}}
    )


class Planned(Graph):
    """A graph that is planned for the frontend's device."""

    frontend: Planning

    def build_operation_graph(self) -> None:
        super().build_operation_graph()
        self.frontend.on_plan()

    def serialize(self) -> list[int]:
        super().serialize()
        plan = plan_document(
            self.frontend.in_plan or self.frontend.raw,
            cudnn_backend_data=backend(*self.frontend.device),
            **self.frontend.fields,
        )
        return list(to_ubjson(plan))


class Planning(Frontend):
    """A frontend on a device; `on_plan` is called for each plan that it makes."""

    device = DEVICE
    cudnn: int | None = None

    def __init__(self, raw: Any, **options: Any) -> None:
        super().__init__(raw, [Candidate(8)], **options)
        self.planned = 0
        self.fields: dict[str, Any] = {}  # of a plan file

    def on_plan(self) -> None:
        self.planned += 1

    def backend_version(self) -> int:
        return self.device[2] if self.cudnn is None else self.cudnn

    def pygraph(self, **options: Any) -> Any:
        graph = Planned(self)
        self.graphs.add(graph)
        return graph


def main(graph: str, log: str, start: str, seconds: str = "0") -> None:
    raw = json.loads(Path(graph).read_text())

    class Logged(Planning):
        def on_plan(self) -> None:
            with Path(log).open("a") as file:
                file.write("planned\n")
            time.sleep(float(seconds))

    sys.modules["cudnn"] = Logged(raw)  # type: ignore[assignment]
    time.sleep(max(0, float(start) - time.time()))
    parts = plan_maker(graph, [1, 2, 3])(*DEVICE)
    assert (parts.sm, parts.sm_count, parts.cudnn_version) == DEVICE
    print(hashlib.sha256(parts.text).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
