"""What one call of ``execute`` was given: layouts by uid, overrides, the handle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# Positions behind `self` in execute (frontend 1.18 to 1.32) and in execute_plan_at_index, which has
# the plan's index before the handle.
_BUFFERS = ("tensor_dict", "tensor_to_device_buffer", "variant_pack")
_TENSOR_UIDS = 6
_LARGEST_ALIGNMENT = 256


class Layout(NamedTuple):
    """How a buffer lay; of an address only the alignment is known."""

    shape: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    data_type: str
    device: str
    alignment: int


class Override(NamedTuple):
    """Shapes and strides that a call gave for some operands."""

    uids: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]


Arguments = tuple[Any, ...]
Named = Mapping[str, Any]


def find_handle(graph: Any, arguments: Arguments, named: Named, is_indexed: bool) -> Any:
    """Return the handle of a call: its own, or the graph's."""
    handle = _argument(arguments, named, "handle", 3 if is_indexed else 2)
    return handle if handle is not None else getattr(graph, "_handle", None)


def find_override(arguments: Arguments, named: Named, is_indexed: bool) -> Override | None:
    """Return the overrides of a call."""
    first = 4 if is_indexed else 3
    uids, shapes, strides = (
        _argument(arguments, named, f"override_{what}", first + at)
        for at, what in enumerate(("uids", "shapes", "strides"))
    )
    if uids is None:
        return None
    return Override(
        tuple(int(uid) for uid in uids),
        tuple(tuple(int(size) for size in shape) for shape in shapes or ()),
        tuple(tuple(int(step) for step in stride) for stride in strides or ()),
    )


def find_layouts(graph: Any, arguments: Arguments, named: Named) -> Iterator[tuple[int, Layout]]:
    """Yield uid and layout of each operand."""
    buffers: Any = arguments[0] if arguments else None
    for name in _BUFFERS:
        buffers = named.get(name) if buffers is None else buffers
    uids = _argument(arguments, named, "tensor_uids", _TENSOR_UIDS)
    pairs: Iterable[tuple[Any, Any]]
    pairs = zip(uids, buffers, strict=False) if uids is not None else (buffers or {}).items()
    for key, buffer in pairs:
        if key is not None and buffer is not None:
            yield _uid(graph, key), _layout(buffer)


def _argument(arguments: Arguments, named: Named, name: str, position: int) -> Any:
    return named[name] if name in named else (arguments[position : position + 1] or (None,))[0]


def _uid(graph: Any, key: Any) -> int:
    if isinstance(key, str):
        key = graph.find_tensor(key)
    if not isinstance(key, int):
        key = key.uid if hasattr(key, "uid") else key.get_uid()
    return int(key)


def _layout(buffer: Any) -> Layout:
    if isinstance(buffer, int):
        return Layout(None, None, "", "", _alignment(buffer))
    shape = getattr(buffer, "shape", None)
    data_type = getattr(buffer, "dtype", None)
    device = getattr(buffer, "device", None)
    return Layout(
        None if shape is None else tuple(int(size) for size in shape),
        _stride(buffer, data_type),
        "" if data_type is None else str(data_type).removeprefix("torch."),
        "" if device is None else str(device).lower(),
        _alignment(_address(buffer)),
    )


def _stride(buffer: Any, data_type: Any) -> tuple[int, ...] | None:
    """Return strides in elements: PyTorch counts those, NumPy and CuPy count bytes."""
    if callable(getattr(buffer, "stride", None)):
        return tuple(int(step) for step in buffer.stride())
    strides, width = getattr(buffer, "strides", None), getattr(data_type, "itemsize", None)
    if strides is None or not width:
        return None
    return tuple(int(step) // int(width) for step in strides)


def _address(buffer: Any) -> int:
    if callable(getattr(buffer, "data_ptr", None)):
        return int(buffer.data_ptr())
    return int(getattr(getattr(buffer, "data", None), "ptr", 0))


def _alignment(address: int) -> int:
    return min(address & -address, _LARGEST_ALIGNMENT)
