"""What a process has seen so far, by graph, and the one file that it keeps of that."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from cudnn_bindgen.codegen.output import write_whole
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.recording import USAGE
from cudnn_bindgen.frontend.recording.describe import Description
from cudnn_bindgen.frontend.recording.tally import Tally

# A program that makes graphs without end.
MOST_GRAPHS = 4096


class Ledger:
    """Tallies and problems of one process; its recorder holds the lock around all of it."""

    def __init__(self, folder: Path, frontend: str, run: str) -> None:
        self._folder = folder
        self._frontend = frontend
        self._name = f"{run or 'run'}-{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        self._problems: Counter[tuple[str, str]] = Counter()
        self.tallies: dict[str, Tally] = {}

    @property
    def problems(self) -> list[str]:
        """What went wrong with recording."""
        return [f"{where}: {what}" for where, what in list(self._problems)]

    def add_problem(self, where: str, what: str, count: int = 1) -> None:
        """Record what could not be recorded."""
        self._problems[where, what] += count

    def note(self, where: str, error: Exception) -> None:
        """Record that recording itself failed; the program must not notice."""
        text = shorten(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        if frame is not None:
            text += f" ({Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno})"
        self.add_problem(where, text)

    def enter(self, description: Description) -> Tally | None:
        """Return the tally of a graph, with what is known of it; None if it gets none."""
        if not description.key:
            self.add_problem("a graph", "; ".join(description.reasons))
            return None
        if description.key not in self.tallies and len(self.tallies) >= MOST_GRAPHS:
            self.add_problem("a graph", f"not written: there are {MOST_GRAPHS} already")
            return None
        tally = self.tallies.setdefault(description.key, Tally())
        tally.tags = description.nodes
        tally.plans[description.plan] += 0
        tally.reasons += [reason for reason in description.reasons if reason not in tally.reasons]
        return tally

    def write_graph(self, description: Description) -> None:
        """Write the files of a graph, which have names of their own."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, data in description.files.items():
            if not (self._folder / name).exists():
                write_whole(self._folder / name, data)

    def write(self) -> None:
        """Write the usage file anew, if there is anything in it."""
        if self.tallies or self._problems:
            data = json.dumps(self._as_document(), indent=1).encode()
            folder = self._folder / USAGE
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / self._name, data)

    def _as_document(self) -> dict[str, Any]:
        return {
            "version": 1,
            # Without arguments, which may hold secrets.
            "program": Path(sys.argv[0]).name if getattr(sys, "argv", None) else "",
            "frontend": self._frontend,
            "graphs": {key: tally.as_document() for key, tally in self.tallies.items()},
            "problems": [
                {"where": where, "what": what, "count": count}
                for (where, what), count in self._problems.items()
            ],
        }
