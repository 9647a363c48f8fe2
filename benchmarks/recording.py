"""What `cudnn-bindgen record` adds to a program: per call, and to one that calls 10,000 times.

Per call: rounds inside and outside of `with cudnn_bindgen.record(...)` in turn, in one process.
Whole program: processes that import, load a plan and execute, alone and recorded, in turn.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

import click
import graphs
import torch
from rich.console import Console
from rich.table import Table

import cudnn_bindgen
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.read.graph import read_graph

SYNC_EVERY = 20


def prepare(path):
    """Return the frontend's calls of a plan by name, and what they need alive."""
    torch.zeros(1, device="cuda")
    handle = graphs.frontend_handle()
    plan = path.read_bytes()
    graph = graphs.reference_graph(plan, handle)
    arguments = bind(read_graph(plan)).arguments
    generator = torch.Generator("cuda").manual_seed(0)
    tensors = graphs.make_operands(arguments, generator, "cuda")
    workspace = torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device="cuda")
    uids, buffers = list(tensors), list(tensors.values())
    return {
        "frontend execute(dict)": lambda: graph.execute(tensors, workspace, handle=handle),
        "frontend execute(list, tensor_uids=)": lambda: graph.execute(
            buffers, workspace, handle=handle, tensor_uids=uids
        ),
    }


def timed(call, calls):
    """Return the microseconds of each call; the GPU is idle."""
    found = []
    for number in range(calls):
        if number % SYNC_EVERY == 0:
            torch.cuda.synchronize()
        start = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - start) / 1000)
    return found


def per_call(path, calls, rounds):
    """Return the medians and means of each path, alone and recorded."""
    found = {}
    for name, call in prepare(path).items():
        timed(call, 200)
        times, taken_up = {"alone": [], "recorded": []}, []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(rounds):
                times["alone"].append(timed(call, calls))
                with cudnn_bindgen.record(folder):
                    start = time.perf_counter()
                    timed(call, 2)  # the graph is taken up: once, which builds take longer than
                    taken_up.append(1000 * (time.perf_counter() - start))
                    times["recorded"].append(timed(call, calls))
        # Of whole rounds, so that looks and writing are in it.
        means = {kind: statistics.median(map(statistics.fmean, r)) for kind, r in times.items()}
        medians = {kind: statistics.median(chain(*r)) for kind, r in times.items()}
        found[name] = {
            "mean_us": means,
            "median_us": medians,
            "added": means["recorded"] / means["alone"] - 1,
            "taken_up_ms": statistics.median(taken_up),
        }
    return found


def whole_program(path, calls, rounds):
    """Return the median seconds of processes, and of their 10,000 calls."""
    seconds = {"alone": [], "recorded": []}
    loops = {"alone": [], "recorded": []}
    with tempfile.TemporaryDirectory() as folder:
        record = [sys.executable, "-m", "cudnn_bindgen.cli", "record", "-o", folder, "--"]
        program = [sys.executable, __file__, str(path), "--calls", str(calls), "--program"]
        for _ in range(rounds):
            for kind, command in (("alone", program), ("recorded", record + program)):
                start = time.perf_counter()
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds[kind].append(time.perf_counter() - start)
                loops[kind].append(float(done.stdout.splitlines()[-1]))
    return {
        "program_s": {kind: statistics.median(values) for kind, values in seconds.items()},
        "calls_s": {kind: statistics.median(values) for kind, values in loops.items()},
    }


@click.command()
@click.argument("plans", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--calls", default=10_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--programs", default=9, show_default=True, help="Processes of each kind.")
@click.option("--json", "output", type=click.Path(path_type=Path))
@click.option("--program", is_flag=True, hidden=True)
def main(plans, calls, rounds, programs, output, program):
    """Measure what recording adds to calls of PLANS."""
    if program:
        call = prepare(plans[0])["frontend execute(list, tensor_uids=)"]
        start = time.perf_counter()
        for number in range(calls):
            call()
            if number % SYNC_EVERY == 0:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        print(time.perf_counter() - start)
        return
    results = {}
    table = Table("graph", "path", "alone µs", "recorded µs", "added", "program s", "recorded s")
    for path in plans:
        rows = per_call(path, calls, rounds)
        whole = whole_program(path, calls, programs)
        results[path.stem] = {"paths": rows, **whole}
        for name, row in rows.items():
            means = row["mean_us"]
            table.add_row(
                *(path.stem, name, f"{means['alone']:.2f}", f"{means['recorded']:.2f}"),
                f"{row['added']:+.1%}",
                *(f"{whole['program_s'][kind]:.2f}" for kind in ("alone", "recorded")),
            )
    Console(width=160).print(table)
    if output:
        report = {"machine": graphs.machine_facts(), "calls": calls, "recording": results}
        output.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
