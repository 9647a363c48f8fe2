"""The GPU at hand, as the CUDA driver describes it: no frontend, no PyTorch, no context on it."""

from __future__ import annotations

import ctypes
from typing import Any

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.frontend.planning.device_properties import DeviceProperties

_LIBRARY = "libcuda.so.1"
_HINT = "on a machine without a GPU, name one: cudnn-bindgen gpus lists the names"

# CUdevice_attribute.
_ATTRIBUTES = {
    "regs_per_block": 12,
    "multi_processor_count": 16,
    "warp_size": 10,
    "max_shared_memory_per_block": 8,
    "max_shared_memory_per_block_optin": 97,
    "reserved_shared_memory_per_block": 111,
    "max_registers_per_sm": 82,
    "max_ctas_per_sm": 106,
    "max_threads_per_block": 1,
    "max_threads_per_sm": 39,
    "pci_device_id": 34,
    "is_tcc_driver": 35,
    "support_coop_launch": 95,
    "sm_clock_rate_khz": 13,
    "mem_clock_rate_khz": 36,
    "memory_bus_width": 37,
    "l2_cache_size": 38,
}
_BLOCK_SIZE = (2, 3, 4)
_GRID_SIZE = (5, 6, 7)
_MAJOR, _MINOR = 75, 76


def read_here() -> DeviceProperties:
    """Return the properties of the first GPU that CUDA_VISIBLE_DEVICES lets through.

    Raises
    ------
    PlanError
        There is none.
    """
    return _read(_load(), 0)


def read_all() -> list[DeviceProperties]:
    """Return the properties of all GPUs that CUDA_VISIBLE_DEVICES lets through, at least one.

    Raises
    ------
    PlanError
        There is none.
    """
    library, count = _load(), ctypes.c_int()
    _call(library, "cuDeviceGetCount", ctypes.byref(count))
    return [_read(library, ordinal) for ordinal in range(max(count.value, 1))]


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise PlanError(f"expected a GPU, got no NVIDIA driver: {error}", hint=_HINT) from None
    _call(library, "cuInit", 0)
    return library


def _read(library: ctypes.CDLL, ordinal: int) -> DeviceProperties:
    device = ctypes.c_int()
    _call(library, "cuDeviceGet", ctypes.byref(device), ordinal)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _call(library, "cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    version, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    _call(library, "cuDriverGetVersion", ctypes.byref(version))
    _call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    _call(library, "cuDeviceGetName", name, len(name), device)
    x, y, z = map(attribute, _BLOCK_SIZE)
    width, height, depth = map(attribute, _GRID_SIZE)
    return DeviceProperties(
        max_block_size=(x, y, z),
        max_grid_size=(width, height, depth),
        # The driver has no word for the first; cuDNN asks for the second on SM 10.7 only.
        sm_count_origin=0,
        oversized_shared_memory_per_block=0,
        total_global_mem=memory.value,
        cuda_device_id=ordinal,
        device_ver=100 * attribute(_MAJOR) + 10 * attribute(_MINOR),
        driver_ver=version.value,
        device_name=name.value.decode(),
        **{field: attribute(number) for field, number in _ATTRIBUTES.items()},
    )


def attributes_of(device: DeviceProperties) -> dict[int, int]:
    """Return what the driver of such a device says, by CUdevice_attribute."""
    major, minor = divmod(device.sm, 10)
    return {
        **{number: getattr(device, field) for field, number in _ATTRIBUTES.items()},
        **dict(zip(_BLOCK_SIZE, device.max_block_size, strict=True)),
        **dict(zip(_GRID_SIZE, device.max_grid_size, strict=True)),
        _MAJOR: major,
        _MINOR: minor,
    }


def _call(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    try:
        status = library[name](*arguments)
    except AttributeError:
        raise PlanError(f"{_LIBRARY} has no {name}: it is too old", hint=_HINT) from None
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorName(status, ctypes.byref(text))
        what = text.value.decode() if text.value else f"CUresult {status}"
        raise PlanError(f"expected a GPU, got {what} from {name}", hint=_HINT)
