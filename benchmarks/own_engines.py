"""Attention by the frontend's own engine: host time and bits of the frontend's call and a module's.

One process, one stream, the same operands, a workspace of the caller. Needs what such engines
compile with: nvidia-cutlass-dsl, apache-tvm-ffi, PyTorch.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

import click
import cudnn
import graphs
import torch
from host_overhead import (
    DIRECT,
    FRONTEND_DICT,
    FRONTEND_LIST,
    RECORD,
    RECORD_NEW,
    literal_call,
    make_sets,
    timing_loop,
)
from rich.console import Console
from rich.table import Table

# How often operands are made anew in `compare`; in between, inputs of floats are filled anew.
_ANEW = 100


def compare(module, graph, count):
    """Call both `count` times, each time with new inputs; return how many calls differ in a bit."""
    handle, operands = graphs.frontend_handle(), module.OPERANDS
    stream = torch.cuda.current_stream().cuda_stream
    cudnn.set_stream(handle, stream)
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
    generator = torch.Generator("cuda").manual_seed(2)
    differing = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(count):
        if number % _ANEW == 0:
            theirs = graphs.make_operands(operands, generator, "cuda")
            ours = graphs.clone(theirs)
        for operand in operands:
            if operand.uid in theirs and operand.role == "input":
                tensor = theirs[operand.uid]
                if tensor.is_floating_point():
                    tensor.normal_(generator=generator)
                    ours[operand.uid].copy_(tensor)
        for tensors in (theirs, ours):
            graphs.poison(operands, tensors)
        graph.execute(theirs, workspace, handle=handle)
        module.execute(*graphs.arguments(operands, ours), stream=stream)
        pairs = ([graphs.storage(each[uid]) for each in (theirs, ours)] for uid in theirs)
        differing += torch.stack([(one != other).any() for one, other in pairs]).any()
    return int(differing)


def measure(module, graph, calls, rounds):
    """Return the median microseconds of each path."""
    handle, operands = graphs.frontend_handle(), module.OPERANDS
    stream = torch.cuda.Stream()
    cudnn.set_stream(handle, stream.cuda_stream)
    sets, workspaces = make_sets(operands, max(1, module.workspace_size()))
    first = sets[0]
    every = [
        literal_call(operands, tensors, scratch.data_ptr(), stream.cuda_stream)
        for tensors, scratch in zip(sets, workspaces, strict=True)
    ]
    uids = tuple(sorted(first))
    names = {
        "execute": module.execute,
        "graph_execute": graph.execute,
        "first": first,
        "buffers": tuple(first[uid] for uid in uids),
        "uids": uids,
        "workspace": workspaces[0],
        "handle": handle,
    }
    loops = {
        FRONTEND_DICT: ("auto", ["graph_execute(first, workspace, handle=handle)"]),
        FRONTEND_LIST: (
            "auto",
            ["graph_execute(buffers, workspace, handle=handle, tensor_uids=uids)"],
        ),
        DIRECT: ("direct", every[:1]),
        RECORD_NEW: ("auto", every),
        RECORD: ("auto", every[:1]),
    }
    timed = {path: timing_loop(texts, names) for path, (_, texts) in loops.items()}
    samples = {path: [] for path in loops}
    for path in itertools.chain(*[loops] * (rounds + 1)):
        module.set_launch_policy(loops[path][0])
        taken = timed[path](calls // rounds, stream.synchronize)
        samples[path].append(taken)
    return {
        path: round(statistics.median(itertools.chain(*taken[1:])) / 1e3, 3)
        for path, taken in samples.items()
    }


def seconds(call):
    """Return what `call` returns and the seconds that it takes, the GPU's work included."""
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return result, round(time.perf_counter() - begin, 4)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--calls", default=2500, show_default=True, help="Calls of each path that are timed.")
@click.option("--rounds", default=5, show_default=True, help="Rounds they are spread over.")
@click.option("--compared", default=10_000, show_default=True, help="Calls compared bit by bit.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(files, calls, rounds, compared, json_path):
    """Measure attention of each graph FILE, planned here with the frontend's own engine."""
    console = Console(width=110)
    torch.zeros(1, device="cuda")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        planned = {}
        for file in files:
            planned[file.stem], taken = seconds(
                lambda file=file: graphs.own_engine(file.read_bytes())
            )
            results[file.stem] = {"planning_s": taken}
            (directory / f"{file.stem}.plan").write_bytes(planned[file.stem][0])
        plans = {f"own_{name}": directory / f"{name}.plan" for name in planned}
        failures = graphs.build_modules(plans, directory)
        if failures:
            raise click.ClickException("\n".join(failures.values()))
        for name, (_, graph) in planned.items():
            module, imported = seconds(
                lambda name=name: graphs.import_module(f"own_{name}", directory)
            )
            tensors = graphs.make_operands(
                module.OPERANDS, torch.Generator("cuda").manual_seed(0), "cuda"
            )
            arguments = graphs.arguments(module.OPERANDS, tensors)
            torch.cuda.synchronize()
            _, first_call = seconds(lambda m=module, a=arguments: m.execute(*a))
            differing = compare(module, graph, compared)
            rows = measure(module, graph, calls, rounds)
            best = min(rows[FRONTEND_DICT], rows[FRONTEND_LIST])
            table = Table("host time of one call", "median µs", "× frontend's best", title=name)
            for path, median in rows.items():
                table.add_row(path, f"{median:.2f}", f"{median / best:.2f}")
            console.print(table)
            results[name] |= {
                "plan": module.GRAPH["plans"][0][3],
                "import_s": imported,
                "first_call_s": first_call,
                "compared": compared,
                "differing": differing,
                "rows": rows,
                "launch_stats": module.launch_stats(),
            }
            console.print({key: results[name][key] for key in results[name] if key != "rows"})
    report = {"machine": graphs.machine_facts(), "rounds": rounds, "own engines": results}
    console.print(report["machine"])
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")
    raise SystemExit(any(each["differing"] for each in results.values()))


if __name__ == "__main__":
    main()
