"""What it costs that a call says what it lacks: `execute` with the runtime's entry and without.

    python benchmarks/entry.py

No GPU is needed: one graph computes nothing, the other is attention with 12 operands above the
tests' stand-in libraries. Two modules of each, which differ in the line that gives their functions
the entry, are called in turn in one process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import timeit
from pathlib import Path

import click
import graphs
from rich.console import Console
from rich.table import Table

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.compile import compile_module
from cudnn_bindgen.codegen.output import write_files
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.cases import CASES, EMPTY
from support.operands import Operands
from support.standin import Standin

EXPLAIN = "\nexplain_calls("


def build_pair(name, graph, directory):
    """Return `execute` of the module of a graph, as it is emitted and without the entry."""
    pair = []
    for module in (f"{name}_explained", f"{name}_plain"):
        files = render(bind(read_graph(graph)), module, f"{name}.plan")
        text = files[f"{module}.pyx"]
        assert text.count(EXPLAIN) == 1
        if module.endswith("plain"):
            files[f"{module}.pyx"] = text.replace(EXPLAIN, "\n# explain_calls(")
        write_files(directory, files)
        compile_module(directory / f"{module}.pyx", directory)
        pair.append(graphs.import_module(module, directory).execute)
    assert len({refusal(execute) for execute in pair}) == 2
    return pair


def refusal(execute):
    """Return what is said of a call without arguments."""
    try:
        execute()
    except TypeError as error:
        return str(error)


def measure(pair, arguments, calls, rounds):
    """Return for each of the pair the ns a call of every round."""
    text = f"execute({', '.join(map(repr, arguments))})"
    timers = [timeit.Timer(text, globals={"execute": execute}) for execute in pair]
    samples = [[], []]
    for index in range(rounds):
        for which in (0, 1) if index % 2 else (1, 0):
            samples[which].append(timers[which].timeit(calls) / calls * 1e9)
    return samples


@click.command()
@click.option("--calls", default=1000, show_default=True, help="Calls of each module a round.")
@click.option("--rounds", default=1000, show_default=True)
def main(calls, rounds):
    """Print ns a call: the median of the rounds, and that of their differences."""
    table = Table("ns a call", "without the entry", "with it", "difference", "its quartiles")
    with tempfile.TemporaryDirectory() as folder:
        standin = Standin.load(Path(folder) / "standin")
        with standin.context():
            operands = Operands(standin, CASES["thd"])
            for name, graph, arguments in (
                ("empty", EMPTY, [0] * 3),
                ("thd", CASES["thd"].graph, operands.arguments),
            ):
                explained, plain = measure(
                    build_pair(name, graph, Path(folder)), arguments, calls, rounds
                )
                differences = [a - b for a, b in zip(explained, plain, strict=True)]
                low, middle, high = statistics.quantiles(differences, n=4)
                medians = [f"{statistics.median(one):.1f}" for one in (plain, explained)]
                table.add_row(name, *medians, f"{middle:.1f}", f"{low:.1f} to {high:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
