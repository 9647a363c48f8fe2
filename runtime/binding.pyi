# The docstrings are the runtime's own (a test compares them), and those of emitted modules
# (codegen/render/docstrings.py): of an entry such as `operands`, a module names its own.
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from cudnn_bindgen.module_data import GraphData, Member, ModuleData, Operand
from cudnn_bindgen.runtime.overrides import Overrides as _Overrides

class Binding:
    """A graph, a chain of graphs or a family of them, with its plans: all that a module has."""

    __name__: str
    """What messages call it."""
    FINGERPRINT: str
    """Identity of the graph or family: the same for every file and plan of it."""
    data: tuple[GraphData, ...]
    def __init__(self, name: str, abi: int, data: ModuleData | bytes) -> None: ...
    @property
    def OPERANDS(self) -> tuple[Operand, ...]:  # noqa: N802 - as in a module
        """Arguments of `execute`: uid, role, type, dims, strides (elements), alignment (bytes)."""
    @property
    def GRAPH(self) -> Mapping[str, object]:  # noqa: N802
        """Where the graph came from: file, dialect, nodes; SM, SM count, cuDNN, engine of plans."""
    @property
    def KEY(self) -> tuple[str, ...]:  # noqa: N802
        """Names of the numbers that choose a graph of the family."""
    @property
    def MEMBERS(self) -> Mapping[tuple[int, ...], Member]:  # noqa: N802
        """By key, what FINGERPRINT, OPERANDS and GRAPH are of that graph."""
    @property
    def WORKSPACE_SIZE(self) -> int:  # noqa: N802
        """Bytes of workspace that any call on the current device needs at most; loads the plans."""
    @property
    def Overrides(self) -> type[_Overrides]:  # noqa: N802
        """The class of dims and strides for a call, in place of the declared ones."""
    def execute(self, *arguments: Any, **named: Any) -> None:
        """Enqueue the graph on device addresses and return at once.

        Dims and strides count elements.

        Args:
            arguments: the device address of each operand, the value of each scalar, as OPERANDS.
            workspace_ptr: `workspace_size()` bytes, aligned to 128; 0: the runtime's own.
            stream: a cudaStream_t; 0: the legacy default stream.
            overrides: dims and strides of this call; None: the declared ones.

        Raises:
            OperandError: an argument is null, misaligned, of a wrong type or out of range.
            PlanNotLoadedError, PlanMismatchError: no plan is for this GPU and cuDNN.
            StreamError: the plan launches a kernel outside of this stream.
            WorkspaceError: the stream is captured, and the runtime has no workspace for it yet.
            CudnnError, DriverError: a call of cuDNN or of the driver failed.
        """
    def run(self, *operands: Any, **named: Any) -> Any:
        """Enqueue the graph on tensors, each of them checked, and return the outputs.

        Dims and strides count elements.

        Args:
            operands: a tensor of each, or its device address, trusted; outputs may be left out.
            scalars: a number or a host tensor of one element, by name.
            workspace: a tensor of `workspace_size()` bytes, or its address; None: the runtime's.
            stream: a cudaStream_t or a framework's stream; None: the framework's current one.
            check: False: look at null addresses and alignment alone.
            overrides: dims and strides of this call; None: the declared ones.

        Returns:
            The output, or a tuple of several. The framework of the first tensor makes what is
            left out.

        Raises:
            OperandError: a tensor has a wrong device, data type, layout or alignment, or shares
                memory with an output; and all that `execute` raises.
        """
    def execute_uids(
        self,
        arguments: Mapping[int, float],
        workspace_ptr: int = 0,
        stream: int = 0,
        overrides: _Overrides | None = None,
    ) -> None:
        """Call `execute` with arguments by uid: slower, the same result.

        Args:
            arguments: by uid, device addresses and values of scalars; defaults may be left out.
            workspace_ptr: `workspace_size()` bytes, aligned to 128; 0: the runtime's own.
            stream: a cudaStream_t; 0: the legacy default stream.
            overrides: dims and strides of this call; None: the declared ones.

        Raises:
            OperandError: a uid is missing or unknown; and all that `execute` raises.
        """
    def execute_slots(
        self,
        addresses: int,
        count: int,
        workspace_ptr: int = 0,
        stream: int = 0,
        overrides: _Overrides | None = None,
    ) -> None:
        """Call `execute` with a C array of pointers in slot order.

        Args:
            addresses: where the array stands: device addresses of operands; of scalars, pointers to
                the value in host memory, or null for the default.
            count: the number of OPERANDS.
            workspace_ptr: `workspace_size()` bytes, aligned to 128; 0: the runtime's own.
            stream: a cudaStream_t; 0: the legacy default stream.
            overrides: dims and strides of this call; None: the declared ones.

        Raises:
            OperandError: another count, a null array, a scalar without value; and all that
                `execute` raises.
        """
    @property
    def BoundCall(self) -> type[Any]:  # noqa: N802
        """The class of what `bind` returns."""
    def bind(self, *operands: Any, **named: Any) -> Any:
        """Check what `run` takes, and return it as a call that is launched as it stands.

        Args:
            operands: a tensor of each, or its device address; outputs that are left out are made.
            scalars: a number or a host tensor of one element, by name.
            workspace: a tensor of `workspace_size()` bytes, or its address; None: the runtime's.
            stream: a cudaStream_t or a framework's stream; None: at each call the current one.
            check: False: look at null addresses and alignment alone.
            overrides: dims and strides of the calls, copied; None: the declared ones.

        Returns:
            A BoundCall: set what changes (`call.q = tensor`), then call it; for one thread at a
            time.

        Raises:
            OperandError: as `run` does; what tensors share is looked at by the next call.
        """
    def workspace_size(self, *key: Any, **named: Any) -> int:
        """Return the bytes of workspace of a call on the current device; load the plan.

        Args:
            key: which graph of the family.
            overrides: those of the call. Before cuDNN 9.23 they do not count: nobody can tell.

        Raises:
            PlanNotLoadedError, PlanMismatchError: no plan is for this GPU and cuDNN.
        """
    def load_plan(
        self,
        plan: bytes | str | PathLike[str] | None = None,
        on_missing: Literal["refuse", "plan"] = "refuse",
    ) -> None:
        """Load plans in place of those that are loaded, or closed; wait for running calls.

        Args:
            plan: a plan file or bundle, as bytes or path; None: the plans that came along.
            on_missing: a device that no plan is for: "refuse" raises PlanMissingError at a call,
                "plan" lets NVIDIA's frontend make one there, which is kept on disk.

        Raises:
            PlanMismatchError: the file's plan is of another graph.
            GraphFormatError, OSError: the file cannot be read.
        """
    def close(self) -> None:
        """Wait for running calls to finish, then unload the plans on every device."""
    @property
    def is_open(self) -> bool:
        """Whether plans are loaded, of each graph."""
    def check_described(
        self,
        described: Iterable[
            tuple[tuple[int, int, int], tuple[int, int], Sequence[int], Sequence[int]] | None
        ],
    ) -> None:
        """Refuse what `run` would refuse, of tensors without memory: for compilers, which trace.

        Args:
            described: of each operand DLDataType, DLDevice, dims, strides; None: not looked at.

        Raises:
            OperandError: a tensor has a wrong device, data type or layout.
        """
    def set_checks(self, enabled: bool) -> None:
        """Turn the checks of `run` on or off, for all its calls.

        Args:
            enabled: False: all calls are made as with `check=False`.
        """
    def set_launch_policy(
        self, policy: Literal["auto", "direct", "record"], records: int | None = None
    ) -> None:
        """Choose how calls are launched.

        Args:
            policy: "auto" (by a launch record, once that is proven), "direct" or "record".
            records: for how many different overrides a stream keeps one, 1 to 4096; at first 64.
        """
    def launch_path(self, *key: Any, **named: Any) -> str:
        """Return how the last call was launched: "direct" or "record".

        Args:
            key: which graph of the family.
        """
    def launch_stats(self) -> dict[str, int | float | str]:
        """Return how many calls took each launch path, and why a record was refused, if one was."""
    def launch_nodes(self, *key: Any, **named: Any) -> list[dict[str, Any]]:
        """Return what a call launches on this device, and whose address each patched word is.

        Args:
            key: which graph of the family.

        Raises:
            BindingError: the launch cannot be recorded.
        """
