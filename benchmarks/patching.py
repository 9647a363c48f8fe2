"""What setting the parameters of a launch anew costs, in each way that the driver has.

Of each plan's launch, captured by PyTorch: host time of a launch with every kernel's parameters set
first, and the GPU's time of a launch when they follow each other at once.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from pathlib import Path

import click
import graphs
import torch
from floor import WAYS, Floor, compile_floor
from host_overhead import literal_call, make_sets
from rich.console import Console
from rich.table import Table

import cudnn_bindgen

NODES = "cuLaunchKernelEx or cuMemsetD8Async, each node; no graph"
# Launches behind each other that are timed on the GPU.
IN_A_ROW = 2000


def measure(name, plan, library, calls, rounds):
    """Return way → median microseconds on the host, and on the GPU for one of many in a row."""
    module = cudnn_bindgen.load(plan, name=name)
    stream = torch.cuda.Stream()
    sets, workspaces = make_sets(module.OPERANDS, max(1, module.workspace_size()))
    address = workspaces[0].data_ptr()
    call = literal_call(module.OPERANDS, sets[0], address, stream.cuda_stream)
    names = {"execute": module.execute}
    module.set_launch_policy("direct")
    exec(call, names)
    captured = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(captured, stream=stream):
        exec(call, names)
    floor = Floor(library, plan, module.OPERANDS, sets[0], address, stream.cuda_stream)
    graph = captured.raw_cuda_graph()
    paths = {
        way: lambda count, way=way, **options: floor.time_patched(graph, way, count, **options)
        for way in WAYS
    }
    paths[NODES] = lambda count, **options: floor.time_kernels(graph, count, **options)
    samples = {way: [] for way in paths}
    for way in itertools.chain(*[paths] * (rounds + 1)):
        samples[way].append(paths[way](calls // rounds))
    host = {
        way: round(statistics.median(itertools.chain(*taken[1:])) / 1e3, 3)
        for way, taken in samples.items()
    }
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    device = {}
    for way, path in paths.items():
        begin.record(stream)
        path(IN_A_ROW, every=IN_A_ROW)
        end.record(stream)
        stream.synchronize()
        device[way] = round(begin.elapsed_time(end) / IN_A_ROW * 1e3, 3)
    floor.close()
    kinds = [node["kind"] for node in module.launch_nodes()]
    return {"nodes": kinds, "host_us": host, "gpu_us": device}


@click.command()
@click.argument("plans", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--calls", default=2000, show_default=True, help="Launches in each way.")
@click.option("--rounds", default=5, show_default=True, help="Rounds they are spread over.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(plans, calls, rounds, json_path):
    """Measure launches of each PLAN file, patched in each way."""
    console = Console(width=120)
    torch.zeros(1, device="cuda")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        library = compile_floor(Path(folder))
        for plan in plans:
            found = measure(plan.stem, plan.read_bytes(), library, calls, rounds)
            results[plan.stem] = found
            table = Table("a launch", "host µs", "GPU µs")
            table.title = f"{plan.stem}: {', '.join(found['nodes'])}"
            for way, median in found["host_us"].items():
                table.add_row(way, f"{median:.2f}", f"{found['gpu_us'][way]:.2f}")
            console.print(table)
    report = {"machine": graphs.machine_facts(), "patching": results}
    console.print(report["machine"])
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
