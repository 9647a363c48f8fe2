"""What one process saw of one graph, added up; and how it reads in a usage file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from cudnn_bindgen.frontend.recording.observe import Layout, Override

# A program may have more shapes, overrides or threads than anyone wants to read of.
_MOST_LAYOUTS = 16
_MOST_OVERRIDES = 256
_MOST_THREADS = 64

OTHERS = "(others)"


@dataclass
class Tally:
    """Counts of one graph; `tags` are those of its nodes, in order.

    `calls` are by thread and by plan, `indexed` those of ``execute_plan_at_index``. Layouts,
    captures and overrides are what looks saw: `looks` of them; an override stands for the calls
    since the last look.
    """

    tags: tuple[str, ...] = ()
    objects: int = 0
    threads: Counter[str] = field(default_factory=Counter)
    plans: Counter[str] = field(default_factory=Counter)
    indexed: int = 0
    looks: int = 0
    captured: int = 0
    layouts: dict[int, Counter[Layout]] = field(default_factory=dict)
    overrides: Counter[Override] = field(default_factory=Counter)
    other_overrides: int = 0
    reasons: list[str] = field(default_factory=list)

    def add_calls(self, thread: str, plan: str, calls: int) -> None:
        """Add calls of one thread with one plan."""
        known = thread in self.threads or len(self.threads) < _MOST_THREADS
        self.threads[thread if known else OTHERS] += calls
        self.plans[plan] += calls

    def add_layout(self, uid: int, layout: Layout) -> None:
        """Add what a look saw of an operand."""
        seen = self.layouts.setdefault(uid, Counter())
        if layout in seen or len(seen) < _MOST_LAYOUTS:
            seen[layout] += 1

    def add_override(self, override: Override, calls: int) -> None:
        """Add calls that had these overrides."""
        if override in self.overrides or len(self.overrides) < _MOST_OVERRIDES:
            self.overrides[override] += calls
        else:
            self.other_overrides += calls

    def as_document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "nodes": list(self.tags),
            "objects": self.objects,
            "calls": sum(self.threads.values()),
            "threads": dict(self.threads),
            "plans": dict(self.plans),
            "indexed": self.indexed,
            "looks": self.looks,
            "captured": self.captured,
            "layouts": {
                str(uid): [layout._asdict() | {"seen": seen} for layout, seen in layouts.items()]
                for uid, layouts in self.layouts.items()
            },
            "overrides": [
                override._asdict() | {"calls": calls} for override, calls in self.overrides.items()
            ],
            "other_overrides": self.other_overrides,
            "reasons": list(self.reasons),
        }
