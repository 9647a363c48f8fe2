"""Host time of one call: the frontend, the same cuDNN calls from C, and the generated module.

All paths run in one process, on one stream, with the same operands and a workspace of the caller,
and with the GPU idle: what is measured is how long the call takes to return, not the kernel.
"""

from __future__ import annotations

import json
import resource
import statistics
import tempfile
import time
from pathlib import Path

import click
import cudnn
import graphs
import torch
from floor import SYNC_EVERY, Floor, compile_floor
from rich.console import Console
from rich.table import Table

import cudnn_bindgen

FRONTEND_DICT = "frontend execute(dict)"
FRONTEND_LIST = "frontend execute(list, tensor_uids=)"
FLOOR = "C: variant pack + cudnnBackendExecute"
EXECUTE_ONLY = "C: cudnnBackendExecute alone"
DIRECT = "generated execute, direct"
DIRECT_NEW = "generated execute, direct, every address new"
RECORD = "generated execute, record, unchanged"
RECORD_TURN = "generated execute, record, two buffer sets in turn"
RECORD_NEW = "generated execute, record, every address new"
DATA_PTR = "generated execute, record, data_ptr() of each tensor"
LOADED = "loaded without compiling: execute, record, unchanged"
LOADED_NEW = "loaded without compiling: execute, record, every address new"
BOUND = "bound call, record, unchanged"
BOUND_ASKING = "bound call, record, unchanged, asks for the stream"
BOUND_ONE = "bound call, record, one operand new"
BOUND_ALL = "bound call, record, every address new"
CPP_NEW = "C++: record, every address new"
BARE = "C: cuGraphLaunch of the same nodes alone"

# More sets of operands than a record keeps executables for and remembers misses of: with all of
# them in turn, every address of every call is new to it.
SETS = 80


TIMING_LOOP = """
def time_calls(iterations, synchronize):
    samples = []
    while len(samples) < iterations:
{body}
    return samples[:iterations]
"""
TIMED_CALL = """\
        {between}
        begin = clock()
        {call}
        samples.append(clock() - begin)
"""


def timing_loop(expressions, names, between=""):
    """Return ``f(iterations, synchronize)`` that times each of the given calls, in turn.

    The calls stand in the loop as a user would write them: no lambda, tuple or dict of the
    benchmark's own comes between. Every SYNC_EVERY calls the GPU may catch up, untimed; so is the
    statement `between` before each call.
    """
    count = -(-SYNC_EVERY // len(expressions)) * len(expressions)
    body = []
    for index in range(count):
        call = expressions[index % len(expressions)]
        body.append(TIMED_CALL.format(call=call, between=between or "pass"))
        if (index + 1) % SYNC_EVERY == 0:
            body.append("        synchronize()\n")
    scope = {**names, "clock": time.perf_counter_ns}
    exec(TIMING_LOOP.format(body="".join(body)), scope)
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


def bind(module, tensors, workspace, stream):
    """Return bound calls by name: on a stream, and on whatever stream is current."""
    given = {o.argument.removesuffix("_ptr"): o for o in module.OPERANDS if o.uid in tensors}
    scalars = {n: tensors[o.uid].item() for n, o in given.items() if o.role == "scalar"}
    operands = {n: tensors[o.uid] for n, o in given.items() if o.role != "scalar"}
    addresses = {name: tensor.data_ptr() for name, tensor in operands.items()}
    options = {**scalars, "workspace": workspace.data_ptr()}
    return {
        "call": module.bind(**addresses, **options, stream=stream),
        "asking_call": module.bind(**operands, **options, check=False),
    }


def bound_call(operands, tensors, workspace):
    """Return the text that gives a bound call other addresses, of some operands, and calls it."""
    changes = [
        f"call.{operand.argument.removesuffix('_ptr')} = {tensors[operand.uid].data_ptr()}"
        for operand in operands
        if operand.role != "scalar"
    ]
    changes += [f"call.workspace = {workspace.data_ptr()}"] if workspace is not None else []
    return "; ".join([*changes, "call()"])


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


def make_sets(operands, size):
    """Return sets of operands at different addresses with the same values, a workspace in each."""
    first = graphs.make_operands(operands, torch.Generator("cuda").manual_seed(0), "cuda")
    sets = [first, *(graphs.clone(first) for _ in range(SETS - 1))]
    workspaces = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in sets]
    return sets, workspaces


