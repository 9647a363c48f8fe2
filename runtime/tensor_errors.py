"""What `run` says when a tensor is refused: the operand, what was expected, what came, a remedy.

The remedy is found by trying: what to do to a tensor of another layout, in the words of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from cudnn_bindgen.module_data import Operand
from cudnn_bindgen.runtime.errors import OperandError
from cudnn_bindgen.runtime.tensor_types import describe_stored, describe_type

Sizes = tuple[int, ...]
_View = tuple[Sizes, Sizes]

# More axes than this and the pairs to try are too many to be of help.
_MOST_AXES = 6

HOST_MEMORY = "host memory"
# DLDeviceType.
_DEVICES = {
    1: HOST_MEMORY,
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
    remedy = _find_remedy(name, got, matches)
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


def _find_remedy(name: str, got: _View, matches: Callable[[Sizes, Sizes], bool]) -> str:
    """Return code that makes a fitting tensor of `name`, or "" if nothing simple does.

    Parameters
    ----------
    name
        The tensor's variable.
    got
        Its dims and strides.
    matches
        Whether a tensor of these dims and strides would be taken.
    """
    if len(got[0]) <= _MOST_AXES and 0 not in got[0]:
        for code, (dim, stride) in _candidates(got):
            if matches(dim, stride):
                return f"{name}{code}"
    return ""


def _candidates(view: _View) -> Iterator[tuple[str, _View]]:
    """Yield code and what it gives, the cheapest first: views, then copies."""
    rank = len(view[0])
    pairs = list(combinations(range(rank), 2))
    # The last two axes are what is transposed most often.
    pairs.sort(key=lambda pair: pair != (rank - 2, rank - 1))
    for pair in pairs:
        yield _transpose(pair, rank), _swap(view, pair)
    yield ".contiguous()", _contiguous(view)
    if rank == 4:
        yield (
            ".contiguous(memory_format=torch.channels_last)",
            _permute(_contiguous(_permute(view, (0, 2, 3, 1))), (0, 3, 1, 2)),
        )
    for pair in pairs:
        copied = _contiguous(_swap(view, pair))
        code = f"{_transpose(pair, rank)}.contiguous()"
        yield code, copied
        yield f"{code}{_transpose(pair, rank)}", _swap(copied, pair)


def _transpose(pair: tuple[int, int], rank: int) -> str:
    if rank == 2:
        return ".t()"
    return ".mT" if pair == (rank - 2, rank - 1) else f".transpose{pair}"


def _swap(view: _View, pair: tuple[int, int]) -> _View:
    order = list(range(len(view[0])))
    order[pair[0]], order[pair[1]] = pair[1], pair[0]
    return _permute(view, tuple(order))


def _permute(view: _View, order: Sizes) -> _View:
    dim, stride = view
    return tuple(dim[axis] for axis in order), tuple(stride[axis] for axis in order)


def _contiguous(view: _View) -> _View:
    strides = []
    following = 1
    for extent in reversed(view[0]):
        strides.append(following)
        following *= extent
    return view[0], tuple(reversed(strides))
