"""What stands in for a graph: its `execute` is the generated module's, all else is the graph's."""

from __future__ import annotations

from typing import Any

from cudnn_bindgen.runtime.frontend_call import FrontendCall


class Accelerated(FrontendCall):
    """A graph of NVIDIA's frontend whose `execute` calls a generated module.

    Attributes
    ----------
    graph
        The frontend's graph, whose other methods this object has as well.
    module
        The generated module: `launch_stats()`, `set_launch_policy()`, `OPERANDS`.
    """

    def __getattr__(self, name: str) -> Any:
        # Not what is private: FlashInfer asks for private ways around `execute`, and takes them.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.graph, name)

    def __repr__(self) -> str:
        """Return the graph's own, which is its structure as JSON."""
        return repr(self.graph)
