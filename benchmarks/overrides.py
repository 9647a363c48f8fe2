"""Host time of a call with overrides: the frontend, the same from C, and the generated module.

    tools/gpu/with_cudnn.sh 9.27 python3 benchmarks/overrides.py --json overrides.json

A product whose rows change and attention over ragged sequences with ten overridden operands; as in
host_overhead.py all paths run in one process on one stream, the GPU idle. Needs cuDNN 9.24.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import click
import cudnn
import graphs
import torch
from floor import Floor, compile_floor
from host_overhead import timing_loop
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "gpu"))
import overridden

FLOOR = "C: variant pack with overrides + cudnnBackendExecute"
FLOOR_NEVER = "C: the same, shapes that never repeat"
FRONTEND_DICT = "frontend execute(dict, override_uids=...)"
FRONTEND_LIST = "frontend execute(list, tensor_uids=, override_uids=...)"
DIRECT = "generated execute, direct"
NEVER = "generated execute, auto, shapes that never repeat"
NEVER_DIRECT = "generated execute, direct, shapes that never repeat"
RECORD = "generated execute, record of a class that repeats"
EIGHT = "generated execute, record, eight classes in turn"
PLAIN = "generated execute, record, no overrides"
SET = "overrides.set(...) alone"

NEVER_CALLS = 400

OFFSETS = ",".join(f"ragged_{name}.0+1" for name in "qkvo")
SYMBOLS = {
    "matmul": 'M = "a.m,c.m"',
    "sdpa": f'B = "q.b,k.b,v.b,o.b,{OFFSETS},cu_seq_len_q.0+1,cu_seq_len_kv.0+1"\n'
    'S_q = "q.s,o.s"\nS_kv = "k.s,v.s"',
}


def of_matmul(m):
    """Return the symbols of a product of `m` rows."""
    return {"M": m}


def of_batch(batch):
    """Return the symbols of a batch of sequences."""
    return {"B": len(batch.q), "S_q": batch.longest[0], "S_kv": batch.longest[1]}


def sizes_of(name, count):
    """Return different sizes of a call, largest first: operands of the first serve all."""
    if name == "matmul":
        return [512 - 8 * number for number in range(count)]
    lengths = [64 - number for number in range(count)]
    return [overridden.Batch((4,) * n, (64,) * n) for n in lengths]


def as_keywords(symbols):
    """Return the text of keyword arguments."""
    return ", ".join(f"{name}={value}" for name, value in symbols.items())


def measure(name, case, module, library, calls, rounds):
    """Return the samples of each path in nanoseconds."""
    stream = torch.cuda.Stream()
    raw = stream.cuda_stream
    cudnn.set_stream(case.handle, raw)
    symbols = of_matmul if name == "matmul" else of_batch
    sizes = sizes_of(name, 40)
    generator = torch.Generator("cuda").manual_seed(0)
    tensors = case.operands(sizes[0], generator)
    every = [module.Overrides() for _ in sizes]
    for overrides, size in zip(every, sizes, strict=True):
        overrides.set(**symbols(size))
    needed = max(max(map(module.workspace_size, every)), case.workspace_size({}), 1)
    workspace = torch.empty(needed, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()

    addresses = ", ".join(map(repr, graphs.arguments(module.OPERANDS, tensors)))
    tail = f"workspace_ptr={workspace.data_ptr()}, stream={raw}"
    call = f"execute({addresses}, {tail}, overrides=%s)"
    lists = overridden.as_lists(case.overrides(sizes[0]))
    uids = tuple(sorted(tensors))
    names = {
        "execute": module.execute,
        "graph_execute": case.graph.execute,
        "tensors": tensors,
        "buffers": tuple(tensors[uid] for uid in uids),
        "uids": uids,
        "workspace": workspace,
        "handle": case.handle,
        "lists": lists,
        "ov": every[0],
        **{f"ov{index}": overrides for index, overrides in enumerate(every)},
    }
    how = "override_uids=lists[0], override_shapes=lists[1], override_strides=lists[2]"
    dict_call = f"graph_execute(tensors, workspace, handle=handle, {how})"
    list_call = f"graph_execute(buffers, workspace, handle=handle, tensor_uids=uids, {how})"
    check(name, case, module, tensors, every[0], sizes[0], addresses, tail)

    operands = [
        SimpleNamespace(uid=uid, role="output" if uid in case.outputs else "input")
        for uid in tensors
    ]
    plan = graphs.plan_bytes(case.graph)
    floor = Floor(library, plan, operands, tensors, workspace.data_ptr(), raw)
    sets = [case.overrides(sizes[0])]
    paths = {
        FRONTEND_DICT: (None, timing_loop([dict_call], names)),
        FRONTEND_LIST: (None, timing_loop([list_call], names)),
        DIRECT: ("direct", timing_loop([call % "ov"], names)),
        RECORD: ("record", timing_loop([call % "ov"], names)),
        EIGHT: ("record", timing_loop([call % f"ov{i}" for i in range(8)], names)),
        PLAIN: ("record", timing_loop([call % "None"], names)),
        SET: (None, timing_loop([f"ov39.set({as_keywords(symbols(sizes[0]))})"], names)),
    }
    samples = {path: [] for path in (FLOOR, *paths)}
    for number in range(rounds + 1):
        for path, (policy, loop) in paths.items():
            if policy:
                module.set_launch_policy(policy)
            taken = loop(calls // rounds, stream.synchronize)
            samples[path] += taken if number else []
        taken = floor.time_overridden(calls // rounds, sets)
        samples[FLOOR] += taken if number else []
    samples[FLOOR_NEVER] = floor.time_overridden(NEVER_CALLS, list(never_the_same(case, sizes[0])))
    floor.close()
    return samples, module.launch_stats()


def never_the_same(case, size):
    """Yield overrides for the same work, each with another stride of the batch axis."""
    whole = case.overrides(size)
    dim, stride = whole[1]
    for number in range(NEVER_CALLS):
        yield {**whole, 1: (dim, [stride[0] + 8 * number, *stride[1:]])}


def check(name, case, module, tensors, overrides, size, addresses, tail):
    """Compare all bytes with the frontend's before anything is timed."""
    expected = case.expected(tensors, case.overrides(size))
    for policy in ("direct", "record", "record", "record"):
        module.set_launch_policy(policy)
        for uid in case.outputs:
            graphs.storage(tensors[uid]).fill_(0xFF)
        torch.cuda.synchronize()
        eval(
            f"execute({addresses}, {tail}, overrides=ov)",
            {"execute": module.execute, "ov": overrides},
        )
        torch.cuda.synchronize()
        for uid, tensor in tensors.items():
            same = torch.equal(graphs.storage(tensor), expected[uid])
            assert same, f"{name}: uid {uid} differs from the frontend's"


