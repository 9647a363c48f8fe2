"""The floor from Python: the C and C++ beside this file, compiled on the spot, called by ctypes."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path

import ubjson

import cudnn_bindgen

SYNC_EVERY = 20  # calls between two synchronisations, which are not timed

# How parameters of a CUDA graph can be set anew: record_floor_patch, by number.
WAYS = (
    "cuGraphLaunch alone",
    "cuGraphExecKernelNodeSetParams, each kernel",
    "cuGraphKernelNodeSetParams, each kernel; cuGraphExecUpdate",
    "cuGraphKernelNodeSetParams, each kernel; cuGraphInstantiate",
)


class Floor:
    """The calls of floor.c for one plan file, on one set of operands.

    Owns everything that the C code points to.
    """

    def __init__(self, library, plan, operands, tensors, workspace, stream):
        document = ubjson.loadb(plan)
        self.library = library
        self.stream = ctypes.c_void_p(stream)
        self.handle, self.plan = ctypes.c_void_p(), ctypes.c_void_p()
        text = document["cudnn_backend_data"].encode() + b"\0"
        size = ctypes.c_int64()
        out = (ctypes.byref(self.handle), ctypes.byref(self.plan), ctypes.byref(size))
        self.check(library.floor_create_plan(text, ctypes.c_int64(len(text)), self.stream, *out))
        self.needs_workspace = size.value > 0
        self.device_uids = {o.uid for o in operands if o.role != "scalar"}

        if document["variant_pack_replacements"]:
            raise NotImplementedError("the floor has no pointer replacements")
        self.constants = {
            int(uid): ctypes.create_string_buffer(_bits(value), 16)
            for uid, value in document["pass_by_values"].items()
        }
        pointers = {uid: ctypes.addressof(buffer) for uid, buffer in self.constants.items()}
        pointers |= {o.uid: tensors[o.uid].data_ptr() for o in operands if o.uid in tensors}
        memsets = []
        for uid, (operation, offset, values) in document["workspace_modifications"].items():
            pointers[int(uid)] = workspace + offset
            if operation == 0:
                raise NotImplementedError("the floor has no copies to the workspace")
            if operation == 1:
                memsets.append((workspace + offset, int(values[0])))
        bound = set(document["variant_pack_uids"])
        pointers = {uid: pointer for uid, pointer in pointers.items() if uid in bound}
        if bound - set(pointers):
            raise RuntimeError(f"uids without an address: {sorted(bound - set(pointers))}")

        self.count = ctypes.c_int64(len(pointers))
        self.uids = (ctypes.c_int64 * len(pointers))(*pointers)
        self.pointers = (ctypes.c_void_p * len(pointers))(*pointers.values())
        self.workspace = ctypes.c_void_p(workspace + document["fe_workspace_size"])
        self.memset_addresses = (ctypes.c_void_p * 8)(*(address for address, _ in memsets))
        self.memset_sizes = (ctypes.c_size_t * 8)(*(size for _, size in memsets))
        self.memset_count = len(memsets)

    def time(self, function, iterations):
        """Return the nanoseconds of each of so many calls."""
        self.check(self.library.floor_set_memsets(*self._memsets()))
        samples = (ctypes.c_double * iterations)()
        what = (self.handle, self.plan, self.count, self.uids, self.pointers, self.workspace)
        times = (ctypes.c_int64(iterations), ctypes.c_int64(SYNC_EVERY), self.stream, samples)
        self.check(getattr(self.library, function)(*what, *times))
        return list(samples)

    def time_overridden(self, iterations, sets):
        """Return the nanoseconds of each of so many calls with overrides, the sets in turn.

        A set maps uids to (dims, strides); all sets have the same uids and ranks.
        """
        self.check(self.library.floor_set_memsets(*self._memsets()))
        samples = (ctypes.c_double * iterations)()
        what = (self.handle, self.plan, self.count, self.uids, self.pointers, self.workspace)
        times = (ctypes.c_int64(iterations), ctypes.c_int64(SYNC_EVERY), self.stream, samples)
        with Overrides(self.library, sets[0]) as overrides:
            flat = [value for one in sets for value in overrides.flatten(one)]
            sizes = (ctypes.c_int64(len(sets)), ctypes.c_int64(len(flat) // len(sets)))
            values = ctypes.byref(overrides), (ctypes.c_int64 * len(flat))(*flat)
            self.check(self.library.floor_override_and_execute(*what, *times, *values, *sizes))
        return list(samples)

    def overridden_workspace(self, overrides):
        """Return the bytes of cuDNN's own workspace under these overrides (cuDNN 9.23)."""
        size = ctypes.c_size_t()
        with Overrides(self.library, overrides) as laid_out:
            flat = laid_out.flatten(overrides)
            values = ctypes.byref(laid_out), (ctypes.c_int64 * len(flat))(*flat)
            ask = self.library.floor_override_workspace
            self.check(ask(self.handle, self.plan, *values, ctypes.byref(size)))
        return size.value

    def make_record(self):
        """Record the plan's launch with the runtime's own recorder; return (seconds, reason)."""
        took = ctypes.c_double()
        operands = [i for i, uid in enumerate(self.uids) if uid in self.device_uids]
        reason = self.library.record_floor_make(
            *(self.handle, self.plan, self.count, self.uids, self.pointers),
            *(ctypes.c_int64(len(operands)), (ctypes.c_int64 * len(operands))(*operands)),
            *(self.workspace if self.needs_workspace else None, _context(), self.stream),
            ctypes.byref(took),
        )
        return took.value / 1e9, reason.decode() if reason else ""

    def time_bare_launch(self, iterations):
        """Return the nanoseconds of each of so many launches of the record, unchanged."""
        samples = (ctypes.c_double * iterations)()
        self.check(self.library.record_floor_launch(*self._times(iterations), samples))
        return list(samples)

    def time_record(self, iterations, sets):
        """Return the nanoseconds of each launch of the record, on sets of operands in turn.

        A set maps uids to addresses, and None to the workspace's.
        """
        keys = [uid for uid in self.uids if uid in self.device_uids]
        keys += [None] if self.needs_workspace else []
        flat = [addresses[key] for addresses in sets for key in keys]
        array = (ctypes.c_void_p * len(flat))(*flat)
        shape = (ctypes.c_int64(len(sets)), ctypes.c_int64(len(keys)))
        samples = (ctypes.c_double * iterations)()
        self.check(
            self.library.record_floor_patched(*self._times(iterations), *shape, array, samples)
        )
        return list(samples)

    def time_patched(self, graph, way, iterations, every=SYNC_EVERY):
        """Return the nanoseconds of launching a captured CUDA graph, patched in a way of WAYS."""
        samples = (ctypes.c_double * iterations)()
        times = self._times(iterations, every)
        number = ctypes.c_int(WAYS.index(way))
        problem = self.library.record_floor_patch(ctypes.c_void_p(graph), number, *times, samples)
        if problem:
            raise RuntimeError(problem.decode())
        return list(samples)

    def time_kernels(self, graph, iterations, every=SYNC_EVERY):
        """Return the nanoseconds of launching the nodes of a captured CUDA graph, each time."""
        samples = (ctypes.c_double * iterations)()
        problem = self.library.record_floor_kernels(
            ctypes.c_void_p(graph), *self._times(iterations, every), samples
        )
        if problem:
            raise RuntimeError(problem.decode())
        return list(samples)

    def _memsets(self):
        return self.memset_count, self.memset_addresses, self.memset_sizes

    def _times(self, iterations, every=SYNC_EVERY):
        synchronize = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuStreamSynchronize, ctypes.c_void_p)
        return ctypes.c_int64(iterations), ctypes.c_int64(every), self.stream, synchronize

    def check(self, status):
        """Raise for a status that is not success."""
        if status:
            raise RuntimeError(self.library.floor_error(status).decode())

    def close(self):
        """Destroy the record, if there is one, and the plan."""
        self.library.record_floor_destroy()
        self.check(self.library.floor_destroy_plan(self.plan))


