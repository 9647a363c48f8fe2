"""What several executions of an engine have in common: the launches of its kernel plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.kernel_plan import KernelLaunch, TensorMap

# Addresses of operands lie further apart than any of them is long.
APART = 1 << 40
_WORD = 8

# Operands by uid, the workspace as None → address.
Addresses = Mapping[int | None, int]


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """A call that launches a kernel: `kernel` is the index of its binary, and its name."""

    kernel: tuple[int, str]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    attributes: tuple[tuple[int, bytes], ...]
    parameters: tuple[bytes, ...]

    @property
    def shape(self) -> tuple[object, ...]:
        """All but the parameters' bytes."""
        sizes = tuple(map(len, self.parameters))
        return self.kernel, self.grid, self.block, self.shared, self.attributes, sizes


@dataclass(frozen=True, slots=True)
class MapCall:
    """A call that encodes a tensor map; `content` is what stands for the map in parameters."""

    address: int
    content: bytes
    data_type: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    modes: tuple[int, int, int, int]

    @property
    def shape(self) -> tuple[object, ...]:
        """All but address and content."""
        sizes = (self.dims, self.strides, self.box, self.element_strides)
        return self.data_type, sizes, self.modes


@dataclass(slots=True)
class Execution:
    """What an engine did when it was executed once."""

    addresses: Addresses
    stream: int
    launches: list[LaunchCall] = field(default_factory=list)
    maps: list[MapCall] = field(default_factory=list)


def find_launches(
    executions: Sequence[Execution],
) -> tuple[list[KernelLaunch], list[TensorMap]]:
    """Return the launches and tensor maps of all `executions`, which had different addresses.

    Raises
    ------
    PlanError
        They differ in more than addresses.
    """
    shapes = [
        ([call.shape for call in each.launches], [call.shape for call in each.maps])
        for each in executions
    ]
    if not shapes[0][0] or any(shape != shapes[0] for shape in shapes):
        raise PlanError("expected the same launches for all addresses, got others or none")
    maps = []
    for calls in zip(*(each.maps for each in executions), strict=True):
        source = _find_source([call.address for call in calls], executions)
        if source is None:
            raise PlanError("expected tensor maps of operands, got one of another address")
        first = calls[0]
        maps.append(
            TensorMap(
                first.data_type,
                list(first.dims),
                list(first.strides),
                list(first.box),
                list(first.element_strides),
                *(*first.modes, *source),
            )
        )
    launches = [
        _launch(calls, executions)
        for calls in zip(*(each.launches for each in executions), strict=True)
    ]
    return launches, maps


def _launch(calls: Sequence[LaunchCall], executions: Sequence[Execution]) -> KernelLaunch:
    parameters, addresses, maps = [], [], []
    for index, contents in enumerate(zip(*(call.parameters for call in calls), strict=True)):
        left = [bytearray(content) for content in contents]
        for place, number in _find_maps(contents, executions):
            maps.append((index, place, number))
            _clear(left, place, len(executions[0].maps[number].content))
        for place, source in _find_addresses(left, executions):
            addresses.append((index, place, *source))
            _clear(left, place, _WORD)
        if any(content != left[0] for content in left):
            raise PlanError(
                f"expected constants and addresses in parameter {index} of a kernel, got what "
                "changes otherwise from call to call"
            )
        parameters.append(bytes(left[0]))
    first = calls[0]
    return KernelLaunch(
        *first.kernel,
        first.grid,
        first.block,
        first.shared,
        list(first.attributes),
        parameters,
        addresses,
        maps,
    )


def _clear(contents: Sequence[bytearray], place: int, size: int) -> None:
    for content in contents:
        content[place : place + size] = bytes(size)


def _find_maps(
    contents: Sequence[bytes], executions: Sequence[Execution]
) -> Iterator[tuple[int, int]]:
    """Yield where a parameter holds a tensor map, and its number."""
    for number, call in enumerate(executions[0].maps):
        place = contents[0].find(call.content)
        if place >= 0 and all(
            content.startswith(each.maps[number].content, place)
            for content, each in zip(contents, executions, strict=True)
        ):
            yield place, number


def _find_addresses(
    contents: Sequence[bytearray], executions: Sequence[Execution]
) -> Iterator[tuple[int, tuple[int | None, int]]]:
    place = 0
    while place + _WORD <= len(contents[0]):
        words = [int.from_bytes(each[place : place + _WORD], "little") for each in contents]
        source = _find_source(words, executions) if len(set(words)) > 1 else None
        if source is not None:
            yield place, source
        place += _WORD if source is not None else _WORD // 2


def _find_source(
    words: Sequence[int], executions: Sequence[Execution]
) -> tuple[int | None, int] | None:
    """Return whose address all words are, and how many bytes lie between."""
    for source in executions[0].addresses:
        offsets = {
            word - each.addresses[source] for word, each in zip(words, executions, strict=True)
        }
        if len(offsets) == 1 and abs(offset := offsets.pop()) < APART // 2:
            return source, offset
    return None