def measure(name, module, graph, plan, library, calls, rounds):
    """Return the samples of each path in nanoseconds, and figures beside them."""
    handle, operands = graphs.frontend_handle(), module.OPERANDS
    stream = torch.cuda.Stream()
    raw = stream.cuda_stream
    cudnn.set_stream(handle, raw)
    size = max(module.workspace_size(), graph.get_workspace_size(), 1)
    sets, workspaces = make_sets(operands, size)
    first, workspace = sets[0], workspaces[0]
    torch.cuda.synchronize()

    uids = tuple(sorted(first))
    buffers = tuple(first[uid] for uid in uids)
    every = [
        literal_call(operands, tensors, scratch.data_ptr(), raw)
        for tensors, scratch in zip(sets, workspaces, strict=True)
    ]
    generated = every[0]
    with_data_ptr, named = tensor_call(operands, first, workspace.data_ptr(), raw)
    dict_call = "graph_execute(first, workspace, handle=handle)"
    list_call = "graph_execute(buffers, workspace, handle=handle, tensor_uids=uids)"
    names = {
        **named,
        "execute": module.execute,
        **bind(module, first, workspace, raw),
        "graph_execute": graph.execute,
        "first": first,
        "buffers": buffers,
        "uids": uids,
        "workspace": workspace,
        "handle": handle,
    }

    def run(call):
        return compiled(call, names)

    module.set_launch_policy("direct")
    with torch.cuda.stream(stream):
        assert_same_bytes(name, operands, first, run(dict_call), run("asking_call()"))
    for call in (generated, with_data_ptr, list_call, "call()"):
        assert_same_bytes(name, operands, first, run(dict_call), run(call))
    module.set_launch_policy("auto")
    loaded = cudnn_bindgen.load(plan, name=f"{name}_loaded")
    names["loaded_execute"] = loaded.execute
    every_loaded = [call.replace("execute(", "loaded_execute(", 1) for call in every]
    for _ in range(5):
        assert_same_bytes(name, operands, first, run(dict_call), run(every_loaded[0]))
    memory = memory_of_records([run(call) for call in every], stream)
    assert_same_bytes(name, operands, first, run(dict_call), run(generated))
    floor = Floor(library, plan, operands, first, workspace.data_ptr(), raw)
    assert_same_bytes(
        name, operands, first, run(dict_call), lambda: floor.time("floor_pack_and_execute", 1)
    )
    recording, reason = floor.make_record()

    def in_python(policy, *calls):
        time_calls = timing_loop(calls, names)

        def time_path(iterations):
            module.set_launch_policy(policy)
            with torch.cuda.stream(stream):
                return time_calls(iterations, stream.synchronize)

        return time_path

    one_new = [bound_call(operands[:1], tensors, None) for tensors in sets]
    all_new = [
        bound_call(operands, tensors, scratch)
        for tensors, scratch in zip(sets, workspaces, strict=True)
    ]
    paths = {
        FRONTEND_DICT: in_python("auto", dict_call),
        FRONTEND_LIST: in_python("auto", list_call),
        FLOOR: lambda n: floor.time("floor_pack_and_execute", n),
        EXECUTE_ONLY: lambda n: floor.time("floor_execute_only", n),
        DIRECT: in_python("direct", generated),
        DIRECT_NEW: in_python("direct", *every),
        RECORD_NEW: in_python("auto", *every),
        RECORD_TURN: in_python("auto", *every[:2]),
        RECORD: in_python("auto", generated),
        LOADED_NEW: in_python("auto", *every_loaded),
        LOADED: in_python("auto", every_loaded[0]),
        DATA_PTR: in_python("auto", with_data_ptr),
        BOUND: in_python("auto", "call()"),
        BOUND_ASKING: in_python("auto", "asking_call()"),
        BOUND_ONE: in_python("auto", *one_new),
        BOUND_ALL: in_python("auto", *all_new),
    }
    if not reason:
        paths[BARE] = floor.time_bare_launch
        addresses = [
            {o.uid: t[o.uid].data_ptr() for o in operands if o.role != "scalar"}
            | {None: scratch.data_ptr()}
            for t, scratch in zip(sets, workspaces, strict=True)
        ]
        paths[CPP_NEW] = lambda n: floor.time_record(n, addresses)
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
    gpu = {
        label: gpu_time(module, policy, [compiled(call, names) for call in chosen], stream)
        for label, policy, chosen in (
            ("direct", "direct", every),
            ("record, unchanged", "auto", every[:1]),
            ("record, new addresses", "auto", every),
        )
    }
    beside = {
        "gpu_us_back_to_back": gpu,
        "recording_ms": round(recording * 1e3, 3),
        "memory": memory,
        "reason": reason,
        "launch_stats": module.launch_stats(),
    }
    return samples, beside