class Overrides(ctypes.Structure):
    """Room for the shapes and strides of some operands, as cuDNN takes them; a context manager."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("uids", ctypes.POINTER(ctypes.c_int64)),
        ("ranks", ctypes.POINTER(ctypes.c_int64)),
        ("shapes", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("rows", ctypes.POINTER(ctypes.c_void_p)),
    )

    def __init__(self, library, like):
        self.library, self.order, count = library, list(like), len(like)
        ranks = [len(like[uid][0]) for uid in self.order]
        self.keep = (
            (ctypes.c_int64 * count)(*self.order),
            (ctypes.c_int64 * count)(*ranks),
            (ctypes.c_void_p * (2 * count))(),
        )
        uids, ranks, rows = self.keep
        lists = []
        for half in range(2):
            place = ctypes.byref(rows, half * count * ctypes.sizeof(ctypes.c_void_p))
            lists.append(library.override_floor_make(ctypes.c_int64(count), ranks, place))
        super().__init__(count, uids, ranks, *lists, rows)

    def flatten(self, overrides):
        """Return all dims, then all strides, in the order of the rows."""
        return [value for kind in (0, 1) for uid in self.order for value in overrides[uid][kind]]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.override_floor_free(ctypes.c_void_p(self.shapes))
        self.library.override_floor_free(ctypes.c_void_p(self.strides))


def _bits(value):
    # `index` says which alternative of the frontend's variant it is; floats are hex bit strings.
    index, text = value["index"], value["value"]
    if index in (2, 3, 5):
        return int(text, 16).to_bytes(4 if index == 3 else 2, "little")
    return struct.pack({0: "<q", 1: "<i", 4: "<d"}[index], text)


def _context():
    context = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    return context


def compile_floor(directory):
    """Compile floor.c, record_floor.cpp and override_floor.cpp into one ctypes library."""
    here = Path(__file__).parent
    target, object_file = directory / "libfloor.so", directory / "floor.o"
    runtime = Path(cudnn_bindgen.__file__).parent / "runtime" / "cpp"
    options = ["-O2", "-fPIC"]
    subprocess.run(
        ["gcc", *options, "-c", str(here / "floor.c"), "-o", str(object_file)], check=True
    )
    sources = [str(here / name) for name in ("record_floor.cpp", "override_floor.cpp")]
    sources.append(str(object_file))
    command = ["g++", "-std=c++17", *options, "-shared", f"-I{runtime}", *sources]
    subprocess.run([*command, "-o", str(target), "-ldl"], check=True)
    library = ctypes.CDLL(str(target))
    library.floor_error.restype = ctypes.c_char_p
    library.override_floor_make.restype = ctypes.c_void_p
    library.record_floor_make.restype = ctypes.c_char_p
    library.record_floor_kernels.restype = ctypes.c_char_p
    library.record_floor_patch.restype = ctypes.c_char_p
    return library
