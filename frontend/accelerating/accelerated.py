"""What stands in for a graph: its `execute` is a Binding's, all else is the graph's."""

from __future__ import annotations

from typing import Any

from cudnn_bindgen.runtime.frontend_call import FrontendCall, given_options


class Accelerated(FrontendCall):
    """A graph of NVIDIA's frontend whose `execute` calls a Binding.

    Attributes
    ----------
    graph
        The frontend's graph, whose other methods this object has as well.
    module
        The Binding, which has a module's face: `launch_stats()`, `set_launch_policy()`, `OPERANDS`.
    plan_index
        Which of the graph's plans it launches; None if the graph has no list of them.
    """

    def __init__(self, *arguments: Any, plan_index: int | None) -> None:
        super().__init__(*arguments)
        self.plan_index = plan_index

    def execute_plan_at_index(
        self,
        tensor_dict: Any,
        workspace: Any = None,
        index: int = 0,
        handle: Any = None,
        override_uids: Any = None,
        override_shapes: Any = None,
        override_strides: Any = None,
        *,
        tensor_uids: Any = None,
    ) -> None:
        """Execute the plan at `index`: the Binding if it is the Binding's, else the frontend."""
        if index == self.plan_index:
            self.execute(
                tensor_dict,
                workspace,
                handle,
                override_uids,
                override_shapes,
                override_strides,
                tensor_uids,
            )
            return
        options = given_options(override_uids, override_shapes, override_strides, tensor_uids)
        self.graph.execute_plan_at_index(tensor_dict, workspace, index, handle, **options)

    def __getattr__(self, name: str) -> Any:
        # Not what is private: FlashInfer asks for private ways around `execute`, and takes them.
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.graph, name)

    def __repr__(self) -> str:
        """Return what the graph returns: its structure as JSON."""
        return repr(self.graph)
