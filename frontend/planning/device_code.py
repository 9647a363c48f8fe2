"""Device code as compilers leave it in an object: how long it is, and what its kernels take."""

from __future__ import annotations

import ctypes
import io
import struct
from collections.abc import Mapping

from cudnn_bindgen.codegen.errors import PlanError

# A fat binary: magic, version, bytes of this header and of what follows (CUDA's fatbinary.h).
_HEADER = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50
_MOST = 1 << 30
_ELF = b"\x7fELF"
# What .nv.info says of a parameter: index, ordinal, offset in bytes, size in bytes in bits 18 on.
_PARAMETER = struct.Struct("<IHHI")
_PARAMETER_INFO = 0x17
_HAS_PAYLOAD = 4


def read_code(address: int) -> bytes:
    """Return the fat binary that is in memory at an address.

    Raises
    ------
    PlanError
        There is something else.
    """
    magic, _, header, size = _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    if magic != _MAGIC or not 0 < size < _MOST:
        raise PlanError(f"expected a fat binary of device code, got what begins with {magic:#x}")
    return ctypes.string_at(address, header + size)


def read_parameters(code: bytes) -> Mapping[str, tuple[int, ...]]:
    """Return the sizes in bytes of the parameters of each kernel.

    Raises
    ------
    PlanError
        The code is not as compilers write it: compressed, or for more than one SM.
    """
    # Not above: few graphs need it, and Trace.prepare says if it is missing.
    from elftools.elf.elffile import ELFFile

    place = code.find(_ELF)
    if place < 0 or code.find(_ELF, place + 1) >= 0:
        raise PlanError("expected one ELF file in a fat binary of device code, got none or several")
    found = {}
    for section in ELFFile(io.BytesIO(code[place:])).iter_sections():
        if section.name.startswith(".nv.info."):
            found[section.name.removeprefix(".nv.info.")] = _sizes(section.data())
    return found


def _sizes(info: bytes) -> tuple[int, ...]:
    sizes, place = {}, 0
    while place + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, place)
        place += 4
        if kind != _HAS_PAYLOAD:
            continue
        if attribute == _PARAMETER_INFO:
            _, ordinal, _, bits = _PARAMETER.unpack_from(info, place)
            sizes[ordinal] = bits >> 18
        place += size
    return tuple(sizes[ordinal] for ordinal in sorted(sizes))
