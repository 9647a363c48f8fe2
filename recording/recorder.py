"""What is recorded: live graphs, what was counted of them, and the folder where it all goes."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import uuid
import weakref
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.recording.capturing import is_capturing
from cudnn_bindgen.recording.counting import (
    count_calls,
    forget_all_calls,
    forget_calls,
    look_again,
    read_calls,
    stop_counting,
)
from cudnn_bindgen.recording.describe import Description, describe, describe_loaded
from cudnn_bindgen.recording.files import USAGE, write_whole
from cudnn_bindgen.recording.observe import find_handle, find_layouts, find_override
from cudnn_bindgen.recording.tally import Tally

# Overrides are looked at on every call at first, then on one of this many.
_ALL_OVERRIDES = 256
_OVERRIDES_APART = 31
# No more calls than this between two looks, which also write what is new.
_LOOKS_APART = 8192
_SECONDS_APART = 10.0
# A program that makes graphs without end.
_MOST_GRAPHS = 4096


@dataclass
class Live:
    """A graph object of the program, known by its address as long as it lives."""

    address: int
    gone: weakref.ref[Any]
    description: Description | None = None
    is_pending: bool = True  # built anew, and not described since
    folded: Counter[tuple[bool, int]] = field(default_factory=Counter)
    names: dict[int, str] = field(default_factory=dict)  # of threads


class Recorder:
    """Records what a process does with the frontend into a folder.

    Its methods never raise what went wrong with recording: that is in the record, too.
    """

    def __init__(self, folder: Path, frontend: Any, run: str = "") -> None:
        self.folder = folder
        self.frontend = frontend
        self._run = run
        # Reentrant: a signal's handler may call a graph in the middle of a look.
        self._lock = threading.RLock()
        self._live: dict[int, Live] = {}
        # What weak references report, in the middle of anything: taken up under the lock, later.
        self._ended: deque[tuple[Live, bool, list[tuple[int, int]]]] = deque()
        self._methods: list[tuple[Any, bool]] = []
        # Not the program's random numbers, whose order it may depend on.
        self._random = random.Random(0)  # noqa: S311 - which calls to look at
        self._reset()

    def _reset(self) -> None:
        self._name = f"{self._run or 'run'}-{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        self._tallies: dict[str, Tally] = {}
        self._problems: Counter[tuple[str, str]] = Counter()
        self._written_at = time.monotonic()

    def count(self, original: Any, is_indexed: bool = False) -> Any:
        """Return `original`, one of the methods that execute, counted."""
        method = count_calls(original, partial(self._guarded_look, is_indexed))
        self._methods.append((method, is_indexed))
        return method

    def built(self, graph: Any, loaded: tuple[Any, ...] = ()) -> None:
        """Take up a graph that has just been built, or loaded from what `loaded` has."""
        try:
            with self._lock:
                live = self._find(graph)
                self._expect(live)
                if loaded:
                    description = describe_loaded(loaded)
                    if description is not None:
                        self._take_up(live, description)
                        return
                if not is_capturing(self.frontend, getattr(graph, "_handle", None)):
                    self._take_up(live, describe(graph))
        except Exception as error:
            self.note("a graph that was built", error)

    def selected(self, graph: Any) -> None:
        """Take note that another plan of a graph runs from now; it is described on its call."""
        try:
            with self._lock:
                self._expect(self._find(graph))
        except Exception as error:
            self.note("a plan that was selected", error)

    def note(self, where: str, error: Exception) -> None:
        """Record that recording itself failed; the program must not notice."""
        text = shorten(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        if frame is not None:
            code = frame.tb_frame.f_code
            text += f" ({Path(code.co_filename).name}:{frame.tb_lineno})"
        self._problems[where, text] += 1

    def _guarded_look(
        self,
        is_indexed: bool,
        graph: Any,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        calls: int,
        since: int,
    ) -> int:
        try:
            return self._look(is_indexed, graph, arguments, named, calls, since)
        except Exception as error:
            self.note("a call", error)
            return 1 << calls.bit_length()

    def _look(
        self,
        is_indexed: bool,
        graph: Any,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        calls: int,
        since: int,
    ) -> int:
        handle = find_handle(graph, arguments, named, is_indexed)
        capturing = is_capturing(self.frontend, handle)
        with self._lock:
            live = self._find(graph)
            live.names.setdefault(threading.get_ident(), _thread_name())
            if live.is_pending and not capturing and getattr(graph, "_is_built", True):
                self._take_up(live, describe(graph))
            description = live.description
            takes_overrides = description is None or description.takes_overrides
            if description is not None and description.key and not is_indexed:
                self._observe(description.key, graph, (arguments, named), capturing, calls, since)
            if not capturing and time.monotonic() - self._written_at > _SECONDS_APART:
                self.write()
        if takes_overrides and calls < _ALL_OVERRIDES:
            return calls + 1
        if takes_overrides:
            return calls + 1 + self._random.randrange(_OVERRIDES_APART)
        return min(1 << calls.bit_length(), calls + _LOOKS_APART)

    def _observe(
        self,
        key: str,
        graph: Any,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        capturing: bool,
        calls: int,
        since: int,
    ) -> None:
        tally = self._tallies[key]
        override = find_override(*call, is_indexed=False)
        if override is not None:
            tally.add_override(override, since)
        if calls & (calls - 1) == 0:
            tally.looks += 1
            tally.captured += capturing
            for uid, layout in find_layouts(graph, *call):
                tally.add_layout(uid, layout)

    def _find(self, graph: Any) -> Live:
        address = id(graph)
        live = self._live.get(address)
        if live is None:
            live = Live(address, weakref.ref(graph, partial(self._end, address)))
            self._live[address] = live
        return live

    def _end(self, address: int, _: object) -> None:
        """Take leave of a graph, before another can have its address; may run at any moment."""
        live = self._live.pop(address, None)
        for method, is_indexed in self._methods:
            if live is not None:
                self._ended.append((live, is_indexed, read_calls(method, address)))
            forget_calls(method, address)

    def _expect(self, live: Live) -> None:
        """Let the calls so far be those of the plan that was; another one runs from now."""
        if live.description is not None:
            self._fold_live(live)
        live.is_pending = True
        for method, _ in self._methods:
            look_again(method, live.address)

    def _take_up(self, live: Live, description: Description) -> None:
        """Let the calls from now on, and those that wait for a description, be of this one."""
        is_first = live.description is None
        live.description, live.is_pending = description, False
        if not description.key:
            self._problems["a graph", "; ".join(description.reasons)] += 1
            return
        if description.key not in self._tallies and len(self._tallies) >= _MOST_GRAPHS:
            self._problems["a graph", f"not written: there are {_MOST_GRAPHS} already"] += 1
            live.description = Description("")
            return
        self._enter(description).objects += is_first
        for name, data in description.files.items():
            if not (self.folder / name).exists():
                write_whole(self.folder / name, data)
        if is_first and len(self._tallies) == 1:
            self.write()  # so that a program which is killed has left something

    def _enter(self, description: Description) -> Tally:
        tally = self._tallies.setdefault(description.key, Tally())
        tally.tags = description.nodes
        tally.plans[description.plan] += 0
        tally.reasons += [reason for reason in description.reasons if reason not in tally.reasons]
        return tally

    def _fold_live(self, live: Live) -> None:
        for method, is_indexed in self._methods:
            self._fold(live, is_indexed, read_calls(method, live.address))

    def _fold(self, live: Live, is_indexed: bool, counted: list[tuple[int, int]]) -> None:
        """Add what is new of an object's counts to its graph."""
        description = live.description
        for thread, calls in counted:
            new = calls - live.folded[is_indexed, thread]
            live.folded[is_indexed, thread] = calls
            if description is None:
                self._problems["a graph", "gone before it could be described"] += new
            elif description.key and is_indexed:
                self._tallies[description.key].indexed += new
            elif description.key and new:
                name = live.names.get(thread, "thread")
                self._tallies[description.key].add_calls(name, description.plan, new)

    def write(self) -> bool:
        """Write what has been counted up to now; False if that failed, which is noted."""
        try:
            with self._lock:
                self._written_at = time.monotonic()
                while self._ended:
                    self._fold(*self._ended.popleft())
                for live in list(self._live.values()):
                    if live.description is not None:
                        self._fold_live(live)
                if not self._tallies and not self._problems:
                    return True
                data = json.dumps(self._as_document(), indent=1).encode()
                write_whole(self.folder / USAGE / self._name, data)
        except Exception as error:
            self.note("the usage file", error)
            return False
        return True

    def _as_document(self) -> dict[str, Any]:
        return {
            "version": 1,
            # Without arguments, which may hold secrets.
            "program": Path(sys.argv[0]).name if getattr(sys, "argv", None) else "",
            "frontend": str(getattr(self.frontend, "__version__", "")),
            "graphs": {key: tally.as_document() for key, tally in self._tallies.items()},
            "problems": [
                {"where": where, "what": what, "count": count}
                for (where, what), count in self._problems.items()
            ],
        }

    def stop(self) -> bool:
        """Write the rest; calls are passed on and nothing else from now."""
        is_written = self.write()
        for method, _ in self._methods:
            stop_counting(method)
        return is_written

    def start_again(self) -> None:
        """Begin at zero in a child that was forked: the parent counts what was before."""
        self._lock = threading.RLock()  # some thread may have held it, and is not here
        self._ended.clear()
        self._reset()
        for method, _ in self._methods:
            forget_all_calls(method)
        for live in self._live.values():
            live.folded.clear()
            if live.description is not None and live.description.key:
                self._enter(live.description)

    @property
    def problems(self) -> dict[tuple[str, str], int]:
        """What went wrong with recording: (where, what) → how often."""
        return dict(self._problems)


def _thread_name() -> str:
    """Return the thread's name; current_thread() would make an object for a thread without one."""
    ident = threading.get_ident()
    return next((t.name for t in threading.enumerate() if t.ident == ident), "thread")
