"""Host time of one call: the frontend, the same cuDNN calls from C, and the generated module.

All paths run in one process, on one stream, with the same operands and a workspace of the caller,
and with the GPU idle: what is measured is how long the call takes to return, not the kernel.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import click
import cudnn
import graphs
import torch
import ubjson
from rich.console import Console
from rich.table import Table

SYNC_EVERY = 20

FRONTEND_DICT = "frontend execute(dict)"
FRONTEND_LIST = "frontend execute(list, tensor_uids=)"
FLOOR = "C: variant pack + cudnnBackendExecute"
EXECUTE_ONLY = "C: cudnnBackendExecute alone"
GENERATED = "generated execute"
ALTERNATING = "generated execute, two buffer sets in turn"
DATA_PTR = "generated execute, data_ptr() of each tensor"


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
        sets = (self.memset_count, self.memset_addresses, self.memset_sizes)
        self.check(self.library.floor_set_memsets(*sets))
        samples = (ctypes.c_double * iterations)()
        what = (self.handle, self.plan, self.count, self.uids, self.pointers, self.workspace)
        times = (ctypes.c_int64(iterations), ctypes.c_int64(SYNC_EVERY), self.stream, samples)
        self.check(getattr(self.library, function)(*what, *times))
        return list(samples)

    def check(self, status):
        """Raise for a status that is not success."""
        if status:
            raise RuntimeError(self.library.floor_error(status).decode())

    def close(self):
        """Destroy the plan."""
        self.check(self.library.floor_destroy_plan(self.plan))


def _bits(value):
    # `index` says which alternative of the frontend's variant it is; floats are hex bit strings.
    index, text = value["index"], value["value"]
    if index in (2, 3, 5):
        return int(text, 16).to_bytes(4 if index == 3 else 2, "little")
    return struct.pack({0: "<q", 1: "<i", 4: "<d"}[index], text)


def compile_floor(directory):
    """Compile floor.c and return it as a ctypes library."""
    target = directory / "libfloor.so"
    source = Path(__file__).with_name("floor.c")
    command = ["gcc", "-O2", "-shared", "-fPIC", str(source), "-o", str(target), "-ldl"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(target))
    library.floor_error.restype = ctypes.c_char_p
    return library


TIMING_LOOP = """
def time_calls(iterations, synchronize):
    samples = []
    for _ in range(0, iterations, {sync_every}):
        for _ in range({repeats}):
{timed}
        synchronize()
    return samples
"""
TIMED_CALL = """\
            begin = clock()
            {call}
            samples.append(clock() - begin)
