"""Wait for the program to import a module, without importing it oneself."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # see process.py
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Finder:
    """Finds nothing itself: asks the other finders, and has the callback run after the module."""

    def __init__(self, name: str, call: Callable[[Any], None]) -> None:
        self.name = name
        self.call = call
        self._is_asking = False

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name != self.name or self._is_asking:
            return None
        import importlib.util  # only now: most Pythons of a program never come here

        self._is_asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_asking = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            # The loader is as it was while the module runs, and after.
            del loader.exec_module
            execute(module)
            forget_import(self.name, self.call)
            self.call(module)

        # On the object, not the class: this import alone.
        loader.exec_module = execute_and_call
        return spec


def on_import(name: str, call: Callable[[Any], None]) -> None:
    """Call back with the module, right after it has been imported."""
    sys.meta_path.insert(0, _Finder(name, call))


def forget_import(name: str, call: Callable[[Any], None]) -> None:
    """Wait no longer."""
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not (isinstance(finder, _Finder) and (finder.name, finder.call) == (name, call))
    ]
