"""A device as cuDNN describes it: the JSON that `cudnn.create_device_properties` takes.

cuDNN documents it nowhere; `cudnn.create_device_properties(0).serialize()` writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.dialects.decode import check, decode_json
from cudnn_bindgen.codegen.read.source import read_file

_MAX_BYTES = 64 * 2**10

Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class DeviceProperties(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The fields in cuDNN's order; those with a default are unknown to cuDNN 9.19."""

    max_grid_size: tuple[Count, Count, Count]
    max_block_size: tuple[Count, Count, Count]
    regs_per_block: Count
    multi_processor_count: Count
    sm_count_origin: Number = 0
    warp_size: Count
    max_shared_memory_per_block: Count
    max_shared_memory_per_block_optin: Count
    oversized_shared_memory_per_block: Number = 0
    reserved_shared_memory_per_block: Number
    max_registers_per_sm: Count = msgspec.field(name="maxRegistersPerSM")
    max_ctas_per_sm: Count = msgspec.field(name="maxCtasPerSM")
    max_threads_per_block: Count
    max_threads_per_sm: Count = msgspec.field(name="maxThreadsPerSM")
    pci_device_id: Number
    is_tcc_driver: Number
    support_coop_launch: Number
    total_global_mem: Bytes
    sm_clock_rate_khz: Number = msgspec.field(name="smClockRateKHz")
    mem_clock_rate_khz: Number = msgspec.field(name="memClockRateKHz")
    memory_bus_width: Number = 0
    l2_cache_size: Number
    cuda_device_id: Number
    device_ver: Annotated[int, Meta(ge=100, le=9990, multiple_of=10)]
    driver_ver: Count
    device_name: Annotated[str, Meta(min_length=1, max_length=256)]

    @property
    def sm(self) -> int:
        """As 90 for 9.0."""
        return self.device_ver // 10

    @property
    def text(self) -> str:
        """The JSON, as cuDNN writes it."""
        return msgspec.json.encode(self).decode()


def read_properties(path: Path) -> DeviceProperties:
    """Read a file of device properties.

    Raises
    ------
    PlanError
        It is no such file.
    OSError
        It cannot be read.
    """
    try:
        document = decode_json(read_file(path, _MAX_BYTES), "device properties")
        return check(document, DeviceProperties)
    except GraphFormatError as error:
        found = PlanError(
            error.problem,
            path=error.path,
            hint="cudnn-bindgen gpus --here writes such a file on the machine with the GPU",
        )
        found.file = str(path)
        raise found from None
