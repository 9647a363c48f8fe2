"""A decoder layer as a chain beside its eight graphs' own modules called in turn, in one process.

All by launch records, on one stream, with workspace of the caller, the GPU idle. Addresses repeat,
or come from so many sets of buffers that each call patches all of them; what lies between the
graphs is inside the chain's workspace, and for the modules in buffers that stay.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import click
import graphs
import layer
import torch
from host_overhead import timing_loop
from rich.console import Console
from rich.table import Table

SETS = 80  # more than a record remembers

CHAIN, CHAIN_NEW = "chain, addresses repeat", "chain, every address new"
TURN, TURN_NEW = "modules in turn, addresses repeat", "modules in turn, every address new"


class Paths:
    """The chain and its links' modules, with buffers, and the text of calls."""

    def __init__(self, name, directory, sets):
        self.layer = layer.LAYERS[name]
        self.chain, self.modules, _ = self.layer.make(name, directory)
        first = self.layer.tensors(0)
        self.sets = [first]
        for _ in range(1, sets):
            self.sets.append(
                {
                    name: one if isinstance(one, float) or name in self.layer.inner else one.clone()
                    for name, one in first.items()
                }
            )
        self.stream = torch.cuda.Stream()
        every = [self.chain, *self.modules.values()]
        for module in every:
            module.set_launch_policy("record")
        size = max(module.workspace_size() for module in every)
        self.workspace = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
        end = f"workspace_ptr={self.workspace.data_ptr()}, stream={self.stream.cuda_stream}"
        self.names = {"chain": self.chain.execute}
        self.names |= {link: module.execute for link, module in self.modules.items()}
        self.chains = [
            f"chain({self._said(self.layer.arguments(self.chain, t))}, {end})" for t in self.sets
        ]
        # Statements, as a user would write them.
        self.turns = [
            "; ".join(
                f"{link}({self._said(self.layer.link_arguments(link, module, t))}, {end})"
                for link, module in self.modules.items()
            )
            for t in self.sets
        ]

    @staticmethod
    def _said(values):
        return ", ".join(map(repr, values))

    def check(self):
        """Compare the outputs of both paths."""
        found = []
        for text in (self.chains[0], self.turns[0]):
            for _ in range(3):  # direct, recorded, repeated
                self.sets[0]["y"].view(torch.int16).fill_(-1)
                torch.cuda.synchronize()
                exec(text, dict(self.names))
                self.stream.synchronize()
            found.append(self.sets[0]["y"][: self.layer.rows].view(torch.int16).clone())
        assert torch.equal(*found), "the chain's bits are not those of the modules in turn"

    def host_time(self, calls, rounds):
        """Return the samples of each path in nanoseconds."""
        texts = {
            CHAIN: self.chains[:1],
            TURN: self.turns[:1],
            CHAIN_NEW: self.chains,
            TURN_NEW: self.turns,
        }
        loops = {path: timing_loop(each, self.names) for path, each in texts.items()}
        for loop in loops.values():
            loop(200, self.stream.synchronize)
        samples = {path: [] for path in loops}
        order = list(loops)
        for _ in range(rounds):
            for path in order:
                samples[path] += loops[path](-(-calls // rounds), self.stream.synchronize)
            order = order[1:] + order[:1]
        return samples

    def device_time(self, text, count=200, repeats=9):
        """Return the microseconds of one call when calls follow each other at once."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call = compile(text, "call", "exec")
        scope = dict(self.names)
        results = []
        for _ in range(repeats):
            for _ in range(20):
                exec(call, scope)
            begin.record(self.stream)
            for _ in range(count):
                exec(call, scope)
            end.record(self.stream)
            self.stream.synchronize()
            results.append(begin.elapsed_time(end) / count * 1e3)
        return round(statistics.median(results), 3)


def measure(name, calls, rounds, sets):
    """Return what one layer costs."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(name, folder, sets)
        paths.check()
        rows = {}
        for path, values in paths.host_time(calls, rounds).items():
            deciles = statistics.quantiles(values, n=10)
            figures = statistics.median(values), deciles[0], deciles[-1]
            names = ("median_us", "p10_us", "p90_us")
            rows[path] = dict(zip(names, (round(f / 1e3, 3) for f in figures), strict=True))
        return {
            "host": rows,
            "device_us": {
                "chain": paths.device_time(paths.chains[0]),
                "modules in turn": paths.device_time(paths.turns[0]),
            },
            "nodes": len(paths.chain.launch_nodes()),
            "chain": paths.chain.launch_stats(),
            "modules": {link: m.launch_stats() for link, m in paths.modules.items()},
        }


@click.command()
@click.option("--calls", default=2000, show_default=True, help="Calls of each path.")
@click.option("--rounds", default=8, show_default=True, help="Rounds they are spread over.")
@click.option("--sets", default=SETS, show_default=True, help="Sets of buffers.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(calls, rounds, sets, json_path):
    """Measure decoder layers, built on this GPU."""
    console = Console(width=110)
    torch.zeros(1, device="cuda")  # makes the CUDA context current
    report = {"machine": graphs.machine_facts(), "layers": {}}
    for name in layer.LAYERS:
        found = report["layers"][name] = measure(name, calls, rounds, sets)
        table = Table("host time of one layer", "median µs", "p10", "p90", title=name)
        for path, row in found["host"].items():
            table.add_row(path, *(f"{figure:.3f}" for figure in row.values()))
        console.print(table)
        median = {path: row["median_us"] for path, row in found["host"].items()}
        device = found["device_us"]
        console.print(
            f"chain / modules: addresses repeat {median[CHAIN] / median[TURN]:.2f}, new "
            f"{median[CHAIN_NEW] / median[TURN_NEW]:.2f}; on the GPU {device} µs, "
            f"{found['nodes']} nodes; reason {found['chain']['reason']!r}"
        )
    console.print(report["machine"])
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
