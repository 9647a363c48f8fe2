"""Host time of an accelerated graph's `execute` beside the frontend's, called in the same way.

    python benchmarks/accelerate.py --json accelerate.json

As in host_overhead.py all paths run in one process, on one stream, with the GPU idle. Every address
changes from call to call. With a cuDNN that takes overrides (9.24, tools/gpu/with_cudnn.sh) two
graphs whose calls override shapes are measured as well.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import click
import cudnn
import graphs
import torch
from host_overhead import SETS, make_sets, timing_loop
from rich.console import Console
from rich.table import Table

import cudnn_bindgen

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "gpu"))
import overridden

MODES = {
    "direct": ("direct", SETS),
    "record, two sets in turn": ("record", 2),
    "record, every address new": ("record", SETS),
}
"""Column → launch policy of the module, and the number of sets of operands in turn."""

FORMS = {
    "dict": "{graph}.execute(dict{n}, w{n}, handle=handle{how})",
    "list": "{graph}.execute(list{n}, w{n}, handle=handle, tensor_uids=uids{how})",
}
OVERRIDES = ", override_uids=lists[0], override_shapes=lists[1], override_strides=lists[2]"


def measure(graph, accelerated, handle, sets, workspaces, calls, rounds, lists=None):
    """Return the median microseconds of each path: path → mode → number."""
    stream = torch.cuda.Stream()
    cudnn.set_stream(handle, stream.cuda_stream)
    uids = tuple(sorted(sets[0]))
    names = {"frontend": graph, "accelerated": accelerated, "handle": handle, "uids": uids}
    names["lists"] = lists
    for number, (tensors, workspace) in enumerate(zip(sets, workspaces, strict=True)):
        names[f"w{number}"] = workspace
        names[f"dict{number}"] = dict(tensors)
        names[f"list{number}"] = [tensors[uid] for uid in uids]
    how = OVERRIDES if lists else ""
    loops = {}
    for who in ("frontend", "accelerated"):
        for form, text in FORMS.items():
            for mode, (_, count) in MODES.items():
                texts = [text.format(graph=who, n=n, how=how) for n in range(count)]
                loops[f"{who} execute({form})", mode] = timing_loop(texts, names)
    samples = {key: [] for key in loops}
    order = list(loops)
    for number in range(rounds + 1):  # the first round warms up
        for path, mode in order:
            accelerated.module.set_launch_policy(MODES[mode][0])
            loops[path, mode](min(2 * SETS, calls), stream.synchronize)
            taken = loops[path, mode](-(-calls // rounds), stream.synchronize)
            samples[path, mode] += taken if number else []
        order = order[1:] + order[:1]  # the host's speed drifts within seconds
    medians = {}
    for (path, mode), taken in samples.items():
        medians.setdefault(path, {})[mode] = round(statistics.median(taken) / 1e3, 3)
    return medians


def check(graph, accelerated, handle, sets, workspaces, outputs, how):
    """Compare all bytes of a call with the frontend's, under each policy."""
    tensors = sets[0]
    for policy in ("direct", "record"):
        accelerated.module.set_launch_policy(policy)
        results = []
        for one in (graph, accelerated, accelerated, accelerated):
            for uid in outputs:
                graphs.storage(tensors[uid]).fill_(0xFF)
            torch.cuda.synchronize()
            one.execute(tensors, workspaces[0], handle=handle, **how)
            torch.cuda.synchronize()
            results.append({uid: graphs.storage(t).clone() for uid, t in tensors.items()})
        for other in results[1:]:
            for uid, expected in results[0].items():
                assert torch.equal(other[uid], expected), f"{policy}: uid {uid} differs"


def measure_built(builder, calls, rounds):
    """Measure one of graphs.BUILDERS."""
    graph, handle = builder(), graphs.frontend_handle()
    accelerated = cudnn_bindgen.accelerate(graph)
    operands = accelerated.module.OPERANDS
    sets, workspaces = make_sets(operands, max(graph.get_workspace_size(), 1))
    outputs = [operand.uid for operand in operands if operand.role == "output"]
    check(graph, accelerated, handle, sets, workspaces, outputs, {})
    return measure(graph, accelerated, handle, sets, workspaces, calls, rounds)


def measure_overridden(case, size, calls, rounds):
    """Measure a graph of tests/gpu/overridden.py, with the overrides of `size` in each call."""
    accelerated = cudnn_bindgen.accelerate(case.graph)
    generator = torch.Generator("cuda").manual_seed(0)
    overrides = case.overrides(size)
    lists = overridden.as_lists(overrides)
    sets = [case.operands(size, generator) for _ in range(SETS)]
    bytes_needed = max(case.workspace_size(overrides), 1)
    workspaces = [torch.empty(bytes_needed, dtype=torch.uint8, device="cuda") for _ in sets]
    how = dict(zip(("override_uids", "override_shapes", "override_strides"), lists, strict=True))
    check(case.graph, accelerated, case.handle, sets, workspaces, case.outputs, how)
    return measure(case.graph, accelerated, case.handle, sets, workspaces, calls, rounds, lists)


def print_table(console, name, medians):
    """Print one graph's rows."""
    table = Table("host time of one call, median us", *MODES, title=name)
    for path, by_mode in medians.items():
        table.add_row(path, *(f"{by_mode[mode]:.2f}" for mode in MODES))
    console.print(table)


@click.command()
@click.option("--calls", default=2000, show_default=True, help="Calls of each path and mode.")
@click.option("--rounds", default=5, show_default=True, help="Rounds they are spread over.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(calls, rounds, json_path):
    """Measure the host time of one call of accelerated graphs and of the frontend's."""
    console = Console(width=130)
    torch.zeros(1, device="cuda")  # makes the CUDA context current
    jobs = {
        name: lambda builder=builder: measure_built(builder, calls, rounds)
        for name, builder in graphs.BUILDERS.items()
    }
    if cudnn.backend_version() >= overridden.INDPTR_SINCE:
        batch = overridden.Batch((4,) * 64, (64,) * 64)
        jobs["overrides: product"] = lambda: measure_overridden(
            overridden.matmul(), 500, calls, rounds
        )
        jobs["overrides: attention"] = lambda: measure_overridden(
            overridden.sdpa(), batch, calls, rounds
        )
    results, failures = {}, {}
    for name, job in jobs.items():
        try:
            results[name] = job()
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            failures[name] = f"{type(error).__name__}: {error}"
            continue
        print_table(console, name, results[name])
        torch.cuda.empty_cache()
    report = {
        "machine": graphs.machine_facts(),
        "rounds": rounds,
        "accelerate": results,
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
