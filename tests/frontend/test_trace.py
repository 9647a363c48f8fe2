"""Engines of the frontend's own, traced into plans of kernels."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import struct
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.documents import TESTS

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.device_code import read_code, read_parameters
from cudnn_bindgen.frontend.planning.deviceless import Answer, Task, make_plans, own_cudnn
from cudnn_bindgen.frontend.planning.gpus import device_properties
from cudnn_bindgen.frontend.planning.options import PlanOptions
from cudnn_bindgen.frontend.planning.trace_words import (
    Addresses,
    Execution,
    LaunchCall,
    MapCall,
    find_launches,
)

X, Y = 7 << 40, 9 << 40
OTHER: Addresses = {1: X + 4096, 2: Y - 4096, None: 13 << 40}


def execution(
    addresses: Addresses, *parameters: bytes, maps: tuple[MapCall, ...] = (), **fields: Any
) -> Execution:
    launch = {"kernel": (0, "k"), "grid": (1, 1, 1), "block": (32, 1, 1), "shared": 0} | fields
    call = LaunchCall(attributes=(), parameters=parameters, **launch)
    return Execution(addresses, 5, [call], list(maps))


def both(make: Any, **fields: Any) -> tuple[Any, Any]:
    first: Addresses = {1: X, 2: Y, None: 11 << 40}
    return find_launches([make(first), make(OTHER)])


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def test_constants_and_addresses_are_told_apart() -> None:
    launches, _ = both(
        lambda at: execution(at, words(3, at[2] + 64), struct.pack("<f", 0.5), words(at[None] - 8))
    )
    assert launches[0].parameters == [words(3, 0), struct.pack("<f", 0.5), words(0)]
    assert launches[0].addresses == [(0, 8, 2, 64), (2, 0, None, -8)]


def test_an_address_may_lie_at_half_a_word() -> None:
    launches, _ = both(lambda at: execution(at, struct.pack("<IQI", 1, at[1], 2)))
    assert launches[0].addresses == [(0, 4, 1, 0)]
    assert launches[0].parameters == [struct.pack("<IQI", 1, 0, 2)]


def test_a_tensor_map_is_found_in_a_parameter() -> None:
    def make(at: Addresses) -> Execution:
        content = bytes([at[1] >> 12 & 0xFF or 1]) * 128
        call = MapCall(at[1] + 32, content, 9, (64, 4), (128,), (64, 1), (1, 1), (0, 3, 0, 0))
        return execution(at, bytes(64) + content, maps=(call,))

    launches, maps = both(make)
    assert launches[0].tensor_maps == [(0, 64, 0)]
    assert launches[0].parameters == [bytes(192)]
    assert (maps[0].source, maps[0].offset, maps[0].dims) == (1, 32, [64, 4])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda at: execution(at, words(at[1] * 3)),
            "in parameter 0 of a kernel, got what changes",
        ),
        (lambda at: execution(at, words(at[1] ^ at[2])), "expected constants and addresses"),
        (lambda at: execution(at, words(0), shared=at[1] >> 12 & 1), "expected the same launches"),
        (
            lambda at: Execution(at, 5),
            "expected the same launches for all addresses, got others or",
        ),
        (
            lambda at: execution(
                at,
                bytes(128),
                maps=(MapCall(5, bytes(128), 9, (1,), (), (1,), (1,), (0, 0, 0, 0)),),
            ),
            "expected tensor maps of operands",
        ),
    ],
)
def test_what_depends_on_something_else_is_refused(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        both(make)


def in_memory(data: bytes) -> tuple[Any, int]:
    buffer = ctypes.create_string_buffer(data, len(data))
    return buffer, ctypes.addressof(buffer)


def test_code_is_as_long_as_its_head_says() -> None:
    code = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 5) + b"12345"
    keep, place = in_memory(code + b"more")
    assert read_code(place) == code
    for other in (b"\x7fELF" + bytes(12), struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 40)):
        keep, place = in_memory(other)
        with pytest.raises(PlanError, match="expected a fat binary of device code"):
            read_code(place)
    del keep


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x7fELF"])
def test_code_for_one_sm_alone_is_understood(code: bytes) -> None:
    with pytest.raises(PlanError, match="expected one ELF file in a fat binary"):
        read_parameters(code)


# What follows compiles with NVIDIA's compiler for CuTe DSL.
NEEDED = ("cudnn", "cutlass", "tvm_ffi", "torch")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
ATTENTION = TESTS / "data" / "plans" / "cudnn-9.19-sm90" / "sdpa_dense.json"
OWN = TESTS / "data" / "own-engines"
# Of a GPU: what the heuristics take for 512, for 128 elements a head, and what is asked for.
CASES = [("h200", "dense", 512, None), ("b200", "dense", 128, None), ("h200", "thd", 512, 20517)]


def attention(file: str, head: int) -> bytes:
    """Attention over heads of this size, which lie side by side in memory."""
    graph = json.loads((OWN / f"{file}.json").read_text())
    for item in graph["tensors"]:
        if 512 in item["dim"]:
            item["dim"] = [head if extent == 512 else extent for extent in item["dim"]]
            item["stride"] = [max(1, stride * head // 512) for stride in item["stride"]]
    return json.dumps(graph).encode()


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.parametrize(("gpu", "file", "head", "asked"), CASES)
def test_attention_of_the_frontends_own(gpu: str, file: str, head: int, asked: int | None) -> None:
    if int(version("nvidia-cudnn-frontend").split(".")[1]) < 32:
        pytest.skip("the frontend has no such engines")
    task = Task(
        graph=attention(file, head),
        file="a.json",
        properties=device_properties(gpu),
        options=PlanOptions(engine=asked),
    )
    answer = make_plans({0: task}, own_cudnn())[0]
    assert isinstance(answer, Answer), answer
    plan = read_graph(answer.plan).plan
    assert plan is not None
    kernels = plan.kernels
    assert kernels is not None, plan.evidence
    assert (kernels.engine, kernels.sm) == ({90: 20517, 100: 20511}[plan.sm], plan.sm)
    # The engine takes lengths, and looks at no ragged offset.
    offsets = {4, 5, 6, 7, 8} if file == "thd" else set()
    assert kernels.sources == set(plan.variant_pack_uids) - offsets
    assert all(binary[:4] == b"\x50\xed\x55\xba" for binary in kernels.binaries)
    for launch in kernels.launches:
        assert launch.kernel.encode() in kernels.binaries[launch.binary]
        assert launch.block[0] % 32 == 0


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_only_cudnn_is_asked() -> None:
    task = Task(
        graph=attention("dense", 512),
        properties=device_properties("h200"),
        options=PlanOptions(only_cudnn=True),
    )
    answer = make_plans({0: task}, own_cudnn())[0]
    assert isinstance(answer, Answer), answer
    plan = read_graph(answer.plan).plan
    assert plan is not None
    assert plan.kernels is None


def test_the_graphs_of_others_are_planned_without_them(tmp_path: Path) -> None:
    # Imported here it would load the real cuDNN, where other tests have the stand-in.
    if importlib.util.find_spec("cudnn") is None or own_cudnn() is None:
        pytest.skip("nvidia-cudnn-jit-cu13 is not installed")
    task = Task(graph=ATTENTION.read_bytes(), properties=device_properties("h200"))
    answer = make_plans({0: task}, own_cudnn())[0]
    assert isinstance(answer, Answer)
    plan = read_graph(answer.plan).plan
    assert plan is not None
    assert plan.kernels is None
