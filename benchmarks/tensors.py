"""Host time of `run`, which takes tensors and checks them, beside `execute` and the frontend.

    python benchmarks/tensors.py tests/data/plans/cudnn-9.19-sm90/{sdpa_thd,matmul_bias_relu}.plan

As in host_overhead.py all paths run in one process, on one stream, with the GPU idle: what is
measured is how long the call takes to return. Every address changes from call to call.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import cudnn
import graphs
import tensor_paths as way
import torch
from host_overhead import SETS, SYNC_EVERY, make_sets, timing_loop
from rich.console import Console
from rich.table import Table

MODES = {
    "direct": ("direct", SETS),
    "record, two sets in turn": ("record", 2),
    "record, every address new": ("record", SETS),
}
"""Column → launch policy, and the number of sets of operands in turn."""

DIFFERENCES = {
    "run - execute, workspace and stream given to both": (way.RUN_GIVEN, way.EXECUTE),
    "run - execute, runtime's workspace, run asks for the stream": (way.RUN, way.EXECUTE_OWN),
    "what users write today - execute": (way.DATA_PTR, way.EXECUTE_OWN),
    "the same with checks in Python - execute": (way.IN_PYTHON, way.EXECUTE_OWN),
    "checks alone": (way.RUN, way.RUN_UNCHECKED),
    "asking for the current stream": (way.RUN, way.RUN_NUMBER),
    "allocating the outputs": (way.RUN_LEFT_OUT, way.RUN),
}
"""What is derived → the two paths whose medians are subtracted. The first one has a goal."""

GOAL_US = 1.0


def find_operator(name, directory):
    """Return the module's operator of PyTorch, if the build makes one."""
    if not (directory / f"{name}_torch.py").exists():
        return None
    return getattr(graphs.import_module(f"{name}_torch", directory), name)


def torch_options():
    """Return what makes `build` write the operator, if this version knows it."""
    command = [sys.executable, "-m", "cudnn_bindgen.cli", "build", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return ["--torch"] if "--torch" in said.split() else []


def measure(module, graph, calls, rounds, operator):
    """Return the samples in nanoseconds: path → mode → one list for each round."""
    stream = torch.cuda.Stream()
    cudnn.set_stream(graphs.frontend_handle(), stream.cuda_stream)
    size = max(module.workspace_size(), graph.get_workspace_size(), 1)
    sets, workspaces = make_sets(module.OPERANDS, size)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        paths = way.Paths(module, graph, sets, workspaces, operator)
        paths.check(dict.fromkeys(policy for policy, _ in MODES.values()))
        every = [paths.texts(number) for number in range(SETS)]
        loops = {
            (path, mode): timing_loop([texts[path] for texts in every[:count]], paths.names)
            for path in every[0]
            for mode, (_, count) in MODES.items()
        }
        samples = {path: {mode: [] for mode in MODES} for path in every[0]}
        order = list(loops)
        for number in range(rounds + 1):  # the first round warms up
            for path, mode in order:
                module.set_launch_policy(MODES[mode][0])
                with way.surroundings(path):
                    loops[path, mode](min(2 * SETS, calls), stream.synchronize)
                    taken = loops[path, mode](-(-calls // rounds), stream.synchronize)
                samples[path][mode] += [taken] if number else []
            # From another path in each round: the host's speed drifts within seconds.
            turn = len(MODES)
            order = order[turn:] + order[:turn]
    return samples


def summarise(samples, operand_count):
    """Return medians and quantiles in microseconds, and the differences that count."""
    rows = {
        path: {mode: quantiles(taken) for mode, taken in by_mode.items()}
        for path, by_mode in samples.items()
    }
    differences = {}
    for what, (more, less) in DIFFERENCES.items():
        taken = {m: difference(samples[more][m], samples[less][m]) for m in MODES}
        differences[what] = {
            "us": {mode: round(value, 3) for mode, value in taken.items()},
            "ns_per_operand": {m: round(v * 1e3 / operand_count, 1) for m, v in taken.items()},
        }
    return {"operands": operand_count, "rows": rows, "differences": differences}


def difference(more, less):
    """Return the microseconds between two paths, round by round: the host's speed drifts."""
    medians = ([statistics.median(taken) for taken in path] for path in (more, less))
    return statistics.median(a - b for a, b in zip(*medians, strict=True)) / 1e3


def quantiles(rounds):
    """Return what is reported of one path's samples."""
    values = [value for taken in rounds for value in taken]
    deciles = statistics.quantiles(values, n=10)
    return {
        "median_us": round(statistics.median(values) / 1e3, 3),
        "p10_us": round(deciles[0] / 1e3, 3),
        "p90_us": round(deciles[-1] / 1e3, 3),
        "calls": len(values),
    }


def print_tables(console, name, result):
    """Print one graph's rows, and what follows from them."""
    table = Table("host time of one call, median us (p10-p90)", *MODES)
    table.title = f"{name}, {result['operands']} operands"
    for path, row in result["rows"].items():
        cells = (row[mode] for mode in MODES)
        table.add_row(
            path, *(f"{c['median_us']:.2f} ({c['p10_us']:.2f}-{c['p90_us']:.2f})" for c in cells)
        )
    console.print(table)
    table = Table("difference, us (ns an operand)", *MODES)
    for what, values in result["differences"].items():
        pairs = ((values["us"][mode], values["ns_per_operand"][mode]) for mode in MODES)
        table.add_row(what, *(f"{us:.2f} ({ns:.0f})" for us, ns in pairs))
    console.print(table)
    worst = max(result["differences"][next(iter(DIFFERENCES))]["us"].values())
    verdict = "within" if worst <= GOAL_US else "over"
    console.print(f"run takes at most {worst:.2f} us more than execute: {verdict} {GOAL_US} us")


@click.command()
@click.argument(
    "plans", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--calls", default=3000, show_default=True, help="Calls of each path and mode.")
@click.option("--rounds", default=10, show_default=True, help="Rounds they are spread over.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(plans, calls, rounds, json_path):
    """Measure the host time of one call with tensors for each PLAN file."""
    console = Console(width=130)
    torch.zeros(1, device="cuda")  # makes the CUDA context current
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        files = {f"bench_{path.stem}": path for path in plans}
        failures = graphs.build_modules(files, directory, torch_options())
        for path in plans:
            name = f"bench_{path.stem}"
            if name in failures:
                continue
            graph = graphs.reference_graph(path.read_bytes(), graphs.frontend_handle())
            module = graphs.import_module(name, directory)
            try:
                operator = find_operator(name, directory)
                samples = measure(module, graph, calls, rounds, operator)
            except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                failures[name] = f"{type(error).__name__}: {error}"
                continue
            count = sum(operand.role != "scalar" for operand in module.OPERANDS)
            results[path.stem] = summarise(samples, count)
            results[path.stem]["launch_stats"] = module.launch_stats()
            print_tables(console, path.stem, results[path.stem])
            torch.cuda.empty_cache()
    empty = statistics.median(timing_loop(["None"], {})(2000, lambda: None))
    report = {
        "machine": graphs.machine_facts(),
        "sync_every": SYNC_EVERY,
        "rounds": rounds,
        "python_clock_us": round(empty / 1e3, 3),  # in every row
        "goal_us": GOAL_US,
        "tensors": results,
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
