"""The stand-in libraries themselves: what they compute, and the mistakes that they must notice."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.standin import (
    CAPTURE_GLOBAL,
    CAPTURE_RELAXED,
    CAPTURE_THREAD_LOCAL,
    Standin,
    build,
    expected_outputs,
    plan_text,
    rounded,
)

SCALAR_CODES = {"float": "f", "half": "e", "double": "d", "int32": "i", "int64": "q"}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    return Standin.load(tmp_path_factory.mktemp("standin"))


@pytest.fixture
def standin(library: Standin) -> Iterator[Standin]:
    library.reset()
    with library.forgetting(), library.context():
        yield library
    library.reset()


def pointer(value: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(value)


def on_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class Cudnn:
    """The calls of a caller of cuDNN, each returning its status."""

    def __init__(self, standin: Standin) -> None:
        self.library = standin.cudnn
        self.keep: list[object] = []

    def handle(self) -> int:
        handle = ctypes.c_void_p()
        assert self.library.cudnnCreate(ctypes.byref(handle)) == 0
        return handle.value or 0

    def descriptor(self, kind: int) -> int:
        descriptor = ctypes.c_void_p()
        assert self.library.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor)) == 0
        return descriptor.value or 0

    def set(self, descriptor: int, name: int, kind: int, count: int, items: Any) -> int:
        return int(
            self.library.cudnnBackendSetAttribute(
                pointer(descriptor), name, kind, ctypes.c_int64(count), items
            )
        )

    def finalize(self, descriptor: int) -> int:
        return int(self.library.cudnnBackendFinalize(pointer(descriptor)))

    def destroy(self, descriptor: int) -> int:
        return int(self.library.cudnnBackendDestroyDescriptor(pointer(descriptor)))

    def plan(self, handle: int, text: str, expected: int = 0) -> int:
        plan = self.descriptor(5)
        assert self.set(plan, 400, 0, 1, ctypes.byref(pointer(handle))) == 0
        assert self.set(plan, 405, 24, len(text) + 1, text.encode()) == 0
        assert self.finalize(plan) == expected
        return plan

    def pack(self, operands: dict[int, int | None], workspace: int = 0, expected: int = 0) -> int:
        pack = self.descriptor(16)
        n = len(operands)
        assert self.set(pack, 1000, 3, n, (ctypes.c_int64 * n)(*operands)) == 0
        assert self.set(pack, 1001, 6, n, (ctypes.c_void_p * n)(*operands.values())) == 0
        assert self.set(pack, 1003, 6, 1, ctypes.byref(pointer(workspace))) == 0
        assert self.finalize(pack) == expected
        return pack

    def execute(self, handle: int, plan: int, pack: int) -> int:
        return int(self.library.cudnnBackendExecute(pointer(handle), pointer(plan), pointer(pack)))

    def bytes(self, value: bytes) -> int:
        """Return the address of bytes that live as long as this object."""
        buffer = ctypes.create_string_buffer(value, max(1, len(value)))
        self.keep.append(buffer)
        return ctypes.addressof(buffer)

    def array(self, code: str, values: list[float]) -> int:
        return self.bytes(struct.pack(f"{len(values)}{code}", *values))

    def last_error(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.library.cudnnGetLastErrorString(text, ctypes.c_size_t(256))
        return text.value.decode()


@pytest.fixture
def cudnn(standin: Standin) -> Cudnn:
    return Cudnn(standin)


class Small:
    """A handle, and a plan that copies one input to one output."""

    def __init__(self, cudnn: Cudnn, workspace: int = 0, count: int = 2) -> None:
        self.cudnn = cudnn
        self.handle = cudnn.handle()
        self.plan = cudnn.plan(
            self.handle, plan_text(inputs=[1], outputs=[2], count=count, workspace=workspace)
        )
        self.operands: dict[int, int | None] = {
            1: cudnn.array("d", [1.5] * count),
            2: cudnn.array("d", [0.0] * count),
        }

    def execute(self, workspace: int = 0) -> int:
        pack = self.cudnn.pack(self.operands, workspace)
        status = self.cudnn.execute(self.handle, self.plan, pack)
        self.cudnn.destroy(pack)
        return status

    def output(self) -> float:
        return ctypes.c_double.from_address(self.operands[2] or 0).value


@pytest.fixture
def small(cudnn: Cudnn) -> Small:
    return Small(cudnn)


# Building and loading


def test_build_is_idempotent_and_safe_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: build(tmp_path), range(2)))
    before = [path.stat().st_mtime_ns for path in results[0]]
    assert [path.stat().st_mtime_ns for path in build(tmp_path)] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libcuda.so.1", "libcudnn.so.9"]


@pytest.mark.parametrize("name", ["libcudnn.so.9", "libcuda.so.1"])
def test_found_by_soname(standin: Standin, name: str) -> None:
    again = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    assert again._handle in (standin.cudnn._handle, standin.driver._handle)


def test_without_a_driver_only_the_version_works(standin: Standin) -> None:
    program = (
        "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1])\n"
        "print(lib.cudnnGetVersion(), lib.cudnnCreate(ctypes.byref(ctypes.c_void_p())))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", program, standin.paths.cudnn],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["91900", "1001"]


# Computing


def test_every_kind_of_operand(standin: Standin, cudnn: Cudnn) -> None:
    count, workspace_bytes = 5, 64
    inputs = [[0.1 * i + j for i in range(count)] for j in range(3)]
    parts = [[rounded(0.3 * i, "float") for i in range(count)], [-2.0] * count]
    values = {
        "float": 0.1,
        "half": -0.3,
        "bfloat16": 1.7,
        "double": 0.1,
        "int32": -7,
        "int64": 2**40,
    }
    scalars = [(6 + n, data_type) for n, data_type in enumerate(values)]
    text = plan_text(
        inputs=[1, -2, 0],
        outputs=[4, 2**62],
        parts=[20, 21],
        scalars=scalars,
        other=[12],
        workspace=workspace_bytes,
        count=count,
    )
    operands: dict[int, int | None] = {12: cudnn.bytes(b"")}
    for uid, values_of in zip([1, -2, 0], inputs, strict=True):
        operands[uid] = cudnn.array("d", values_of)
    for uid, values_of in zip([20, 21], parts, strict=True):
        operands[uid] = cudnn.array("f", values_of)
    for uid in [4, 2**62]:
        operands[uid] = cudnn.array("d", [0.0] * count)
    for uid, data_type in scalars:
        code = SCALAR_CODES.get(data_type)
        if code is None:
            bits = struct.pack("f", rounded(values[data_type], data_type))[2:]
        else:
            bits = struct.pack(code, values[data_type])
        operands[uid] = cudnn.bytes(bits)
    workspace = cudnn.bytes(bytes(workspace_bytes + 1))

    handle = cudnn.handle()
    plan = cudnn.plan(handle, text)
    assert cudnn.execute(handle, plan, cudnn.pack(operands, workspace)) == 0
    expected = expected_outputs(
        inputs, [rounded(value, data_type) for data_type, value in values.items()], parts, 2
    )
    for uid, values_of in zip([4, 2**62], expected, strict=True):
        written = (ctypes.c_double * count).from_address(operands[uid] or 0)
        assert list(written) == values_of
    assert ctypes.string_at(workspace, workspace_bytes + 1) == b"\xa5" * workspace_bytes + b"\0"
    assert standin.violations() == 0


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 6e-8, 6.1e-5, 65504.0, float("inf")])
def test_half(cudnn: Cudnn, value: float) -> None:
    handle = cudnn.handle()
    plan = cudnn.plan(handle, plan_text(outputs=[1], scalars=[(2, "half")]))
    output = cudnn.array("d", [0.0])
    pack = cudnn.pack({1: output, 2: cudnn.bytes(struct.pack("e", value))})
    assert cudnn.execute(handle, plan, pack) == 0
    [[expected]] = expected_outputs([], [rounded(value, "half")], [], 1)
    assert ctypes.c_double.from_address(output).value == expected


# Plans


def test_workspace_size_and_text_can_be_read(cudnn: Cudnn) -> None:
    text = plan_text(workspace=4096)
    plan = cudnn.plan(cudnn.handle(), text)
    size, count = ctypes.c_int64(), ctypes.c_int64()
    get = cudnn.library.cudnnBackendGetAttribute
    one = ctypes.c_int64(1)
    assert get(pointer(plan), 402, 3, one, ctypes.byref(count), ctypes.byref(size)) == 0
    assert (size.value, count.value) == (4096, 1)
    assert get(pointer(plan), 402, 6, one, ctypes.byref(count), ctypes.byref(size)) == 2010
    assert get(pointer(plan), 405, 24, ctypes.c_int64(0), ctypes.byref(count), None) == 0
    assert count.value == len(text) + 1


def test_plan_errors(standin: Standin, cudnn: Cudnn) -> None:
    handle = cudnn.handle()
    plan = cudnn.descriptor(5)
    assert cudnn.finalize(plan) == 2000
    assert "handle" in cudnn.last_error()
    assert cudnn.last_error() == ""
    assert cudnn.set(plan, 400, 0, 1, ctypes.byref(pointer(handle))) == 0
    assert cudnn.finalize(plan) == 2000
    text = plan_text()
    assert cudnn.set(plan, 405, 24, len(text), text.encode()) == 2000, "the NUL is missing"
    assert cudnn.set(plan, 405, 3, len(text) + 1, text.encode()) == 2010
    assert cudnn.set(plan, 402, 3, 1, ctypes.byref(ctypes.c_int64(1))) == 2000
    assert cudnn.set(plan, 405, 24, 1, None) == 2002

    cudnn.plan(handle, plan_text(version=92700), expected=1003)
    standin.set_version(92700)
    assert cudnn.library.cudnnGetVersion() == 92700
    cudnn.plan(handle, plan_text(version=92700))
    standin.set_version(91900)
    cudnn.plan(handle, plan_text(sm=1000), expected=3007)
    standin.set_device_sm(0, 10, 0)
    finished = cudnn.plan(handle, plan_text(sm=1000))
    standin.set_device_sm(0, 9, 0)
    assert cudnn.finalize(finished) == 2000, "finalized twice"
    assert cudnn.set(finished, 405, 24, len(text) + 1, text.encode()) == 2000
    cudnn.plan(handle, plan_text().replace("standin", "real"), expected=3000)
    cudnn.plan(handle, plan_text(inputs=[1], outputs=[1]), expected=2000)
    cudnn.plan(handle, plan_text(scalars=[(1, "complex")]), expected=2000)
    cudnn.plan(handle, plan_text(inputs=[1, 2])[:-4], expected=2000)
    spaced = plan_text(inputs=[1], scalars=[(2, "float")]).replace(",", " , ").replace(":", " : ")
    cudnn.plan(handle, spaced)


def test_unknown_descriptor_type(cudnn: Cudnn) -> None:
    descriptor = ctypes.c_void_p()
    create = cudnn.library.cudnnBackendCreateDescriptor
    assert create(3, ctypes.byref(descriptor)) == 3000


# Packs and execution


def test_pack_errors(standin: Standin, cudnn: Cudnn, small: Small) -> None:
    a, b = small.operands.values()
    pack = cudnn.descriptor(16)
    ids = (ctypes.c_int64 * 2)(1, 1)
    assert cudnn.set(pack, 1000, 6, 2, ids) == 2010
    assert cudnn.set(pack, 1001, 3, 2, ids) == 2010
    assert cudnn.set(pack, 1003, 6, 2, ids) == 2000
    assert cudnn.set(pack, 405, 24, 2, ids) == 2000
    assert cudnn.set(pack, 1000, 3, 2, ids) == 0
    assert cudnn.finalize(pack) == 2000, "two uids, no pointers"
    assert cudnn.set(pack, 1001, 6, 2, (ctypes.c_void_p * 2)(a, b)) == 0
    assert cudnn.finalize(pack) == 2009
    assert cudnn.execute(small.handle, small.plan, pack) == 2004
    finished = cudnn.pack(small.operands)
    assert cudnn.set(finished, 1000, 3, 2, ids) == 2000, "read-only after finalize"
    assert cudnn.execute(small.handle, cudnn.descriptor(5), finished) == 2004

    for operands, status in (
        ({1: a}, 2000),
        ({1: a, 3: b}, 2000),
        ({1: a, 2: b, 3: b}, 2000),
        ({1: a, 2: None}, 2002),
        ({1: a, 2: (b or 0) + 4}, 2003),
    ):
        pack = cudnn.pack(operands)
        assert cudnn.execute(small.handle, small.plan, pack) == status, operands
    assert cudnn.execute(0, small.plan, finished) == 2002
    assert cudnn.execute(small.handle, finished, small.plan) == 2000
    assert standin.calls("cudnnBackendExecute") == 0
    assert small.execute() == 0
    assert small.output() == 1.5


def test_an_operand_that_is_not_read_may_be_null(standin: Standin, cudnn: Cudnn) -> None:
    handle = cudnn.handle()
    plan = cudnn.plan(handle, plan_text(outputs=[2], other=[3]))
    output = cudnn.array("d", [1.0])
    assert cudnn.execute(handle, plan, cudnn.pack({2: output, 3: None})) == 0
    assert cudnn.execute(handle, plan, cudnn.pack({2: None, 3: output})) == 2002


def test_workspace_errors(standin: Standin, cudnn: Cudnn) -> None:
    small = Small(cudnn, workspace=512)
    assert small.execute(0) == 2002
    block = standin.alloc(512)
    assert small.execute(block) == 0
    assert standin.violations() == 0
    assert small.execute(block + 8) == 2000, "eight bytes too few"
    standin.free(block)
    assert small.execute(block) == 2000, "freed"
    with standin.context(1):
        foreign = standin.alloc(512)
    assert small.execute(foreign) == 2000, "of another device"
    assert standin.violations("memory") == standin.violations() == 3


def test_contexts(standin: Standin, cudnn: Cudnn, small: Small) -> None:
    assert on_thread(standin.current_context) is None, "a new thread has no context"
    other = standin.new_context()
    with standin.context(1):
        assert small.execute() == 2000
        handle = cudnn.handle()
        assert cudnn.execute(handle, small.plan, cudnn.pack(small.operands)) == 2000
    current = standin.current_context()
    standin.set_context(other)
    assert small.execute() == 2000
    standin.set_context(None)
    assert cudnn.library.cudnnCreate(ctypes.byref(ctypes.c_void_p())) == 1001
    standin.set_context(current)
    assert small.execute() == 0


def test_a_shared_handle_is_noticed(standin: Standin, small: Small) -> None:
    standin.set_execute_delay(0.05)
    context = standin.current_context()
    barrier = threading.Barrier(2)

    def execute(_: int) -> int:
        standin.set_context(context)
        barrier.wait()
        return small.execute()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(execute, range(2))) == [0, 0]
    assert standin.violations("shared") == 1
    assert standin.violations() == 1


@pytest.mark.parametrize("what", ["handle", "plan", "pack"])
def test_use_after_destroy(standin: Standin, cudnn: Cudnn, small: Small, what: str) -> None:
    pack = cudnn.pack(small.operands)
    alive = standin.live(what)
    if what == "handle":
        destroy = cudnn.library.cudnnDestroy
        victim = small.handle
    else:
        destroy = cudnn.library.cudnnBackendDestroyDescriptor
        victim = small.plan if what == "plan" else pack
    assert destroy(pointer(victim)) == 0
    assert standin.live(what) == alive - 1
    assert cudnn.execute(small.handle, small.plan, pack) == 2000
    assert standin.violations("destroyed") == 1
    assert destroy(pointer(victim)) == 2000
    assert standin.violations() == 2


def test_destroy_while_executing(standin: Standin, cudnn: Cudnn, small: Small) -> None:
    standin.set_execute_delay(0.2)
    context = standin.current_context()

    def execute() -> int:
        standin.set_context(context)
        return small.execute()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(execute)
        while standin.live("pack") == 0 or standin.calls("cudnnBackendFinalize") < 2:
            assert not running.done()
        threading.Event().wait(0.05)
        assert cudnn.destroy(small.plan) == 0
        running.result()
    assert standin.violations("destroyed") == 1


# Streams


def test_stream_addresses_come_back_but_ids_do_not(standin: Standin, small: Small) -> None:
    first, second = standin.stream(), standin.stream()
    first_id = standin.stream_id(first)
    library = small.cudnn.library
    assert library.cudnnSetStream(pointer(small.handle), pointer(first)) == 0
    got = ctypes.c_void_p()
    assert library.cudnnGetStream(pointer(small.handle), ctypes.byref(got)) == 0
    assert got.value == first
    standin.destroy_stream(second)
    standin.destroy_stream(first)
    assert small.execute() == 5001, "the stream is gone"
    assert library.cudnnSetStream(pointer(small.handle), pointer(first)) == 2000
    again = standin.stream()
    assert again == first
    assert standin.stream_id(again) != first_id
    assert small.execute() == 0
    assert standin.violations("stale stream") == 1
    assert standin.violations() == 0
    standin.destroy_stream(again)


def test_ids_of_the_default_streams(standin: Standin) -> None:
    context = standin.current_context()

    def ids() -> list[int]:
        standin.set_context(context)
        return [standin.stream_id(stream) for stream in range(3)]

    here, there = ids(), on_thread(ids)
    assert here == ids()
    assert here[0] == here[1] == there[0] == there[1]
    assert len({here[0], here[2], there[2]}) == 3
    with standin.context(1):
        assert standin.stream_id(0) != here[0]


def test_context_of_a_stream(standin: Standin, small: Small) -> None:
    with standin.context(1) as context:
        stream = standin.stream()
    found = ctypes.c_void_p()
    assert standin.driver.cuStreamGetCtx(pointer(stream), ctypes.byref(found)) == 0
    assert found.value == context
    library = small.cudnn.library
    assert library.cudnnSetStream(pointer(small.handle), pointer(stream)) == 2007
    assert standin.driver.cuMemsetD8Async(pointer(1), 0, ctypes.c_size_t(0), pointer(stream)) == 400
    standin.destroy_stream(stream)
    assert standin.driver.cuStreamGetCtx(pointer(stream), ctypes.byref(found)) == 400


# Captures


def captured(standin: Standin, small: Small, mode: int) -> int:
    stream = standin.stream()
    small.cudnn.library.cudnnSetStream(pointer(small.handle), pointer(stream))
    standin.begin_capture(stream, mode)
    return stream


def test_captured_work_does_not_run(standin: Standin, small: Small) -> None:
    block = standin.alloc(16)
    stream = captured(standin, small, CAPTURE_GLOBAL)
    assert standin.is_capturing(stream)
    assert not standin.is_capturing(0)
    assert small.execute() == 0
    size, source = ctypes.c_size_t(16), small.cudnn.bytes(bytes(16))
    memset, copy = standin.driver.cuMemsetD8Async, standin.driver.cuMemcpyHtoDAsync_v2
    assert memset(pointer(block), 1, size, pointer(stream)) == 0
    assert copy(pointer(block), pointer(source), size, pointer(stream)) == 0
    assert standin.captured_nodes(stream) == 3
    assert standin.end_capture(stream) == 0
    assert standin.end_capture(stream) == 401
    assert standin.captured_nodes(stream) == 3
    assert small.output() == 0
    assert ctypes.string_at(block, 16) == b"\xcd" * 16
    assert small.execute() == 0
    assert small.output() == 1.5
    assert memset(pointer(block), 1, size, pointer(stream)) == 0
    assert ctypes.string_at(block, 16) == b"\x01" * 16
    assert copy(pointer(block), pointer(source), size, pointer(stream)) == 0
    assert ctypes.string_at(block, 16) == bytes(16)
    assert memset(pointer(block + 1), 1, size, pointer(stream)) == 1, "one byte too far"
    standin.free(block)


UNSAFE = {
    "cuMemAlloc": lambda s, c, small: s.driver.cuMemAlloc_v2(
        ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(8)
    ),
    "cuMemFree": lambda s, c, small: s.driver.cuMemFree_v2(pointer(small.operands[1])),
    "cudnnCreate": lambda s, c, small: c.library.cudnnCreate(ctypes.byref(ctypes.c_void_p())),
    "cudnnDestroy": lambda s, c, small: c.library.cudnnDestroy(pointer(small.handle)),
    "create plan": lambda s, c, small: c.library.cudnnBackendCreateDescriptor(
        5, ctypes.byref(ctypes.c_void_p())
    ),
    "finalize plan": lambda s, c, small: c.finalize(small.unfinished),
    "destroy plan": lambda s, c, small: c.destroy(small.plan),
}


@pytest.mark.parametrize("call", UNSAFE)
@pytest.mark.parametrize(
    ("capture", "same_thread", "exchanged", "refused"),
    [
        (CAPTURE_GLOBAL, True, CAPTURE_GLOBAL, True),
        (CAPTURE_GLOBAL, False, CAPTURE_GLOBAL, True),
        (CAPTURE_GLOBAL, False, CAPTURE_THREAD_LOCAL, False),
        (CAPTURE_GLOBAL, False, CAPTURE_RELAXED, False),
        (CAPTURE_GLOBAL, True, CAPTURE_RELAXED, False),
        (CAPTURE_THREAD_LOCAL, True, CAPTURE_GLOBAL, True),
        (CAPTURE_THREAD_LOCAL, True, CAPTURE_THREAD_LOCAL, True),
        (CAPTURE_THREAD_LOCAL, False, CAPTURE_GLOBAL, False),
        (CAPTURE_RELAXED, True, CAPTURE_GLOBAL, False),
        (CAPTURE_RELAXED, False, CAPTURE_GLOBAL, False),
    ],
)
def test_unsafe_calls_break_captures(
    standin: Standin,
    small: Small,
    call: str,
    capture: int,
    same_thread: bool,
    exchanged: int,
    refused: bool,
) -> None:
    small.unfinished = small.cudnn.descriptor(5)  # type: ignore[attr-defined]
    context = standin.current_context()
    stream = captured(standin, small, capture)

    def act() -> int:
        standin.set_context(context)
        with standin.capture_mode(exchanged):
            return int(UNSAFE[call](standin, small.cudnn, small))

    status = act() if same_thread else on_thread(act)
    refusal = 900 if call.startswith("cuMem") else 5001
    assert (status == refusal) == refused
    assert standin.end_capture(stream) == (901 if refused else 0)


def test_packs_may_be_made_in_a_capture(standin: Standin, small: Small) -> None:
    stream = captured(standin, small, CAPTURE_GLOBAL)
    assert small.execute() == 0
    assert standin.end_capture(stream) == 0


def test_a_broken_capture_takes_no_more_work(standin: Standin, small: Small) -> None:
    stream = captured(standin, small, CAPTURE_GLOBAL)
    with pytest.raises(RuntimeError, match="STREAM_CAPTURE_UNSUPPORTED"):
        standin.synchronize(stream)
    assert small.execute() == 5001
    assert standin.end_capture(stream) == 901


def test_asking_a_capturing_stream_for_its_id_breaks_the_capture(standin: Standin) -> None:
    stream, other = standin.stream(), standin.stream()
    standin.begin_capture(stream, CAPTURE_RELAXED)
    assert standin.stream_id(other) != standin.stream_id(0)
    with pytest.raises(RuntimeError, match="STREAM_CAPTURE_UNSUPPORTED"):
        standin.stream_id(stream)
    assert standin.end_capture(stream) == 901
    assert standin.stream_id(stream)


def test_the_legacy_stream_disturbs_blocking_streams(standin: Standin, small: Small) -> None:
    stream = standin.stream(blocking=True)
    standin.begin_capture(stream)
    with pytest.raises(RuntimeError, match="CAPTURE_IMPLICIT"):
        standin.is_capturing(0)
    assert small.execute() == 5001
    assert standin.end_capture(stream) == 901


def test_only_its_thread_ends_a_capture(standin: Standin) -> None:
    stream = standin.stream()
    standin.begin_capture(stream)
    assert on_thread(lambda: standin.end_capture(stream)) == 908
    assert standin.end_capture(stream) == 0
    with pytest.raises(RuntimeError, match="STREAM_CAPTURE_UNSUPPORTED"):
        standin.begin_capture(0)


# Devices and memory


def test_devices(standin: Standin) -> None:
    count, value = ctypes.c_int(), ctypes.c_int()
    standin.set_device_count(3)
    standin.set_device_sm(2, 12, 1)
    assert standin.driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value == 3
    found = []
    for attribute in (75, 76, 16):
        assert standin.driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 2) == 0
        found.append(value.value)
    assert found == [12, 1, 132]
    assert standin.driver.cuDeviceGetAttribute(ctypes.byref(value), 1, 3) == 101
    assert standin.driver.cuDeviceGet(ctypes.byref(value), 3) == 101
    with standin.context(2):
        assert standin.driver.cuCtxGetDevice(ctypes.byref(value)) == 0
    assert value.value == 2
    standin.reset()
    assert standin.driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value == 2


def test_memory(standin: Standin) -> None:
    live = standin.live("memory")
    block = standin.alloc(1000)
    assert block % 256 == 0
    assert standin.live("memory") == live + 1
    standin.free(block)
    assert standin.live("memory") == live
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):
        standin.free(block)
    assert standin.violations("memory") == 1
    with pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
        standin.alloc(1 << 50)


# Bookkeeping


def test_failures_come_once_and_when_asked(standin: Standin) -> None:
    standin.fail("cuMemAlloc", 2, status=2)
    standin.fail("cuMemAlloc_v2", 3, status=700)
    standin.free(standin.alloc(1))
    for status in (2, 700):
        with pytest.raises(RuntimeError, match=rf"\({status}\)"):
            standin.alloc(1)
    standin.free(standin.alloc(1))
    assert standin.calls("cuMemAlloc") == 2
    with pytest.raises(ValueError, match="cuMemAllocate"):
        standin.fail("cuMemAllocate", status=1)
    with pytest.raises(ValueError, match="cuMemAllocate"):
        standin.calls("cuMemAllocate")


def test_cudnn_failures(standin: Standin, small: Small) -> None:
    standin.fail("cudnnBackendExecute", status=5000)
    assert small.execute() == 5000
    assert "asked for" in small.cudnn.last_error()
    assert small.execute() == 0


def test_log(standin: Standin, small: Small) -> None:
    stream = standin.stream()
    standin.reset()
    small.cudnn.library.cudnnSetStream(pointer(small.handle), pointer(stream))
    pack = small.cudnn.pack(small.operands)
    assert small.cudnn.execute(small.handle, small.plan, pack) == 0
    block = standin.alloc(24)
    standin.free(block)
    handle, plan = hex(small.handle), hex(small.plan)
    assert standin.log() == [
        f"cudnnSetStream {handle} {hex(stream)}",
        f"cudnnBackendExecute {handle} {plan} {hex(pack)} {hex(stream)} 0x0",
        f"cuMemAlloc {hex(block)} 24",
        f"cuMemFree {hex(block)}",
    ]
    assert len(standin.log("cuMemFree", "cuMemAlloc")) == 2
    for _ in range(5000):
        standin.set_context(standin.current_context())
    assert len(standin.log()) == 4096, "only the last lines are kept"


def test_error_texts(standin: Standin) -> None:
    text = ctypes.c_char_p()
    assert standin.driver.cuGetErrorString(2, ctypes.byref(text)) == 0
    assert text.value == b"out of memory"
    assert standin.driver.cuGetErrorName(12345, ctypes.byref(text)) == 1
    standin.cudnn.cudnnGetErrorString.restype = ctypes.c_char_p
    assert standin.cudnn.cudnnGetErrorString(2002) == b"CUDNN_STATUS_BAD_PARAM_NULL_POINTER"


def test_many_threads(standin: Standin, cudnn: Cudnn) -> None:
    context = standin.current_context()
    plan = Small(cudnn).plan

    def work(n: int) -> float:
        standin.set_context(context)
        mine = Cudnn(standin)
        small = Small(mine)
        small.plan = plan
        small.operands[1] = mine.array("d", [float(n), 0.0])
        stream = standin.stream()
        mine.library.cudnnSetStream(pointer(small.handle), pointer(stream))
        for _ in range(200):
            assert small.execute() == 0
        standin.destroy_stream(stream)
        return small.output()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [float(n) for n in range(8)]
    assert standin.calls("cudnnBackendExecute") == 1600
    assert standin.violations() == 0