def never_repeating(name, case, module, rounds):
    """Return the samples of calls whose shapes never came before, and how many were recorded.

    Each call has an Overrides of its own, which nothing has in its caches: hence both policies.
    """
    stream = torch.cuda.Stream()
    symbols = of_matmul if name == "matmul" else of_batch
    size = sizes_of(name, 1)[0]
    tensors = case.operands(size, torch.Generator("cuda").manual_seed(1))
    workspace = torch.empty(1 << 22, dtype=torch.uint8, device="cuda")
    arguments = graphs.arguments(module.OPERANDS, tensors)
    module.set_launch_policy("auto")
    before = module.launch_stats()["recorded"]
    kept = []
    for _ in range(NEVER_CALLS):
        overrides = module.Overrides()
        overrides.set(**symbols(size))
        kept.append(overrides)
    names = {"execute": module.execute, **{f"ov{n}": o for n, o in enumerate(kept)}}
    addresses = ", ".join(map(repr, arguments))
    text = f"execute({addresses}, {workspace.data_ptr()}, {stream.cuda_stream}"
    loop = timing_loop([f"{text}, ov{number})" for number in range(NEVER_CALLS)], names)
    samples = {NEVER: [], NEVER_DIRECT: []}
    for number in range(rounds + 1):
        for policy, path in (("direct", NEVER_DIRECT), ("auto", NEVER)):
            # Set anew: nothing that a call keeps beside the values is there.
            for overrides, values in zip(kept, never_the_same(case, size), strict=True):
                overrides.override(1, *values[1])
            module.set_launch_policy(policy)
            taken = loop(NEVER_CALLS, stream.synchronize)
            samples[path] += taken if number else []
    return samples, module.launch_stats()["recorded"] - before


@click.command()
@click.option("--calls", default=2500, show_default=True, help="Calls of each path.")
@click.option("--rounds", default=5, show_default=True, help="Rounds they are spread over.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(calls, rounds, json_path):
    """Measure the host time of one call with overrides."""
    console = Console(width=110)
    torch.zeros(1, device="cuda")
    cases = {"matmul": overridden.matmul(), "sdpa": overridden.sdpa()}
    report = {"machine": graphs.machine_facts(), "overrides": {}}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        files = {}
        for name, case in cases.items():
            files[f"bench_{name}"] = directory / f"{name}.plan"
            files[f"bench_{name}"].write_bytes(graphs.plan_bytes(case.graph))
            (directory / f"{name}.plan.toml").write_text(f"[symbols]\n{SYMBOLS[name]}\n")
        failed = graphs.build_modules(files, directory)
        assert not failed, failed
        library = compile_floor(directory)
        for name, case in cases.items():
            module = graphs.import_module(f"bench_{name}", directory)
            samples, stats = measure(name, case, module, library, calls, rounds)
            never, recorded = never_repeating(name, case, module, rounds)
            samples |= never
            medians = {path: statistics.median(values) / 1e3 for path, values in samples.items()}
            report["overrides"][name] = {
                "median_us": {path: round(value, 3) for path, value in medians.items()},
                "hit_rate": stats["hit_rate"],
                "recorded_for_shapes_that_never_repeat": recorded,
            }
            table = Table("host time of one call", "median µs", "× floor")
            table.title = f"{name}, {len(case.overrides(sizes_of(name, 1)[0]))} overridden operands"
            for path, value in medians.items():
                table.add_row(path, f"{value:.2f}", f"{value / medians[FLOOR]:.2f}")
            console.print(table)
            console.print(f"recorded for shapes that never repeat: {recorded}")
    console.print(report["machine"])
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
