"""Every error that a generated module raises. After any of them the module can be called again."""

from __future__ import annotations

from collections.abc import Sequence

# Digits and characters of a value that a message shows.
_MOST = 40


def describe(value: object) -> str:
    """Say what a caller gave: in a few words, whatever it is, and without calling its methods."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        # Python refuses to print the largest ones.
        bits = value.bit_length()
        return int.__repr__(value) if bits <= 128 else f"an int of {bits} bits"
    if isinstance(value, float):
        return float.__repr__(value)
    for kind in (str, bytes):
        if isinstance(value, kind):
            text = repr(kind.__getitem__(value, slice(_MOST)))
            whole = kind.__len__(value) <= _MOST and len(text) <= _MOST
            return text if whole else f"{text[: _MOST - 3]}..."
    return f"an object of type {type(value).__name__}"


class BindingError(RuntimeError):
    """Base of all errors of the runtime."""


class OperandError(BindingError, ValueError):
    """An argument is wrong: which one, what was expected, what was given.

    Attributes
    ----------
    argument, expected, got
        The parameter's name and the two halves of the message.
    """

    def __init__(self, argument: str, expected: str, got: str) -> None:
        super().__init__(f"{argument}: expected {expected}, got {got}")
        self.argument = argument
        self.expected = expected
        self.got = got


class OperandTypeError(OperandError, TypeError):
    """An argument has a type that cannot be an address or a value."""


class LibraryNotFoundError(BindingError, ImportError):
    """cuDNN or the NVIDIA driver cannot be loaded; the message lists where was looked."""


class CudnnError(BindingError):
    """A cuDNN call failed.

    Attributes
    ----------
    call
        Name of the function.
    status, status_name
        The cudnnStatus_t as number and symbol.
    detail
        What ``cudnnGetLastErrorString`` said.
    module, fingerprint
        The generated module and its graph, where the call was made for one; else empty.
    overrides
        The shapes and strides that the call asked for, where it overrode some; else empty.
    """

    def __init__(
        self,
        call: str,
        status: int,
        status_name: str,
        detail: str = "",
        module: str = "",
        fingerprint: str = "",
    ) -> None:
        where = f"{module} (graph {fingerprint}): " if module else ""
        said = f": {detail}" if detail else ""
        super().__init__(f"{where}{call}: {status_name} ({status}){said}")
        self.call = call
        self.status = status
        self.status_name = status_name
        self.detail = detail
        self.module = module
        self.fingerprint = fingerprint
        self.overrides = ""

    def add_overrides(self, values: str) -> None:
        """Say which overrides the call was made with."""
        self.overrides = values
        self.args = (f"{self.args[0]}; overrides: {values}",)


class DriverError(BindingError):
    """A CUDA driver call failed: `call`, `status` (CUresult) and `status_name`."""

    def __init__(self, call: str, status: int, status_name: str) -> None:
        super().__init__(f"{call}: {status_name} ({status})")
        self.call = call
        self.status = status
        self.status_name = status_name


class StreamError(BindingError):
    """A part of the plan's launches goes to another stream than the call's.

    Some engines launch a kernel on the legacy default stream whatever stream cuDNN is given
    (docs/launch-records.md has a list). On that stream and on blocking ones, which wait for it, the
    result is right. A CUDA graph would lack the kernel, and on a stream made with
    cudaStreamNonBlocking, as PyTorch's are, it would run at any time.
    """

    def __init__(self, module: str, in_capture: bool) -> None:
        where = "in a stream capture" if in_capture else "on a non-blocking stream"
        super().__init__(
            f"{module}: this plan launches a kernel on the legacy default stream, so its result "
            f"would be wrong {where}: call it outside of captures with stream=0 or a stream made "
            "without cudaStreamNonBlocking, or make a plan of another engine "
            "(cudnn-bindgen plan --engine)"
        )


class PlanMismatchError(BindingError):
    """A plan was built for another cuDNN, GPU generation or graph.

    Attributes
    ----------
    what, plan, here
        What differs, the plan's value and the value found here.
    """

    def __init__(self, module: str, what: str, plan: str, here: str, command: str = "") -> None:
        remedy = f": {command} makes one on any machine" if command else ""
        if command and what == "cuDNN":
            remedy = (
                f": install nvidia-cudnn-cu12 or -cu13 {_dotted(int(plan))}, or plan with this "
                f"one by {command} --cudnn DIR"
            )
        super().__init__(f"{module}: the plan is for {what} {plan}, here is {what} {here}{remedy}")
        self.what = what
        self.plan = plan
        self.here = here


class PlanMissingError(PlanMismatchError):
    """No plan of several, or of none, is for the device of the call.

    Attributes
    ----------
    what, plan, here
        ``"device"``, what there are plans for, and what is here: SM, SM count and cuDNN version.
    """

    def __init__(
        self,
        module: str,
        plans: Sequence[tuple[int, int, int]],
        here: tuple[int, int, int],
        remedy: str,
        command: str,
    ) -> None:
        self.what = "device"
        self.plan = "; ".join(dict.fromkeys(_device(*plan) for plan in plans)) or "no device"
        self.here = _device(*here)
        BindingError.__init__(
            self,
            f"{module}: there are plans for {self.plan}; here is {self.here}: {remedy}; "
            f"{command} makes one on any machine",
        )


def _device(sm: int, sm_count: int, cudnn_version: int) -> str:
    count = sm_count or "any number of"
    under = f"cuDNN {_dotted(cudnn_version)}" if cudnn_version else "any cuDNN"
    return f"SM {sm} with {count} multiprocessors under {under}"


def _dotted(cudnn_version: int) -> str:
    """91900 as 9.19.0."""
    return f"{cudnn_version // 10000}.{cudnn_version // 100 % 100}.{cudnn_version % 100}"


class PlanNotLoadedError(BindingError):
    """The module has no plan: it was emitted from structure only, or it was closed."""


def plan_command(source: str, gpu: str = "GPU") -> str:
    """Return the command line that makes a plan of a graph; `source` is its file's base name."""
    # A shell would read other names otherwise, and a terminal perhaps show them.
    is_plain = all(one.isalnum() or one in "._-" for one in source) and source.isascii()
    file = source if is_plain and source[:1].isalnum() and source != "stdin" else "GRAPH"
    return f"cudnn-bindgen plan {file} --for {gpu}"


class WorkspaceError(BindingError):
    """The runtime cannot provide workspace now, because the stream is being captured."""


class RuntimeAbiError(BindingError, ImportError):
    """A module was emitted for another version of the runtime: emit and build it again."""
