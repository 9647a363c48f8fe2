"""Where the frontend is listened to: methods of `cudnn.pygraph`, put back when recording ends."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from cudnn_bindgen.frontend.recording.recorder import Recorder

# Each leaves a plan that can run; `build` calls `build_plans` where it is Python. What select_plan
# chooses is built by the next of them.
_BUILDS = ("build", "build_plans", "build_plan_at_index")
_EXECUTES = {"execute": False, "execute_plan_at_index": True}


class Hooks:
    """The methods of one frontend that are replaced while a recorder is at work."""

    def __init__(self, frontend: Any, recorder: Recorder) -> None:
        self._cls = frontend.pygraph
        self._originals: dict[str, tuple[Any, Any]] = {}
        self._recorder = recorder
        self._nested = threading.local()

    def install(self) -> None:
        """Replace them."""
        for name, is_indexed in _EXECUTES.items():
            self._replace(name, functools.partial(self._recorder.count, is_indexed=is_indexed))
        for name in _BUILDS:
            self._replace(name, self._after_build)
        self._replace("deserialize", self._after_deserialize)

    def remove(self) -> None:
        """Put them back, but for those that someone else has replaced since."""
        for name, (original, ours) in self._originals.items():
            if self._cls.__dict__.get(name) is ours:
                setattr(self._cls, name, original)
        self._originals.clear()

    def _replace(self, name: str, wrap: Callable[[Any], Any]) -> None:
        original = self._cls.__dict__.get(name)
        if original is not None:
            ours = wrap(original)
            self._originals[name] = (original, ours)
            setattr(self._cls, name, ours)

    def _after_build(self, original: Any) -> Any:
        @functools.wraps(original)
        def build(graph: Any, *arguments: Any, **named: Any) -> Any:
            depth = getattr(self._nested, "depth", 0)
            self._nested.depth = depth + 1
            try:
                result = original(graph, *arguments, **named)
            finally:
                self._nested.depth = depth
            if depth == 0:
                self._recorder.built(graph)
            return result

        return build

    def _after_deserialize(self, original: Any) -> Any:
        @functools.wraps(original)
        def deserialize(graph: Any, *arguments: Any, **named: Any) -> Any:
            result = original(graph, *arguments, **named)
            self._recorder.built(graph, (*arguments, *named.values()))
            return result

        return deserialize
