"""The table of GPUs, and what `--for` takes: names from it, SMs with their number, files.

What the numbers decide and where they come from: docs/planning.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.text import did_you_mean, shorten
from cudnn_bindgen.frontend.planning.device_properties import (
    Bytes,
    Count,
    DeviceProperties,
    read_properties,
)
from cudnn_bindgen.frontend.planning.driver import read_here

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LIST = "cudnn-bindgen gpus lists all names; a file of device properties stands for any other GPU"

# What no table can know. CUDA 13.0 is the first driver that knows all of these GPUs. Where a GPU is
# on its bus, and which one of a process, makes no difference.
_DRIVER = 13000
_PLACE = 0

_MOST_SMS = 1000

_SM = re.compile(r"sm_?(\d{2,3}):(\d{1,4})", re.IGNORECASE)


# What stands for the GPU at hand.
_THIS = "this"

Field: TypeAlias = Literal["sm_count", "memory", "clock", "memory_clock", "bus", "l2"]


class Product(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row of the table: clocks in MHz, memory in bytes, its bus in bits, L2 in KiB.

    `sources` are keys of the table of sources; `unsure` names the numbers that none of them proves.
    """

    device: str
    sm: int
    sm_count: Count
    memory: Bytes
    clock: Count
    memory_clock: Count
    bus: Count
    l2: Count
    sources: str
    unsure: tuple[Field, ...] = ()


class _Architecture(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is the same for each GPU of an SM."""

    shared_memory_optin: int
    blocks: int
    threads: int


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is in gpus.toml."""

    sources: dict[str, str]
    aliases: dict[str, str]
    architectures: dict[str, _Architecture]
    gpus: dict[str, Product]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device that plans are made for.

    Attributes
    ----------
    name
        From the table; else what `--for` was given.
    sm
        As 90 for 9.0.
    sm_count
        How many multiprocessors. A plan runs where both are the same, nowhere else.
    properties
        JSON text for `cudnn.create_device_properties`.
    merged
        Names that were asked for as well and have the same SM and number of SMs.
    """

    name: str
    sm: int
    sm_count: int
    properties: str
    merged: tuple[str, ...] = ()


@cache
def load_table() -> Table:
    """Return the table of GPUs."""
    text = Path(__file__).with_name("gpus.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Table)


def device_properties(name: str) -> str:
    """Return the JSON text for a name in the table, in any spelling of it.

    Raises
    ------
    PlanError
        There is no such name.
    """
    return _named(name).properties


def describe_gpu(name: str, properties: DeviceProperties) -> Gpu:
    """Return the device that has these properties."""
    return Gpu(name, properties.sm, properties.multi_processor_count, properties.text)


def find_gpus(wanted: Iterable[str]) -> tuple[Gpu, ...]:
    """Return what lists such as ``h100,sm_90:114,this,gpu.json`` stand for, in order.

    Of GPUs with one SM and number of SMs the first is kept, because each would take the other's
    plan.

    Raises
    ------
    PlanError
        A name is not known, a file is none of device properties, there is no GPU for ``this``, or
        nothing is asked for.
    OSError
        A file cannot be read.
    """
    found: dict[tuple[int, int], Gpu] = {}
    for item in _split(wanted):
        gpu = _find(item)
        key = (gpu.sm, gpu.sm_count)
        first = found.setdefault(key, gpu)
        if gpu.name != first.name:
            names = dict.fromkeys((*first.merged, gpu.name))
            found[key] = replace(first, merged=tuple(names))
    if not found:
        raise PlanError("--for: expected the name of a GPU, got none", hint=_LIST)
    return tuple(found.values())


def _split(wanted: Iterable[str]) -> Iterator[str]:
    for text in wanted:
        yield from filter(None, (item.strip() for item in text.split(",")))


def _find(item: str) -> Gpu:
    if item.lower() == _THIS:
        return describe_gpu(_THIS, read_here())
    if "/" in item or item.endswith(".json"):
        return describe_gpu(item, read_properties(Path(item)))
    match = _SM.fullmatch(item)
    return _counted(int(match[1]), int(match[2])) if match else _named(item)


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]", "", name.lower())


@cache
def _names() -> dict[str, str]:
    """Return each name without case and separators → the one in the table."""
    table = load_table()
    both = {**{name: name for name in table.gpus}, **table.aliases}
    return {_plain(name): gpu for name, gpu in both.items()}


def _named(name: str) -> Gpu:
    known = _names()
    gpu = known.get(_plain(name))
    if gpu is not None:
        return describe_gpu(gpu, _properties(load_table().gpus[gpu]))
    raise PlanError(
        f"--for: expected the name of a GPU, got {shorten(name)}"
        + did_you_mean(_plain(name), known),
        hint=_LIST,
    )


def _counted(sm: int, count: int) -> Gpu:
    """Return the first GPU in the table with this SM and number of SMs, or one like them."""
    table = load_table()
    alike = {name: gpu for name, gpu in table.gpus.items() if gpu.sm == sm}
    if not alike:
        raise PlanError(
            f"--for: expected an SM of {', '.join(table.architectures)}, got {sm}", hint=_LIST
        )
    if not 0 < count <= _MOST_SMS:
        raise PlanError(f"--for: expected 1 to {_MOST_SMS} SMs, got {count}", hint=_LIST)
    for name, gpu in alike.items():
        if gpu.sm_count == count:
            return describe_gpu(name, _properties(gpu))
    typical = next(iter(alike.values()))
    name = f"sm_{sm}:{count}"
    like = msgspec.structs.replace(typical, device=name, sm_count=count)
    return describe_gpu(name, _properties(like))


def _properties(gpu: Product) -> DeviceProperties:
    architecture = load_table().architectures[str(gpu.sm)]
    return DeviceProperties(
        max_grid_size=(2**31 - 1, 65535, 65535),
        max_block_size=(1024, 1024, 64),
        regs_per_block=65536,
        multi_processor_count=gpu.sm_count,
        sm_count_origin=0,
        warp_size=32,
        max_shared_memory_per_block=49152,
        max_shared_memory_per_block_optin=architecture.shared_memory_optin,
        oversized_shared_memory_per_block=0,
        reserved_shared_memory_per_block=1024,
        max_registers_per_sm=65536,
        max_ctas_per_sm=architecture.blocks,
        max_threads_per_block=1024,
        max_threads_per_sm=architecture.threads,
        pci_device_id=_PLACE,
        is_tcc_driver=0,
        support_coop_launch=1,
        total_global_mem=gpu.memory,
        sm_clock_rate_khz=gpu.clock * 1000,
        mem_clock_rate_khz=gpu.memory_clock * 1000,
        memory_bus_width=gpu.bus,
        l2_cache_size=gpu.l2 * 1024,
        cuda_device_id=_PLACE,
        device_ver=10 * gpu.sm,
        driver_ver=_DRIVER,
        device_name=gpu.device,
    )
