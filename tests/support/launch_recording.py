"""Plans by their kind of launch, and calls whose every address is another one each time."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import ubjson

from support.cases import CASES, COUNT, SPARE, Case, edited
from support.operands import Operands
from support.standin import LAUNCHES, Standin

RECORDABLE = ("plain", "packed", "split", "fork", "descriptor", "offset", "first")
REASONS = {
    **dict.fromkeys(
        ("parity", "swapped", "hash", "difference", "high32"),
        r"^the word at byte \d+ of node \d+ \(type 0\) changed by .* no operand's address explains",
    ),
    **dict.fromkeys(
        ("grid", "function"), r"^function, grid or attributes of node \d+ depend on addresses$"
    ),
    **dict.fromkeys(("nodes", "pages"), "^the number of nodes depends on addresses$"),
    "edges": "^edges depend on addresses$",
    "tail": "^patched parameters are not those of a fresh capture$",
    "host": "^it has a node of type 3$",
    "event": "^it has a node of type 7$",
    "alloc": "^it has a node of type 10$",
    **dict.fromkeys(
        ("legacy", "legacy_memset"), "^it launches work outside of the stream that it is given$"
    ),
}
"""Why the other kinds of launch must not be recorded."""

assert {*RECORDABLE, *REASONS} == {*LAUNCHES}

PAGE = 4096
ROOM = 2 * PAGE + 8 * (COUNT + SPARE)


@cache
def launched(name: str, launch: str) -> Case:
    """Return a case whose plan launches its work as `launch` says; its module is the case's own."""
    return dataclasses.replace(relaunched(CASES[name], launch), graph=CASES[name].graph)


def relaunched(case: Case, launch: str) -> Case:
    """Return a case whose plan, which is also its module's, launches its work as `launch` says."""
    text = json.loads(ubjson.loadb(case.plan)["cudnn_backend_data"])
    text["standin"]["launch"] = launch
    plan = edited(case, cudnn_backend_data=json.dumps(text, separators=(",", ":")))
    return dataclasses.replace(case, name=f"{case.name} {launch}", plan=plan, graph=plan)


def counts(module: ModuleType) -> tuple[int, int, int]:
    """How many calls went direct, launched a record unchanged, and launched one patched."""
    stats = module.launch_stats()
    return stats["direct"], stats["record_unchanged"], stats["record_patched"]


def call_times(module: ModuleType, operands: Operands, times: int, **options: Any) -> None:
    """Call with the same addresses and scalars and other contents each time, and check each."""
    by_name = operands.by_name
    for _ in range(times):
        operands.fill(keep_scalars=True)
        module.execute(**by_name, **options)
        operands.check()


class Moving:
    """A case's operands and a workspace that lie elsewhere for each call."""

    def __init__(self, standin: Standin, operands: Operands, seed: int = 0) -> None:
        self.operands = operands
        self._standin = standin
        self.random = random.Random(f"{operands.case.name} {seed}")
        self._home = dict(operands.addresses)
        self._blocks = [standin.alloc(ROOM) for _ in range(3 * len(self._home))]
        self._workspace = 0
        self._workspaces: list[int] = []

    def move(self) -> None:
        """Choose any blocks in any order, and in each a multiple of 16, often a page's start."""
        blocks = iter(self.random.sample(self._blocks, len(self._home)))
        self.operands.addresses = {
            uid: address and self._place(next(blocks)) for uid, address in self._home.items()
        }
        self.operands.fill(keep_scalars=True)

    def _place(self, block: int) -> int:
        if self.random.random() < 0.3:
            return -(-block // PAGE) * PAGE
        return block + 16 * self.random.randrange(PAGE // 16)

    def workspace(self, size: int) -> int:
        """Return the caller's own one, at multiples of 256, or 0 for the runtime's."""
        if not self._workspaces:
            self._workspaces = [self._standin.alloc(size + PAGE) for _ in range(3)]
        if not size or self.random.random() < 0.3:
            return 0
        return self.random.choice(self._workspaces) + 256 * self.random.randrange(PAGE // 256)

    def call(self, module: ModuleType, streams: Sequence[int] = (0,)) -> None:
        """Move, call on any of the streams, and check every buffer."""
        self.move()
        workspace = self.workspace(module.workspace_size())
        stream = self.random.choice(streams)
        module.execute(**self.operands.by_name, workspace_ptr=workspace, stream=stream)
        self.operands.check()

    def close(self) -> None:
        self.operands.addresses = self._home
        for block in (*self._blocks, *self._workspaces):
            self._standin.free(block)
