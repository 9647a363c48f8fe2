"""CUDA graphs of the stand-in driver: captures, and the mistakes that it must notice."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.launching import (
    CHILD,
    KERNEL,
    MEMCPY,
    MEMSET,
    PROGRAMMATIC_EDGE,
    WORKSPACE,
    Rebuilt,
    Work,
    shape,
)
from support.standin import CAPTURE_GLOBAL, CAPTURE_RELAXED, Standin
from support.standin.graphs import EdgeData, MemcpyParams, MemsetParams
from support.test_standin import Cudnn, on_thread, pointer


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    return Standin.load(tmp_path_factory.mktemp("standin"))


@pytest.fixture
def standin(library: Standin) -> Iterator[Standin]:
    library.reset()
    with library.forgetting(), library.context():
        yield library
    library.reset()


@pytest.fixture
def cudnn(standin: Standin) -> Cudnn:
    return Cudnn(standin)


@pytest.fixture
def make(standin: Standin, cudnn: Cudnn) -> Iterator[Callable[..., Work]]:
    cudnn.standin = standin  # type: ignore[attr-defined]
    works: list[Work] = []

    def make(*arguments: Any, **options: Any) -> Work:
        works.append(Work(cudnn, *arguments, **options))
        return works[-1]

    yield make
    for work in works:
        standin.destroy_stream(work.stream)


# Captures


def test_what_the_next_captured_launch_waits_for_can_be_set(
    standin: Standin, make: Callable[..., Work]
) -> None:
    work, driver = make(), standin.driver
    call = driver.cuStreamUpdateCaptureDependencies_v2

    def update(nodes: list[int], flags: int = 1) -> int:
        array = (ctypes.c_void_p * max(1, len(nodes)))(*nodes)
        return int(call(pointer(work.stream), array, None, ctypes.c_size_t(len(nodes)), flags))

    def last() -> list[int]:
        state, count = ctypes.c_int(), ctypes.c_size_t()
        nodes = ctypes.POINTER(ctypes.c_void_p)()
        found = (ctypes.byref(state), None, None, ctypes.byref(nodes), ctypes.byref(count))
        assert driver.cuStreamGetCaptureInfo_v2(pointer(work.stream), *found) == 0
        return [nodes[i] or 0 for i in range(count.value)]

    assert update([]) == 401, "not capturing"
    standin.begin_capture(work.stream)
    assert work.execute() == 0
    first = last()
    assert update([]) == 0
    assert work.execute() == 0
    second = last()
    assert len(first) == len(second) == 1
    assert update(first + first) == 1, "one of them twice"
    assert update(first, flags=0) == 1, "not known here"
    assert update(first + second) == 0
    assert work.execute() == 0
    status, graph = standin.end_capture_graph(work.stream)
    assert status == 0
    assert [after for _, after in shape(standin.graph_nodes(graph))] == [[], [], [0, 1]]
    standin.destroy_graph(graph)


def test_captured_memory_calls(standin: Standin, cudnn: Cudnn) -> None:
    driver = standin.driver
    block = standin.alloc(64)
    source = cudnn.bytes(bytes(range(16)))
    stream = standin.stream()
    size = ctypes.c_size_t(16)
    standin.begin_capture(stream)
    assert driver.cuMemsetD8Async(pointer(block), 7, ctypes.c_size_t(64), pointer(stream)) == 0
    copy = driver.cuMemcpyHtoDAsync_v2
    assert copy(pointer(block + 8), pointer(source), size, pointer(stream)) == 0
    wild = 1 << 47
    assert driver.cuMemsetD8Async(pointer(wild), 7, size, pointer(stream)) == 0, "not checked yet"
    assert standin.captured_nodes(stream) == 3
    status, graph = standin.end_capture_graph(stream)
    assert status == 0
    nodes = standin.graph_nodes(graph)
    assert shape(nodes) == [(MEMSET, []), (MEMCPY, [0]), (MEMSET, [1])]
    params = nodes[1]["params"]
    assert (params.source.memory_type, params.source.host) == (1, source)
    assert (params.target.memory_type, params.target.device) == (2, block + 8)
    assert (params.width, params.height, params.depth) == (16, 1, 1)
    with pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS"):
        standin.replay(graph, stream)
    content = b"\x07" * 8 + bytes(range(16)) + b"\x07" * 40
    assert ctypes.string_at(block, 64) == content
    assert standin.violations("memory") == 1
    standin.free(block)
    standin.destroy_stream(stream)


def test_a_captured_launch_is_a_child_graph(standin: Standin, make: Callable[..., Work]) -> None:
    work = make("split")
    executable = standin.instantiate(work.capture())
    standin.begin_capture(work.stream)
    standin.launch(executable, work.stream)
    assert work.execute() == 0
    status, graph = standin.end_capture_graph(work.stream)
    assert status == 0
    assert shape(standin.graph_nodes(graph))[:2] == [(CHILD, []), (MEMSET, [0])]
    standin.destroy_exec(executable)
    assert not work.is_done()
    standin.replay(graph, work.stream)
    assert work.is_done(), "the copy outlives what it was copied from"


def test_executions_are_chained(standin: Standin, make: Callable[..., Work]) -> None:
    work = make("fork")
    standin.begin_capture(work.stream)
    assert work.execute() == work.execute() == 0
    assert standin.captured_nodes(work.stream) == 2, "launches, not nodes"
    _, graph = standin.end_capture_graph(work.stream)
    nodes = standin.graph_nodes(graph)
    assert [position for position, _ in nodes[4]["after"]] == [3]
    standin.destroy_graph(graph)


def test_a_broken_capture_has_no_graph(standin: Standin, make: Callable[..., Work]) -> None:
    work = make()
    graphs = standin.live("graph")
    standin.begin_capture(work.stream)
    assert work.execute() == 0
    assert standin.driver.cuMemAlloc_v2(ctypes.byref(pointer(0)), ctypes.c_size_t(8)) == 900
    assert standin.end_capture_graph(work.stream) == (901, 0)
    assert standin.live("graph") == graphs


def new_stream(standin: Standin, rebuilt: Rebuilt) -> int:
    create = standin.driver.cuStreamCreateWithPriority
    return int(create(ctypes.byref(pointer(0)), 1, 0))


UNSAFE: dict[str, Callable[[Standin, Rebuilt], int]] = {
    "instantiate": lambda s, r: s.driver.cuGraphInstantiateWithFlags(
        ctypes.byref(pointer(0)), pointer(r.graph), ctypes.c_ulonglong(0)
    ),
    "destroy graph": lambda s, r: s.driver.cuGraphDestroy(pointer(r.graph)),
    "destroy exec": lambda s, r: s.driver.cuGraphExecDestroy(pointer(r.exec)),
    "upload": lambda s, r: s.driver.cuGraphUpload(pointer(r.exec), pointer(0)),
    "create stream": new_stream,
    "destroy stream": lambda s, r: s.driver.cuStreamDestroy_v2(pointer(r.work.stream)),
}
SAFE: dict[str, Callable[[Standin, Rebuilt], int]] = {
    "launch": lambda s, r: r.launch(),
    "set": lambda s, r: r.set(0, r.params(r.nodes[0])),
    "create graph": lambda s, r: s.driver.cuGraphCreate(ctypes.byref(pointer(0)), 0),
    "priority": lambda s, r: s.driver.cuStreamGetPriority(pointer(0), ctypes.byref(pointer(0))),
}


@pytest.mark.parametrize("call", [*UNSAFE, *SAFE])
def test_capture_rules(standin: Standin, make: Callable[..., Work], call: str) -> None:
    rebuilt = Rebuilt(standin, make())
    stream = standin.stream()
    standin.begin_capture(stream, CAPTURE_GLOBAL)
    status = (UNSAFE | SAFE)[call](standin, rebuilt)
    assert status == (900 if call in UNSAFE else 0)
    assert standin.end_capture(stream) == (901 if call in UNSAFE else 0)
    standin.destroy_stream(stream)
    rebuilt.close()


@pytest.mark.parametrize("call", ["instantiate", "upload", "create stream"])
def test_relaxed_calls_leave_captures_alone(
    standin: Standin, make: Callable[..., Work], call: str
) -> None:
    rebuilt = Rebuilt(standin, make())
    stream = standin.stream()
    standin.begin_capture(stream, CAPTURE_GLOBAL)
    with standin.capture_mode(CAPTURE_RELAXED):
        assert UNSAFE[call](standin, rebuilt) == 0
    assert standin.end_capture(stream) == 0
    standin.destroy_stream(stream)
    rebuilt.close()


def test_graphs_obey_the_rules_of_launches(standin: Standin, make: Callable[..., Work]) -> None:
    rebuilt = Rebuilt(standin, make())
    launch = standin.driver.cuGraphLaunch
    blocking = standin.stream(blocking=True)
    standin.begin_capture(blocking)
    assert launch(pointer(rebuilt.exec), None) == 906, "the legacy stream meets the capture"
    assert standin.end_capture(blocking) == 901
    standin.destroy_stream(blocking)
    assert launch(pointer(rebuilt.exec), pointer(blocking)) == 400
    standin.begin_capture(rebuilt.work.stream)
    with standin.capture_mode(CAPTURE_RELAXED):
        upload = standin.driver.cuGraphUpload
        assert upload(pointer(rebuilt.exec), pointer(rebuilt.work.stream)) == 900
    assert rebuilt.launch() == 901
    assert standin.end_capture(rebuilt.work.stream) == 901
    with standin.context(1):
        assert rebuilt.launch() == 400
    rebuilt.close()


def test_priorities(standin: Standin) -> None:
    found = ctypes.c_int(99)
    for asked, given in ((-2, -2), (-9, -5), (3, 0), (None, 0)):
        stream = standin.stream(priority=asked)
        assert standin.driver.cuStreamGetPriority(pointer(stream), ctypes.byref(found)) == 0
        assert found.value == given
        standin.destroy_stream(stream)
    assert standin.driver.cuStreamGetPriority(pointer(stream), ctypes.byref(found)) == 400
    assert standin.driver.cuStreamGetPriority(None, ctypes.byref(found)) == 0


# Strictness


def test_set_params_is_strict(standin: Standin, make: Callable[..., Work]) -> None:
    work, other = make("function"), make("split")
    rebuilt, split = Rebuilt(standin, work), Rebuilt(standin, other)
    params = rebuilt.params(rebuilt.nodes[0])
    change = standin.driver.cuGraphExecKernelNodeSetParams_v2
    for executable, handle, status in (
        (rebuilt.exec, rebuilt.handles[0], 0),
        (rebuilt.exec, rebuilt.nodes[0]["handle"], 1),  # of the captured graph, destroyed
        (rebuilt.exec, split.handles[1], 1),
        (split.exec, split.handles[0], 1),  # a memset
        (split.exec, split.handles[1], 1),  # another function
        (rebuilt.exec, 0, 1),
        (0, rebuilt.handles[0], 1),
        (rebuilt.graph, rebuilt.handles[0], 1),
    ):
        call = (pointer(executable), pointer(handle), ctypes.byref(params))
        assert change(*call) == status, (executable, handle)
    assert standin.violations("destroyed") == 1
    params.grid[0] = 0
    assert rebuilt.set(0, params) == 1
    params.grid[0] = 2
    params.parameters = None
    assert rebuilt.set(0, params) == 1, "no parameters"

    fill = split.nodes[0]["params"]
    for field, value in (("element_bytes", 3), ("width", 0), ("height", 2), ("target", 0)):
        wrong = MemsetParams.from_buffer_copy(fill)
        setattr(wrong, field, value)
        assert split.set(0, wrong) == 1, field
    split.context = standin.new_context()
    assert split.set(0, fill) == 1
    split.context = standin.current_context()
    with standin.context(1):
        foreign = standin.alloc(WORKSPACE)
    wrong = MemsetParams.from_buffer_copy(fill)
    wrong.target = foreign
    assert split.set(0, wrong) == 1
    rebuilt.close()
    split.close()


def test_packed_parameters_are_strict(standin: Standin, make: Callable[..., Work]) -> None:
    rebuilt = Rebuilt(standin, make("packed"))
    params = rebuilt.params(rebuilt.nodes[0])
    _, size, pairs = params.keep
    size.value -= 1
    assert rebuilt.set(0, params) == 1, "a byte too few"
    size.value += 1
    pairs[2] = 3
    assert rebuilt.set(0, params) == 1, "an unknown key"
    pairs[2] = 0
    assert rebuilt.set(0, params) == 1, "no size"
    pairs[2] = 2
    assert rebuilt.set(0, params) == 0
    params.parameters = params.extra
    assert rebuilt.set(0, params) == 1, "both forms"
    rebuilt.close()


def test_edges_are_strict(standin: Standin, make: Callable[..., Work]) -> None:
    rebuilt = Rebuilt(standin, make("split"))
    assert rebuilt.connect(0, 1) == 1, "twice"
    assert rebuilt.connect(1, 1) == 1, "to itself"
    assert rebuilt.connect(0, 2, PROGRAMMATIC_EDGE) == 1, "from a memset"
    assert rebuilt.connect(1, 4, bytes([3, 0, 0, 0, 0, 0, 0, 0])) == 1
    assert rebuilt.connect(1, 4, bytes([0, 0, 0, 0, 0, 0, 0, 1])) == 1
    graph, count = pointer(rebuilt.graph), ctypes.c_size_t(9)
    two = [(ctypes.c_void_p * 9)() for _ in range(2)]
    get = standin.driver.cuGraphGetEdges_v2
    assert get(graph, *two, None, ctypes.byref(count)) == 402, "edge data would be lost"
    assert get(graph, two[0], None, None, ctypes.byref(count)) == 1
    data = (EdgeData * 9)()
    assert get(graph, *two, data, ctypes.byref(count)) == 0
    assert count.value == 4
    assert two[0][4] is None
    assert rebuilt.connect(4, 1) == 0, "only instantiation sees a cycle"
    with pytest.raises(RuntimeError, match="INVALID_VALUE"):
        standin.instantiate(rebuilt.graph)
    rebuilt.close()


def test_nodes_are_strict(standin: Standin, make: Callable[..., Work]) -> None:
    rebuilt, other = Rebuilt(standin, make("split")), Rebuilt(standin, make("descriptor"))
    driver = standin.driver
    made, none = ctypes.c_void_p(), ctypes.c_size_t(0)
    copy = MemcpyParams(width=1, height=1, depth=1)
    copy.source.memory_type, copy.source.host = 1, rebuilt.work.base
    copy.target.memory_type, copy.target.device = 3, rebuilt.work.base
    add = driver.cuGraphAddMemcpyNode
    start = (ctypes.byref(made), pointer(rebuilt.graph), None, none)
    context = pointer(rebuilt.context)
    assert add(*start, ctypes.byref(copy), context) == 801, "an array"
    copy.target.memory_type = 2
    assert add(*start, ctypes.byref(copy), pointer(12345 * 8)) == 201
    after = (ctypes.c_void_p * 2)(other.handles[0], other.handles[0])
    for given in (after, (ctypes.c_void_p * 2)(*[rebuilt.handles[0]] * 2)):
        add_empty = driver.cuGraphAddEmptyNode
        two = ctypes.c_size_t(2)
        assert add_empty(ctypes.byref(made), pointer(rebuilt.graph), given, two) == 1
    attributes = driver.cuGraphKernelNodeGetAttribute
    value = (ctypes.c_ubyte * 64)()
    assert attributes(pointer(rebuilt.handles[0]), 8, ctypes.byref(value)) == 1, "a memset"
    assert attributes(pointer(rebuilt.handles[1]), 3, ctypes.byref(value)) == 1
    params = other.params(other.nodes[0])
    assert params.function is None, "a CUkernel"
    assert params.context == other.context
    info = driver.cuFuncGetParamInfo
    size = ctypes.c_size_t()
    places = (ctypes.byref(size), ctypes.byref(size))
    assert info(pointer(params.kernel), none, *places) == 400
    assert driver.cuKernelGetParamInfo(pointer(params.kernel), none, *places) == 0
    params.context = None
    assert other.set(0, params) == 201
    rebuilt.close()
    other.close()


def test_copies_can_be_changed(standin: Standin, cudnn: Cudnn, make: Callable[..., Work]) -> None:
    work = make()
    block, source = standin.alloc(32), cudnn.bytes(b"0123456789abcdef")
    standin.begin_capture(work.stream)
    copy = standin.driver.cuMemcpyHtoDAsync_v2
    size = ctypes.c_size_t(8)
    assert copy(pointer(block), pointer(source), size, pointer(work.stream)) == 0
    _, graph = standin.end_capture_graph(work.stream)
    work.capture = lambda: graph  # type: ignore[method-assign]
    rebuilt = Rebuilt(standin, work)
    params = rebuilt.nodes[0]["params"]
    params.source.host, params.target.device = source + 8, block + 16
    assert rebuilt.set(0, params) == 0
    params.source.host = 8  # copied when it was set
    assert rebuilt.launch() == 0
    assert ctypes.string_at(block, 32) == b"\xcd" * 16 + b"89abcdef" + b"\xcd" * 8
    params.height = 2
    assert rebuilt.set(0, params) == 1
    rebuilt.close()
    standin.free(block)


def test_rows_of_a_memset(standin: Standin, make: Callable[..., Work]) -> None:
    rebuilt = Rebuilt(standin, make())
    block = standin.alloc(32)
    params = MemsetParams(block, 16, 0x01020304, 4, 2, 2)
    rebuilt.handles.append(rebuilt.add({"type": MEMSET, "params": params}))
    standin.launch(executable := standin.instantiate(rebuilt.graph), 0)
    row = bytes([4, 3, 2, 1] * 2) + b"\xcd" * 8
    assert ctypes.string_at(block, 32) == row * 2
    standin.destroy_exec(executable)
    standin.free(block)
    rebuilt.close()


# Bookkeeping


def test_use_after_destroy(standin: Standin, make: Callable[..., Work]) -> None:
    graphs, execs = standin.live("graph"), standin.live("exec")
    rebuilt = Rebuilt(standin, make())
    assert (standin.live("graph"), standin.live("exec")) == (graphs + 1, execs + 1)
    rebuilt.close()
    assert (standin.live("graph"), standin.live("exec")) == (graphs, execs)
    assert standin.violations() == 0
    assert rebuilt.launch() == 1
    kind = ctypes.byref(ctypes.c_int())
    assert standin.driver.cuGraphNodeGetType(pointer(rebuilt.handles[0]), kind) == 1
    for destroy in (standin.destroy_exec, standin.destroy_graph):
        with pytest.raises(RuntimeError, match="INVALID_VALUE"):
            destroy(rebuilt.exec if destroy == standin.destroy_exec else rebuilt.graph)
    assert standin.violations("destroyed") == standin.violations() == 4


def test_an_executable_graph_is_not_shared(standin: Standin, make: Callable[..., Work]) -> None:
    rebuilt = Rebuilt(standin, make("split"))
    context = standin.current_context()

    def launch() -> None:
        standin.set_context(context)
        for _ in range(2000):
            assert rebuilt.launch() == 0

    other = []
    thread = threading.Thread(target=lambda: other.append(launch()))
    thread.start()
    launch()
    thread.join()
    assert other == [None]
    assert standin.violations("shared") == standin.violations() > 0
    rebuilt.close()


def test_log_and_direct_launch(standin: Standin, make: Callable[..., Work]) -> None:
    work = make()
    rebuilt = Rebuilt(standin, work)
    standin.reset()
    assert rebuilt.launch() == 0
    assert standin.log() == [f"cuGraphLaunch {hex(rebuilt.exec)} {hex(work.stream)}"]
    work.place([0] * 8)
    params = rebuilt.params(rebuilt.nodes[0])
    launch = standin.driver.standin_launch_kernel
    assert launch(pointer(work.stream), ctypes.byref(params)) == 0
    assert work.is_done()
    standin.begin_capture(work.stream)
    assert launch(pointer(work.stream), ctypes.byref(params)) == 0
    _, graph = standin.end_capture_graph(work.stream)
    assert shape(standin.graph_nodes(graph)) == [(KERNEL, [])]
    standin.destroy_graph(graph)
    rebuilt.close()


CALLS = [
    "cuStreamCreateWithPriority",
    "cuStreamGetPriority",
    "cuFuncGetName",
    "cuKernelGetName",
    "cuFuncGetParamInfo",
    "cuKernelGetParamInfo",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphGetNodes",
    "cuGraphGetEdges_v2",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphMemsetNodeGetParams",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphKernelNodeGetAttribute",
    "cuGraphKernelNodeCopyAttributes",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddMemsetNode",
    "cuGraphAddMemcpyNode",
    "cuGraphAddEmptyNode",
    "cuGraphAddDependencies_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemsetNodeSetParams",
    "cuGraphExecMemcpyNodeSetParams",
]


@pytest.mark.parametrize("call", CALLS)
def test_every_call_can_fail(standin: Standin, call: str) -> None:
    standin.fail(call, status=999)
    assert standin.driver[call](*[None] * 6) == 999
    assert standin.driver[call](*[None] * 6) != 0, "null is refused"
    assert standin.calls(call) == 0


def test_another_thread_may_replay(standin: Standin, make: Callable[..., Work]) -> None:
    work = make("fork")
    rebuilt = Rebuilt(standin, work)
    context = standin.current_context()

    def launch() -> int:
        standin.set_context(context)
        return rebuilt.launch()

    assert on_thread(launch) == 0
    assert work.is_done()
    assert standin.violations() == 0
    rebuilt.close()