def memory_of_records(calls, stream):
    """Return the bytes that a record takes with all the executables it may have."""

    def used():
        stream.synchronize()
        free, total = torch.cuda.mem_get_info()
        resident = int(Path("/proc/self/statm").read_text().split()[1])
        return total - free, resident * resource.getpagesize()

    calls[0]()  # direct: whatever cuDNN takes is there before
    device, host = used()
    for _ in range(3):
        calls[0]()
    for call in calls[:40]:  # each twice: the second time it gets an executable of its own
        call()
        call()
    after_device, after_host = used()
    return {"device_bytes": after_device - device, "host_bytes": after_host - host}


def compiled(call, names):
    """Return a function of the call's text, compiled once."""
    return eval(f"lambda: {call}", names)


def gpu_time(module, policy, calls, stream, count=2000, repeats=5):
    """Return the microseconds a call takes on the stream when calls follow each other at once."""
    module.set_launch_policy(policy)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    results = []
    for _ in range(repeats):
        for index in range(20):
            calls[index % len(calls)]()
        begin.record(stream)
        for index in range(count):
            calls[index % len(calls)]()
        end.record(stream)
        stream.synchronize()
        results.append(begin.elapsed_time(end) / count * 1e3)
    return round(statistics.median(results), 3)


def summarise(samples):
    """Return medians and quantiles in microseconds, and the ratios that count."""
    rows = {}
    for path, values in samples.items():
        deciles = statistics.quantiles(values, n=10)
        rows[path] = {
            "median_us": round(statistics.median(values) / 1e3, 3),
            "p10_us": round(deciles[0] / 1e3, 3),
            "p90_us": round(deciles[-1] / 1e3, 3),
            "calls": len(values),
        }
    median = {path: row["median_us"] for path, row in rows.items()}
    best = min(median[FRONTEND_DICT], median[FRONTEND_LIST])
    ratios = {
        "direct / floor": median[DIRECT] / median[FLOOR],
        "record new / floor": median[RECORD_NEW] / median[FLOOR],
        "record new / best frontend": median[RECORD_NEW] / best,
        "record in turn / floor": median[RECORD_TURN] / median[FLOOR],
        "bound, one new / all new": median[BOUND_ONE] / median[BOUND_ALL],
    }
    if BARE in median:
        ratios["record unchanged / bare launch"] = median[RECORD] / median[BARE]
        ratios["bound unchanged / bare launch"] = median[BOUND] / median[BARE]
    return {"rows": rows, "ratios": {what: round(ratio, 3) for what, ratio in ratios.items()}}


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
    gpu = ", ".join(f"{what} {value}" for what, value in result["gpu_us_back_to_back"].items())
    console.print(f"GPU us a call, back to back: {gpu}; recording {result['recording_ms']} ms")


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
                samples, beside = measure(
                    name, module, references[name], plan, library, calls, rounds
                )
            except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                failures[name] = str(error)
                continue
            results[name] = {**summarise(samples), **beside}
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
