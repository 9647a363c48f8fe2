"""A plan's work that can move, and fresh graphs made of its captures, as a recorder makes them."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from typing import Any

from support.standin import Standin, expected_outputs, plan_text
from support.standin.graphs import EdgeData, KernelParams, MemsetParams
from support.test_standin import Cudnn, pointer

KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, EVENT, ALLOC = 0, 1, 2, 3, 4, 5, 7, 10
COUNT = 150  # more than one block of threads
INPUTS, OUTPUTS, PARTS, SCALARS = [10, 11, 12], [20, 21, 22], [30], [40, 41]
WORKSPACE = 1000
SLOT = 8192  # of the arena, for each operand: room to move within
PLAIN_EDGE, PROGRAMMATIC_EDGE = bytes(8), bytes([1, 0, 1, 0, 0, 0, 0, 0])


class Work:
    """A plan with every kind of operand, in page-aligned memory where operands can move."""

    ORDER = (*INPUTS, *PARTS, *OUTPUTS, 0)
    """Uids as kernels have them; 0 is the workspace."""

    def __init__(self, cudnn: Cudnn, launch: str = "plain", workspace: int = WORKSPACE) -> None:
        self.cudnn, self.workspace = cudnn, workspace
        self.standin: Standin = cudnn.standin
        self.arena = mmap.mmap(-1, SLOT * len(self.ORDER))
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.arena))
        self.handle = cudnn.handle()
        self.stream = self.standin.stream()
        self.use_stream(self.stream)
        self.values = {"float": 2.5, "int64": -3}
        text = plan_text(
            inputs=INPUTS,
            outputs=OUTPUTS,
            parts=PARTS,
            scalars=list(zip(SCALARS, self.values, strict=True)),
            workspace=workspace,
            count=COUNT,
            launch=launch,
        )
        self.plan = cudnn.plan(self.handle, text)
        self.place([0] * len(self.ORDER))

    def use_stream(self, stream: int) -> None:
        assert self.cudnn.library.cudnnSetStream(pointer(self.handle), pointer(stream)) == 0

    def place(self, shifts: Sequence[int], order: Sequence[int] = ORDER) -> None:
        """Put operand i of `order` at `shifts[i]` within slot i, with fresh contents."""
        self.arena[:] = bytes(len(self.arena))
        self.addresses = {
            uid: self.base + i * SLOT + shift
            for i, (uid, shift) in enumerate(zip(order, shifts, strict=True))
        }
        self.inputs = [[0.1 * i + uid for i in range(COUNT)] for uid in INPUTS]
        self.parts = [[0.25 * i - uid for i in range(COUNT)] for uid in PARTS]
        for uid, array in zip(INPUTS, self.inputs, strict=True):
            self.write(uid, struct.pack(f"{COUNT}d", *array))
        for uid, array in zip(PARTS, self.parts, strict=True):
            self.write(uid, struct.pack(f"{COUNT}f", *array))

    def write(self, uid: int, content: bytes) -> None:
        ctypes.memmove(self.addresses[uid], content, len(content))

    def execute(self) -> int:
        operands: dict[int, int | None] = {k: v for k, v in self.addresses.items() if k}
        operands[SCALARS[0]] = self.cudnn.bytes(struct.pack("f", self.values["float"]))
        operands[SCALARS[1]] = self.cudnn.bytes(struct.pack("q", int(self.values["int64"])))
        pack = self.cudnn.pack(operands, self.addresses[0] if self.workspace else 0)
        status = self.cudnn.execute(self.handle, self.plan, pack)
        self.cudnn.destroy(pack)
        return status

    def capture(self, stream: int | None = None) -> int:
        """Return the graph of one execution."""
        stream = stream or self.stream
        self.standin.begin_capture(stream)
        assert self.execute() == 0
        status, graph = self.standin.end_capture_graph(stream)
        assert status == 0
        return graph

    def outputs(self) -> list[list[float]]:
        return [list((ctypes.c_double * COUNT).from_address(self.addresses[k])) for k in OUTPUTS]

    def expected(self) -> list[list[float]]:
        return expected_outputs(self.inputs, list(self.values.values()), self.parts, len(OUTPUTS))

    def is_done(self) -> bool:
        """Whether outputs and workspace are exactly what an execution leaves, and no more."""
        filled = ctypes.string_at(self.addresses[0], self.workspace + 1)
        after = [ctypes.string_at(self.addresses[uid] + COUNT * 8, 8) for uid in OUTPUTS]
        return (
            self.outputs() == self.expected()
            and filled == b"\xa5" * self.workspace + b"\0"
            and after == [bytes(8)] * len(OUTPUTS)
        )


PLACES = {
    "pages": ([0] * 8, Work.ORDER),
    "16": ([16] * 8, Work.ORDER),
    "8": ([8, 24, 40, 56, 8, 8, 8, 8], Work.ORDER),
    "mixed": ([16, 0, 4096, 32, 48, 4112, 0, 16], Work.ORDER),
    "reversed": ([4096, 16, 0, 0, 0, 0, 0, 0], Work.ORDER[::-1]),
}
"""For `Work.place`: by what alignment and order the addresses have."""


def shape(nodes: list[dict[str, Any]]) -> list[Any]:
    return [(node["type"], [position for position, _ in node["after"]]) for node in nodes]


def payload(standin: Standin, work: Work) -> list[Any]:
    """All that a recorder compares, of one capture."""
    graph = work.capture()
    nodes = standin.graph_nodes(graph)
    standin.destroy_graph(graph)
    keys = ("type", "after", "function", "grid", "bytes")
    return [[node.get(key) for key in keys] for node in nodes]


def moved(nodes: list[Any], old: dict[int, int], new: dict[int, int]) -> list[Any]:
    """Replace every 8-byte word that is an old address by the new one."""
    by_address = {old[uid]: new[uid] for uid in old}
    result = []
    for *rest, content in nodes:
        if content is not None:
            end = len(content) // 8 * 8
            words = struct.unpack(f"{end // 8}Q", content[:end])
            words = tuple(by_address.get(word, word) for word in words)
            content = struct.pack(f"{end // 8}Q", *words) + content[end:]
        result.append([*rest, content])
    return result


def kernel_params(
    standin: Standin, node: dict[str, Any], content: bytes | None = None
) -> KernelParams:
    """What a caller would set, with parameters in memory that it may reuse at once."""
    params = KernelParams()
    get = standin.driver.cuGraphKernelNodeGetParams_v2
    assert get(pointer(node["handle"]), ctypes.byref(params)) == 0
    buffer = ctypes.create_string_buffer(node["bytes"] if content is None else content)
    start = ctypes.addressof(buffer)
    if node["packed"]:
        size = ctypes.c_size_t(len(node["bytes"]))
        pairs = (ctypes.c_void_p * 5)(1, start, 2, ctypes.addressof(size), 0)
        params.extra = ctypes.cast(pairs, ctypes.POINTER(ctypes.c_void_p))
        params.keep = (buffer, size, pairs)
    else:
        places = [start + offset for offset, _ in node["parameters"]]
        array = (ctypes.c_void_p * len(places))(*places)
        params.parameters = ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))
        params.keep = (buffer, array)
    return params


def scribble(params: KernelParams) -> None:
    buffer = params.keep[0]
    ctypes.memset(buffer, 0xEE, len(buffer))


class Rebuilt:
    """A fresh graph made of a captured one, as a recorder makes it."""

    def __init__(self, standin: Standin, work: Work) -> None:
        self.standin, self.work = standin, work
        captured = work.capture()
        self.nodes = standin.graph_nodes(captured)
        graph = ctypes.c_void_p()
        driver = standin.driver
        assert driver.cuGraphCreate(ctypes.byref(graph), 0) == 0
        self.graph = graph.value or 0
        self.handles: list[int] = []
        self.context = standin.current_context()
        for node in self.nodes:
            self.handles.append(self.add(node))
            if node["type"] == KERNEL:
                copy = driver.cuGraphKernelNodeCopyAttributes
                assert copy(pointer(self.handles[-1]), pointer(node["handle"])) == 0
        for end, node in enumerate(self.nodes):
            for start, data in node["after"]:
                assert self.connect(start, end, data) == 0
        self.exec = standin.instantiate(self.graph)
        stream = pointer(work.stream)
        assert driver.cuGraphUpload(pointer(self.exec), stream) == 0
        standin.destroy_graph(captured)

    def add(self, node: dict[str, Any]) -> int:
        handle, graph = ctypes.c_void_p(), pointer(self.graph)
        start = (ctypes.byref(handle), graph, None, ctypes.c_size_t(0))
        driver, context = self.standin.driver, pointer(self.context)
        if node["type"] == KERNEL:
            params = kernel_params(self.standin, node)
            assert driver.cuGraphAddKernelNode_v2(*start, ctypes.byref(params)) == 0
            scribble(params)
        elif node["type"] == MEMSET:
            assert driver.cuGraphAddMemsetNode(*start, ctypes.byref(node["params"]), context) == 0
        elif node["type"] == MEMCPY:
            assert driver.cuGraphAddMemcpyNode(*start, ctypes.byref(node["params"]), context) == 0
        else:
            assert driver.cuGraphAddEmptyNode(*start) == 0
        return handle.value or 0

    def connect(self, start: int, end: int, data: bytes = PLAIN_EDGE) -> int:
        edges = ((ctypes.c_void_p * 1)(self.handles[n]) for n in (start, end))
        add = self.standin.driver.cuGraphAddDependencies_v2
        given = EdgeData(*data)
        return int(add(pointer(self.graph), *edges, ctypes.byref(given), ctypes.c_size_t(1)))

    def set(self, index: int, params: Any) -> int:
        handle = pointer(self.handles[index])
        if isinstance(params, KernelParams):
            change = self.standin.driver.cuGraphExecKernelNodeSetParams_v2
            return int(change(pointer(self.exec), handle, ctypes.byref(params)))
        name = "Memset" if isinstance(params, MemsetParams) else "Memcpy"
        change = self.standin.driver[f"cuGraphExec{name}NodeSetParams"]
        arguments = (ctypes.byref(params), pointer(self.context))
        return int(change(pointer(self.exec), handle, *arguments))

    def move(self, old: dict[int, int]) -> None:
        """Set what stands at addresses of `old` to where the operands are now."""
        new = self.work.addresses
        for index, node in enumerate(self.nodes):
            if node["type"] == KERNEL:
                [[content]] = moved([[node["bytes"]]], old, new)
                # A copy: the captured node is gone, so its parameters cannot be read any more.
                params = self.params(node, content)
                assert self.set(index, params) == 0
                scribble(params)
            elif node["type"] == MEMSET:
                node["params"].target = new[0]
                assert self.set(index, node["params"]) == 0

    def params(self, node: dict[str, Any], content: bytes | None = None) -> KernelParams:
        index = self.nodes.index(node)
        return kernel_params(self.standin, node | {"handle": self.handles[index]}, content)

    def launch(self) -> int:
        call = self.standin.driver.cuGraphLaunch
        return int(call(pointer(self.exec), pointer(self.work.stream)))

    def close(self) -> None:
        self.standin.destroy_exec(self.exec)
        self.standin.destroy_graph(self.graph)
