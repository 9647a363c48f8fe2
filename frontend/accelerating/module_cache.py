"""Compiled modules on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cudnn_bindgen.codegen.compile import extension_path
from cudnn_bindgen.frontend.accelerating.errors import AccelerateWarning
from cudnn_bindgen.frontend.file_cache import FileCache

Loaded = TypeVar("Loaded")


class ModuleCache(FileCache):
    """A folder of them. A module takes some 200 KB, so there is room for hundreds of graphs."""

    kind = "modules"
    prefix = "graph_"
    mode = 0o755
    warning = AccelerateWarning
    what = "compiled graphs"
    instead = "compiling"

    def path(self, name: str) -> Path:
        """Return where Python's loader looks for a module of that name."""
        return extension_path(self.folder, name)

    def use_built(
        self, name: str, build: Callable[[Path], Path], load: Callable[[Path], Loaded]
    ) -> Loaded:
        """Return what `load` makes of a module, which `build` compiles in an empty folder."""

        def make() -> bytes:
            # Not in the cache's folder: a compiler that fails leaves nothing there.
            with tempfile.TemporaryDirectory(prefix="cudnn-bindgen-") as scratch:
                return build(Path(scratch)).read_bytes()

        return self.use(name, make, load)
