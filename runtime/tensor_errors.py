"""What `run` says when a tensor is refused: the operand, what was expected, what came, a remedy."""

from __future__ import annotations

from collections.abc import Callable

from cudnn_bindgen.module_data import Operand
from cudnn_bindgen.runtime.errors import OperandError
from cudnn_bindgen.runtime.tensor_remedies import Sizes, find_remedy
from cudnn_bindgen.runtime.tensor_types import describe_stored, describe_type

# DLDeviceType.
_DEVICES = {
    1: "host memory",
    3: "pinned host memory",
    4: "OpenCL memory",
    7: "Vulkan memory",
    8: "Metal memory",
    10: "ROCm memory",
    11: "pinned host memory of ROCm",
    14: "oneAPI memory",
}

# By LayoutKind: what is free about the operand's layout.
_FREE = {
    2: "any number of tokens",
    3: "any number of pages",
    4: "dense, this many elements or more",
}


def device_type_error(name: str, device_type: int) -> OperandError:
    """Return the error for memory that no kernel can use."""
    got = _DEVICES.get(device_type, f"memory of DLPack device type {device_type}")
    return OperandError(name, "memory of a CUDA device", got)


def device_error(name: str, got: int, current: int) -> OperandError:
    """Return the error for memory of another device."""
    return OperandError(
        name,
        f"memory of CUDA device {current}, which is current",
        f"memory of device {got}: make that one current, or move the tensor",
    )


def other_device_error(name: str, got: int, first: str, device: int) -> OperandError:
    """Return the error for a tensor on another device than the `first` one."""
    expected = f"memory of CUDA device {device}, as {first} is"
    return OperandError(name, expected, f"memory of device {got}")


def data_type_error(name: str, operand: Operand, got: tuple[int, int, int]) -> OperandError:
    """Return the error for a wrong type; `got` is a DLDataType: code, bits, lanes."""
    expected = f"{operand.data_type} ({describe_stored(operand.data_type)})"
    return OperandError(name, expected, describe_type(*got))


def layout_error(
    name: str,
    kind: int,
    free_axis: int,
    expected: tuple[Sizes, Sizes],
    got: tuple[Sizes, Sizes],
    pack: int,
    is_other_order: bool,
    matches: Callable[[Sizes, Sizes], bool],
) -> OperandError:
    """Return the error for a wrong layout.

    `expected` and `got` are dims and strides; `matches` tells whether a view would do.
    """
    dim: list[object] = list(expected[0])
    stride: list[object] = list(expected[1])
    if kind == 2:  # ragged: the batch's sequences lie one after the other
        dim[0] = stride[0] = dim[free_axis] = "*"
    if kind == 3:
        dim[free_axis] = "*"
    wanted = f"dims {_list(dim)} with strides {_list(stride)}"
    if kind == 4:
        wanted = f"dims {_list(dim)}"
    if kind in _FREE:
        wanted += f" ({_FREE[kind]})"
    if pack > 1:
        wanted += f", {pack} elements in each of the tensor's"
    came = f"dims {_list(got[0])} with strides {_list(got[1])}"
    if is_other_order:
        came += ", the same extents in another order of memory"
    remedy = find_remedy(name, got, matches)
    return OperandError(name, wanted, came + (f"; try {remedy}" if remedy else ""))


def read_only_error(name: str) -> OperandError:
    """Return the error for an output, or workspace, that must not be written."""
    return OperandError(name, "memory that can be written", "a read-only tensor")


def null_error(name: str, operand: Operand) -> OperandError:
    """Return the error for a null address where there are elements."""
    return OperandError(name, f"the memory of {_tensor(operand)}", "address 0")


def alignment_error(name: str, operand: Operand, address: int) -> OperandError:
    """Return the error for an address that is no multiple of what the plan counts on."""
    expected = f"the address of {_tensor(operand)}, a multiple of {operand.alignment}"
    return OperandError(name, expected, f"0x{address:x}")


def overlap_error(name: str, other: str, may_share: bool) -> OperandError:
    """Return the error for shared memory; `may_share`: the output may replace some operand."""
    rule = " but an operand that it may replace element by element" if may_share else ""
    return OperandError(
        name, f"memory that no other operand uses{rule}", f"memory that {other} uses, too"
    )


def shared_workspace_error(name: str) -> OperandError:
    """Return the error for a workspace that is memory of the operand `name`."""
    return OperandError("workspace", "memory that no operand uses", f"memory that {name} uses, too")


def workspace_alignment_error(alignment: int, address: int) -> OperandError:
    """Return the error for a workspace that is not aligned."""
    return OperandError("workspace", f"a multiple of {alignment}", f"0x{address:x}")


def workspace_gaps_error() -> OperandError:
    """Return the error for a workspace that is not one range of memory."""
    return OperandError("workspace", "a contiguous tensor", "one with gaps or repeated elements")


def _tensor(operand: Operand) -> str:
    return f"{operand.name!a} (uid {operand.uid})"


def _list(sizes: object) -> str:
    return f"[{', '.join(map(str, sizes))}]"