"""


def timing_loop(expressions, names):
    """Return ``f(iterations, synchronize)`` that times each of the given calls, in turn.

    The calls stand in the loop as a user would write them: no lambda, tuple or dict of the
    benchmark's own comes between.
    """
    source = TIMING_LOOP.format(
        sync_every=SYNC_EVERY,
        repeats=SYNC_EVERY // len(expressions),
        timed="".join(TIMED_CALL.format(call=call) for call in expressions),
    )
    scope = {**names, "clock": time.perf_counter_ns}
    exec(source, scope)
    return scope["time_calls"]


def literal_call(operands, tensors, workspace, stream):
    """Return the text of a call of `execute` with its addresses as numbers."""
    values = ", ".join(repr(value) for value in graphs.arguments(operands, tensors))
    return f"execute({values}, workspace_ptr={workspace}, stream={stream})"


def tensor_call(operands, tensors, workspace, stream):
    """Return the text of a call that asks each tensor for its address, and the tensors by name."""
    names, values = {}, []
    for operand in operands:
        if operand.uid not in tensors:
            continue
        if operand.role == "scalar":
            values.append(repr(tensors[operand.uid].item()))
        else:
            names[f"t{len(values)}"] = tensors[operand.uid]
            values.append(f"t{len(values)}.data_ptr()")
    return f"execute({', '.join(values)}, workspace_ptr={workspace}, stream={stream})", names


def assert_same_bytes(name, operands, tensors, frontend, generated):
    """Compare all bytes of all operands after one call of each path."""
    results = []
    for call in (frontend, generated):
        graphs.poison(operands, tensors)
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        results.append({uid: graphs.storage(t).clone() for uid, t in tensors.items()})
    for operand in operands:
        if operand.uid in tensors:
            same = torch.equal(*(result[operand.uid] for result in results))
            assert same, f"{name}: {operand.argument} differs from the frontend's"


def measure(name, module, graph, plan, library, calls, rounds):
    """Return the samples of each path, in nanoseconds."""
    handle, operands = graphs.frontend_handle(), module.OPERANDS
    stream = torch.cuda.Stream()
    raw = stream.cuda_stream
    cudnn.set_stream(handle, raw)
    generator = torch.Generator("cuda").manual_seed(0)
    first, second = (graphs.make_operands(operands, generator, "cuda") for _ in range(2))
    size = max(module.workspace_size(), graph.get_workspace_size(), 1)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    address = workspace.data_ptr()
    torch.cuda.synchronize()

    uids = tuple(sorted(first))
    buffers = tuple(first[uid] for uid in uids)

    generated = literal_call(operands, first, address, raw)
    other = literal_call(operands, second, address, raw)
    with_data_ptr, named = tensor_call(operands, first, address, raw)
    dict_call = "graph_execute(first, workspace, handle=handle)"
    list_call = "graph_execute(buffers, workspace, handle=handle, tensor_uids=uids)"
    names = {
        **named,
        "execute": module.execute,
        "graph_execute": graph.execute,
        "first": first,
        "buffers": buffers,
        "uids": uids,
        "workspace": workspace,
        "handle": handle,
    }

    def run(call):
        return lambda: eval(call, names)

    for call in (generated, with_data_ptr, list_call):
        assert_same_bytes(name, operands, first, run(dict_call), run(call))
    floor = Floor(library, plan, operands, first, address, raw)
    assert_same_bytes(
        name, operands, first, run(dict_call), lambda: floor.time("floor_pack_and_execute", 1)
    )

    def in_python(*calls):
        time_calls = timing_loop(calls, names)
        return lambda iterations: time_calls(iterations, stream.synchronize)

    paths = {
        FRONTEND_DICT: in_python(dict_call),
        FRONTEND_LIST: in_python(list_call),
        FLOOR: lambda n: floor.time("floor_pack_and_execute", n),
        EXECUTE_ONLY: lambda n: floor.time("floor_execute_only", n),
        GENERATED: in_python(generated),
        ALTERNATING: in_python(generated, other),
        DATA_PTR: in_python(with_data_ptr),
    }
    for path in paths.values():
        path(100)
    samples = {path: [] for path in paths}
    # In turn, and from another path in each round: the host's speed drifts within seconds.
    order = list(paths)
    for _ in range(rounds):
        for path in order:
            samples[path] += paths[path](-(-calls // rounds))
        order = order[1:] + order[:1]
    floor.close()
    return samples


def summarise(samples):
    """Return medians and quantiles in microseconds, and the two ratios that count."""
    rows = {}
    for path, values in samples.items():
        deciles = statistics.quantiles(values, n=10)
        rows[path] = {
            "median_us": round(statistics.median(values) / 1e3, 3),
            "p10_us": round(deciles[0] / 1e3, 3),
            "p90_us": round(deciles[-1] / 1e3, 3),
            "calls": len(values),
        }
    generated = rows[GENERATED]["median_us"]
    best = min(rows[FRONTEND_DICT]["median_us"], rows[FRONTEND_LIST]["median_us"])
    ratios = {
        "generated / floor": round(generated / rows[FLOOR]["median_us"], 3),
        "generated / best frontend": round(generated / best, 3),
        "alternating / floor": round(rows[ALTERNATING]["median_us"] / rows[FLOOR]["median_us"], 3),
    }
    return {"rows": rows, "ratios": ratios}


def print_table(console, name, operand_count, result):
    """Print one graph's rows."""
    table = Table("host time of one call", "median µs", "p10", "p90", "× floor")
    table.title = f"{name}, {operand_count} operands"
    floor = result["rows"][FLOOR]["median_us"]
    for path, row in result["rows"].items():
        cells = [f"{row[key]:.2f}" for key in ("median_us", "p10_us", "p90_us")]
        table.add_row(path, *cells, f"{row['median_us'] / floor:.2f}")
    console.print(table)
    console.print(", ".join(f"{what}: {value}" for what, value in result["ratios"].items()))


@click.command()
@click.argument("plans", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--built", is_flag=True, help="Also the graphs of graphs.py, built on this GPU.")
@click.option("--calls", default=2500, show_default=True, help="Calls of each path.")
@click.option("--rounds", default=5, show_default=True, help="Rounds they are spread over.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(plans, built, calls, rounds, json_path):
    """Measure the host time of one call for each PLAN file."""
    console = Console(width=110)
    torch.zeros(1, device="cuda")  # makes the CUDA context current
    handle = graphs.frontend_handle()
    references, files, failures = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for path in plans:
            try:
                references[path.stem] = graphs.reference_graph(path.read_bytes(), handle)
            except (RuntimeError, ValueError, cudnn.cudnnGraphNotSupportedError) as error:
                failures[path.stem] = f"the frontend refuses it: {error}"
                continue
            files[path.stem] = path
        for name in graphs.BUILDERS if built else ():
            try:
                references[f"built_{name}"] = graphs.BUILDERS[name]()
            except cudnn.cudnnGraphNotSupportedError as error:
                failures[name] = f"not supported here: {error}"
                continue
            files[f"built_{name}"] = directory / f"{name}.plan"
            files[f"built_{name}"].write_bytes(graphs.plan_bytes(references[f"built_{name}"]))
        modules = {f"bench_{name}": path for name, path in files.items()}
        for name, failure in graphs.build_modules(modules, directory).items():
            failures[name.removeprefix("bench_")] = failure
            del files[name.removeprefix("bench_")]
        library = compile_floor(directory)

        results = {}
        for name, path in files.items():
            module = graphs.import_module(f"bench_{name}", directory)
            try:
                plan = path.read_bytes()
                samples = measure(name, module, references[name], plan, library, calls, rounds)
            except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                failures[name] = str(error)
                continue
            results[name] = summarise(samples)
            print_table(console, name, len(module.OPERANDS), results[name])

    empty = statistics.median(timing_loop(["None"], {})(2000, lambda: None))
    report = {
        "machine": graphs.machine_facts(),
        "sync_every": SYNC_EVERY,
        "rounds": rounds,
        "python_clock_us": round(empty / 1e3, 3),  # in every row but the two of C
        "graphs": results,
        "failures": failures,
    }
    console.print(report["machine"])
    for name, reason in failures.items():
        console.print(f"{name}: {reason}", markup=False)
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
