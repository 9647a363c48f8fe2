from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cudnn_bindgen.runtime.binding import Binding

class FrontendCall:
    graph: Any
    module: Binding
    def __init__(
        self,
        graph: Any,
        module: Binding,
        get_stream: Callable[[Any], int | None],
        default_handle: Any,
        knows_default: bool,
        check: bool,
    ) -> None: ...
    def execute(
        self,
        tensor_dict: Mapping[Any, Any] | Sequence[Any],
        workspace: Any = None,
        handle: Any = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
        tensor_uids: Sequence[Any] | None = None,
    ) -> None: ...

def given_options(
    override_uids: Sequence[int] | None,
    override_shapes: Sequence[Sequence[int]] | None,
    override_strides: Sequence[Sequence[int]] | None,
    tensor_uids: Sequence[Any] | None,
) -> dict[str, Any]: ...
