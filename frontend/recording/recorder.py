"""Which objects are which graphs, and when their calls are looked at."""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cudnn_bindgen.frontend.recording.capturing import is_capturing
from cudnn_bindgen.frontend.recording.counting import (
    count_calls,
    forget_all_calls,
    forget_calls,
    look_again,
    read_calls,
    stop_counting,
)
from cudnn_bindgen.frontend.recording.describe import Description, describe, describe_loaded
from cudnn_bindgen.frontend.recording.ledger import Ledger
from cudnn_bindgen.frontend.recording.observe import find_handle, find_layouts, find_override

# Overrides are looked at on every call at first, then on one of at most this many.
_ALL_OVERRIDES = 128
_OVERRIDES_APART = 63
# No more calls than this between two looks, which also write what is new.
_LOOKS_APART = 8192
_SECONDS_APART = 10.0

_GONE = "calls of one that was gone before it could be described: built in a capture, or never"


@dataclass
class Live:
    """A graph object of the program, known by its address as long as it lives."""

    address: int
    gone: weakref.ref[Any]
    description: Description | None = None
    # Older frontends crash where a graph without a plan is serialized. So nothing is asked of one
    # that nobody has seen built, until a call of it has ended well.
    is_built: bool = False
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
        version = str(getattr(self.frontend, "__version__", ""))
        self._ledger = Ledger(self.folder, version, self._run)
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
                live.is_built = True
                if loaded:
                    description = describe_loaded(loaded)
                    if description is not None:
                        self._take_up(live, description)
                        return
                if not is_capturing(self.frontend, getattr(graph, "_handle", None)):
                    self._take_up(live, describe(graph))
        except Exception as error:
            self._ledger.note("a graph that was built", error)

    def _guarded_look(
        self,
        is_indexed: bool,
        graph: Any,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        calls: int,
        since: int,
        has_returned: bool,
    ) -> int:
        try:
            return self._look(is_indexed, graph, arguments, named, calls, since, has_returned)
        except Exception as error:
            self._ledger.note("a call", error)
            return 1 << calls.bit_length()

    def _look(
        self,
        is_indexed: bool,
        graph: Any,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        calls: int,
        since: int,
        has_returned: bool,
    ) -> int:
        handle = find_handle(graph, arguments, named, is_indexed)
        capturing = is_capturing(self.frontend, handle)
        with self._lock:
            live = self._find(graph)
            live.names.setdefault(threading.get_ident(), _thread_name())
            live.is_built |= has_returned
            if live.is_pending and live.is_built and not capturing:
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
        tally = self._ledger.tallies[key]
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
        tally = self._ledger.enter(description)
        if tally is None:
            live.description = Description("")
            return
        tally.objects += is_first
        self._ledger.write_graph(description)
        if is_first and len(self._ledger.tallies) == 1:
            self.write()  # so that a program which is killed has left something

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
                self._ledger.add_problem("a graph", _GONE, new)
            elif description.key and is_indexed:
                self._ledger.tallies[description.key].indexed += new
            elif description.key and new:
                name = live.names.get(thread, "thread")
                self._ledger.tallies[description.key].add_calls(name, description.plan, new)

    def write(self) -> bool:
        """Write the counts up to now; return False, and note the error, if that fails."""
        try:
            with self._lock:
                self._written_at = time.monotonic()
                while self._ended:
                    self._fold(*self._ended.popleft())
                for live in list(self._live.values()):
                    if live.description is not None:
                        self._fold_live(live)
                self._ledger.write()
        except Exception as error:
            self._ledger.note("the usage file", error)
            return False
        return True

    def stop(self) -> bool:
        """Write the rest; calls are passed on and nothing else from now, not even by `_end`."""
        is_written = self.write()
        methods, self._methods = self._methods, []
        for method, _ in methods:
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
                self._ledger.enter(live.description)

    @property
    def problems(self) -> list[str]:
        """What went wrong with recording."""
        return self._ledger.problems


def _thread_name() -> str:
    """Return the thread's name; current_thread() would make an object for a thread without one."""
    ident = threading.get_ident()
    return next((t.name for t in threading.enumerate() if t.ident == ident), "thread")
