"""CUDA graphs of the stand-in driver, for tests: read them, make them, run them."""

from __future__ import annotations

import ctypes
from typing import Any

__all__ = [
    "LAUNCHES",
    "LEAVING",
    "EdgeData",
    "GraphCalls",
    "KernelParams",
    "MemcpyParams",
    "MemsetParams",
]

LAUNCHES = {
    "plain": "one kernel; a parameter for each pointer, and a struct with all else",
    "packed": "the same, handed over through `extra`",
    "split": "a memset of the workspace and a chain of kernels, one edge of it programmatic",
    "fork": "two branches that meet again",
    "descriptor": "each pointer is the first word of a 128-byte struct; the function is a CUkernel",
    "offset": "words hold an address plus a constant",
    "first": "the first execution of the plan launches one kernel more",
    "parity": "8 is added to an address that has bit 4 set",
    "swapped": "the first two addresses are stored in ascending order",
    "hash": "a word is a hash of the first and the last address",
    "difference": "the last address is stored as its distance from the first",
    "grid": "the number of blocks depends on bits 4 and 12 of the first address",
    "function": "another function if bit 4 of the first address is set",
    "high32": "a 4-byte word holds bits 12 to 43 of the first address",
    "host": "a host node follows",
    "event": "an event record node follows",
    "alloc": "a memory allocation node follows",
    "nodes": "one kernel more if bit 4 of the first address is set",
    "pages": "one kernel more if the first address is not a multiple of 4096",
    "edges": "other edges if bit 4 of the first address is set",
    "tail": "the very last byte holds bits 4 to 11 of the first address",
    "legacy": "three kernels, the last on the legacy stream whatever stream is given",
    "legacy_memset": "one kernel, and a memset of the workspace's first byte on the legacy stream",
}
"""What a plan's `launch` may be. "first" is the first input, or else part, output or workspace."""

LEAVING = ("legacy", "legacy_memset")
"""Those that do not keep to their stream: a capture lacks a part of them, which runs at once."""


class KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.POINTER(ctypes.c_void_p)),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class MemsetParams(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS_v1."""

    _fields_ = (
        ("target", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element_bytes", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class _Side(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("z", ctypes.c_size_t),
        ("level", ctypes.c_size_t),
        ("memory_type", ctypes.c_uint),  # 1: host, 2: device, 4: unified
        ("host", ctypes.c_void_p),
        ("device", ctypes.c_uint64),
        ("array", ctypes.c_void_p),
        ("reserved", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class MemcpyParams(ctypes.Structure):
    """CUDA_MEMCPY3D_v2."""

    _fields_ = (
        ("source", _Side),
        ("target", _Side),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
    )


EdgeData = ctypes.c_ubyte * 8
"""CUgraphEdgeData: from_port, to_port, type, reserved."""


class GraphCalls:
    """Part of `Standin`. Graphs, nodes, functions and executable graphs are integers too.

    Whatever goes through a driver call counts in `calls` and meets the failures asked for.
    """

    driver: ctypes.CDLL

    def _check(self, call: str, *arguments: object) -> None:
        raise NotImplementedError

    def end_capture_graph(self, stream: int) -> tuple[int, int]:
        """End the capture; return cuStreamEndCapture's status, and the graph (0 if it failed)."""
        graph = ctypes.c_void_p()
        status = self.driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
        return int(status), graph.value or 0

    def drop_graph(self, graph: int) -> None:
        """Destroy `graph` without a driver call, and so without a rule about captures."""
        self.driver.standin_drop_graph(ctypes.c_void_p(graph))

    def destroy_graph(self, graph: int) -> None:
        self._check("cuGraphDestroy", ctypes.c_void_p(graph))

    def instantiate(self, graph: int) -> int:
        executable = ctypes.c_void_p()
        self._check(
            "cuGraphInstantiateWithFlags",
            ctypes.byref(executable),
            ctypes.c_void_p(graph),
            ctypes.c_ulonglong(0),
        )
        return executable.value or 0

    def clone(self, graph: int) -> int:
        made = ctypes.c_void_p()
        self._check("cuGraphClone", ctypes.byref(made), ctypes.c_void_p(graph))
        return made.value or 0

    def parent_of(self, graph: int) -> int:
        """Return a new graph that has `graph` as a child."""
        made, node = ctypes.c_void_p(), ctypes.c_void_p()
        self._check("cuGraphCreate", ctypes.byref(made), 0)
        arguments = (made, None, ctypes.c_size_t(0), ctypes.c_void_p(graph))
        self._check("cuGraphAddChildGraphNode", ctypes.byref(node), *arguments)
        return made.value or 0

    def launch(self, executable: int, stream: int) -> None:
        self._check("cuGraphLaunch", ctypes.c_void_p(executable), ctypes.c_void_p(stream))

    def destroy_exec(self, executable: int) -> None:
        self._check("cuGraphExecDestroy", ctypes.c_void_p(executable))

    def replay(self, graph: int, stream: int) -> None:
        """Instantiate and launch `graph`, and destroy both."""
        executable = self.instantiate(graph)
        try:
            self.launch(executable, stream)
        finally:
            self.destroy_exec(executable)
            self.destroy_graph(graph)

    def graph_nodes(self, graph: int) -> list[dict[str, Any]]:
        """Return the nodes of `graph`, in the order in which they were added.

        Each has 'handle', 'type' (the number), and 'after', a list of (position, edge data). A
        kernel (type 0) also has 'function', 'name', 'grid', 'block', 'packed', 'parameters' as
        (offset, size), their 'bytes', and 'attributes' as {id: bytes}. A memset (2) or memcpy (1)
        has 'params', a copy of its struct.
        """
        count = ctypes.c_size_t()
        self._check("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
        handles = (ctypes.c_void_p * count.value)()
        if count.value:
            self._check("cuGraphGetNodes", ctypes.c_void_p(graph), handles, ctypes.byref(count))
        nodes = [self._node(handle) for handle in handles if handle is not None]
        positions = {node["handle"]: position for position, node in enumerate(nodes)}
        for start, end, data in self._edges(graph):
            nodes[positions[end]]["after"].append((positions[start], data))
        return nodes

    def _edges(self, graph: int) -> list[tuple[int, int, bytes]]:
        count = ctypes.c_size_t()
        get = "cuGraphGetEdges_v2"
        self._check(get, ctypes.c_void_p(graph), None, None, None, ctypes.byref(count))
        start, end = ((ctypes.c_void_p * count.value)() for _ in range(2))
        data = (EdgeData * count.value)()
        if count.value:
            self._check(get, ctypes.c_void_p(graph), start, end, data, ctypes.byref(count))
        return [(a or 0, b or 0, bytes(d)) for a, b, d in zip(start, end, data, strict=True)]

    def _node(self, handle: int) -> dict[str, Any]:
        kind = ctypes.c_int()
        self._check("cuGraphNodeGetType", ctypes.c_void_p(handle), ctypes.byref(kind))
        node: dict[str, Any] = {"handle": handle, "type": kind.value, "after": []}
        if kind.value == 0:
            node |= self._kernel(handle)
        elif kind.value == 1:
            node["params"] = copy = MemcpyParams()
            self._check("cuGraphMemcpyNodeGetParams", ctypes.c_void_p(handle), ctypes.byref(copy))
        elif kind.value == 2:
            node["params"] = fill = MemsetParams()
            self._check("cuGraphMemsetNodeGetParams", ctypes.c_void_p(handle), ctypes.byref(fill))
        return node

    def _kernel(self, handle: int) -> dict[str, Any]:
        params = KernelParams()
        self._check("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(handle), ctypes.byref(params))
        prefix = "cuFunc" if params.function else "cuKernel"
        function = params.function or params.kernel
        name = ctypes.c_char_p()
        self._check(f"{prefix}GetName", ctypes.byref(name), ctypes.c_void_p(function))
        parameters: list[tuple[int, int]] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        info = self.driver[f"{prefix}GetParamInfo"]
        index = ctypes.c_size_t(0)
        while not info(ctypes.c_void_p(function), index, ctypes.byref(offset), ctypes.byref(size)):
            parameters.append((offset.value, size.value))
            index.value += 1
        if params.extra:
            pairs = {params.extra[i]: params.extra[i + 1] for i in (0, 2)}
            length = ctypes.c_size_t.from_address(pairs[2]).value
            content = ctypes.string_at(pairs[1], length)
        else:
            buffer = bytearray(sum(parameters[-1]))
            for i, (start, length) in enumerate(parameters):
                buffer[start : start + length] = ctypes.string_at(params.parameters[i], length)
            content = bytes(buffer)
        attributes: dict[int, bytes] = {}
        value = (ctypes.c_ubyte * 64)()
        for key in range(1, 17):
            get = self.driver.cuGraphKernelNodeGetAttribute
            if get(ctypes.c_void_p(handle), key, ctypes.byref(value)) == 0:
                attributes[key] = bytes(value)
        return {
            "function": function,
            "name": (name.value or b"").decode(),
            "grid": tuple(params.grid),
            "block": tuple(params.block),
            "packed": bool(params.extra),
            "parameters": parameters,
            "bytes": content,
            "attributes": attributes,
        }
