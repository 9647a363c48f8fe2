from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal

from cudnn_bindgen.module_data import GraphData, Member, ModuleData, Operand
from cudnn_bindgen.runtime.overrides import Overrides as _Overrides

class Binding:
    __name__: str
    FINGERPRINT: str
    data: tuple[GraphData, ...]
    def __init__(self, name: str, abi: int, data: ModuleData | bytes) -> None: ...
    @property
    def OPERANDS(self) -> tuple[Operand, ...]: ...  # noqa: N802 - as in a module
    @property
    def GRAPH(self) -> Mapping[str, object]: ...  # noqa: N802
    @property
    def KEY(self) -> tuple[str, ...]: ...  # noqa: N802
    @property
    def MEMBERS(self) -> Mapping[tuple[int, ...], Member]: ...  # noqa: N802
    @property
    def WORKSPACE_SIZE(self) -> int: ...  # noqa: N802
    @property
    def Overrides(self) -> type[_Overrides]: ...  # noqa: N802
    def execute(self, *arguments: Any, **named: Any) -> None: ...
    def run(self, *operands: Any, **named: Any) -> Any: ...
    def execute_uids(
        self,
        arguments: Mapping[int, float],
        workspace_ptr: int = 0,
        stream: int = 0,
        overrides: _Overrides | None = None,
    ) -> None: ...
    def execute_slots(
        self,
        addresses: int,
        count: int,
        workspace_ptr: int = 0,
        stream: int = 0,
        overrides: _Overrides | None = None,
    ) -> None: ...
    @property
    def BoundCall(self) -> type[Any]: ...  # noqa: N802
    def bind(self, *operands: Any, **named: Any) -> Any: ...
    def workspace_size(self, *key: Any, **named: Any) -> int: ...
    def load_plan(
        self,
        plan: bytes | str | PathLike[str] | None = None,
        on_missing: Literal["refuse", "plan"] = "refuse",
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def is_open(self) -> bool: ...
    def set_checks(self, enabled: bool) -> None: ...
    def set_launch_policy(
        self, policy: Literal["auto", "direct", "record"], records: int | None = None
    ) -> None: ...
    def launch_path(self, *key: Any, **named: Any) -> str: ...
    def launch_stats(self) -> dict[str, int | float | str]: ...
    def launch_nodes(self, *key: Any, **named: Any) -> list[dict[str, Any]]: ...
