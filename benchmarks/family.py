"""Host time of `execute` of a family beside that of the members' own modules, in one process.

The same launches on every path: each member with its own two sets of operands in turn, workspace of
the caller, the GPU idle. What differs is the look-up of the key, and how often the key changes.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import click
import graphs
import torch
from host_overhead import timing_loop
from rich.console import Console
from rich.table import Table

SIZES = (16, 32, 64, 128)

SINGLE = "own modules, in turn"
SINGLE_SAME = "one module again and again"
FAMILY = "family, another key on every call"
FAMILY_SAME = "family, one key again and again"
RUN = "own modules, in turn: run"
FAMILY_RUN = "family, other tensors on every call: run"


class Member:
    """One size: its own module, its operands twice, and the text of calls."""

    def __init__(self, size, module, stream):
        self.size, self.module = size, module
        generator = torch.Generator("cuda").manual_seed(size)
        first = graphs.make_operands(module.OPERANDS, generator, "cuda")
        self.sets = [first, graphs.clone(first)]
        self.workspace = torch.empty(
            max(module.workspace_size(), 1), dtype=torch.uint8, device="cuda"
        )
        self.ends = f"workspace_ptr={self.workspace.data_ptr()}, stream={stream}"

    def call(self, function, turn, key=""):
        """Return the text of a call with addresses."""
        tensors = self.sets[turn]
        values = ", ".join(map(repr, graphs.arguments(self.module.OPERANDS, tensors)))
        return f"{function}({values}, {key}{self.ends})"

    def run(self, function, turn, stream):
        """Return the text of a call with tensors, and those by name."""
        given = [o.uid for o in self.module.OPERANDS if o.role != "scalar"]
        names = {f"t{self.size}_{turn}_{i}": self.sets[turn][uid] for i, uid in enumerate(given)}
        return f"{function}({', '.join(names)}, stream={stream})", names


def paths(members, family, stream):
    """Return each path's calls as texts, and what their names are."""
    names = {f"execute_{m.size}": m.module.execute for m in members}
    names |= {f"run_{m.size}": m.module.run for m in members}
    names |= {"execute": family.execute, "run": family.run}
    turns = [(member, turn) for turn in (0, 1) for member in members]
    first = [(members[0], turn) for turn in (0, 1)]
    texts = {
        SINGLE_SAME: [m.call(f"execute_{m.size}", turn) for m, turn in first],
        FAMILY_SAME: [m.call("execute", turn, f"{m.size}, ") for m, turn in first],
        SINGLE: [m.call(f"execute_{m.size}", turn) for m, turn in turns],
        FAMILY: [m.call("execute", turn, f"{m.size}, ") for m, turn in turns],
        RUN: [],
        FAMILY_RUN: [],
    }
    for member, turn in turns:
        for path, function in ((RUN, f"run_{member.size}"), (FAMILY_RUN, "run")):
            text, tensors = member.run(function, turn, stream)
            texts[path].append(text)
            names |= tensors
    return texts, names


def measure(members, family, calls, rounds):
    """Return the samples of each path in nanoseconds."""
    stream = torch.cuda.Stream()
    found = [Member(size, module, stream.cuda_stream) for size, module in members.items()]
    texts, names = paths(found, family, stream.cuda_stream)
    loops = {path: timing_loop(expressions, names) for path, expressions in texts.items()}
    torch.cuda.synchronize()
    for member in found:  # the same bytes, whichever module launches
        results = []
        for text in (
            member.call(f"execute_{member.size}", 0),
            member.call("execute", 0, f"{member.size}, "),
        ):
            graphs.poison(member.module.OPERANDS, member.sets[0])
            torch.cuda.synchronize()
            eval(text, dict(names))
            torch.cuda.synchronize()
            results.append({uid: graphs.storage(t).clone() for uid, t in member.sets[0].items()})
        assert all(torch.equal(results[0][uid], results[1][uid]) for uid in results[0]), member.size
    for loop in loops.values():
        loop(200, stream.synchronize)
    samples = {path: [] for path in loops}
    order = list(loops)
    for _ in range(rounds):
        for path in order:
            samples[path] += loops[path](-(-calls // rounds), stream.synchronize)
        order = order[1:] + order[:1]
    return samples


@click.command()
@click.option("--calls", default=4000, show_default=True, help="Calls of each path.")
@click.option("--rounds", default=8, show_default=True, help="Rounds they are spread over.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(calls, rounds, json_path):
    """Measure products of several sizes, built on this GPU."""
    console = Console(width=110)
    torch.zeros(1, device="cuda")  # makes the CUDA context current
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        files = {}
        for size in SIZES:
            files[f"single_{size}"] = directory / f"product_{size}.plan"
            files[f"single_{size}"].write_bytes(graphs.plan_bytes(graphs.matmul(size)))
        failed = graphs.build_modules(files, directory)
        if failed:
            raise click.ClickException("\n".join(failed.values()))
        family = graphs.build_family("family", files.values(), directory, ["--key", "M=a.m"])
        singles = {size: graphs.import_module(f"single_{size}", directory) for size in SIZES}
        samples = measure(singles, family, calls, rounds)
    table = Table("host time of one call", "median µs", "p10", "p90")
    table.title = f"products of {len(SIZES)} sizes"
    rows = {}
    for path, values in samples.items():
        deciles = statistics.quantiles(values, n=10)
        figures = statistics.median(values), deciles[0], deciles[-1]
        rows[path] = dict(
            zip(
                ("median_us", "p10_us", "p90_us"), (round(f / 1e3, 3) for f in figures), strict=True
            )
        )
        table.add_row(path, *(f"{figure / 1e3:.3f}" for figure in figures))
    console.print(table)
    report = {
        "machine": graphs.machine_facts(),
        "family": rows,
        "launch_stats": family.launch_stats(),
    }
    console.print(report["machine"])
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
