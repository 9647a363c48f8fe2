"""Turn the JSON of a benchmark into its part of benchmarks/README.md.

python benchmarks/report.py benchmarks/h200.json            # of host_overhead.py
python benchmarks/report.py benchmarks/h200-tensors.json    # of tensors.py; others likewise

Beside each JSON it writes a plot.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
from plot import CHARTS, bars, chart

HERE = Path(__file__).parent

# Column heading → row of the results.
COLUMNS = {
    "frontend, best": None,  # the faster of its two calls
    "C: pack + execute": "C: variant pack + cudnnBackendExecute",
    "direct": "generated execute, direct",
    "record, every address new": "generated execute, record, every address new",
    "record, two sets in turn": "generated execute, record, two buffer sets in turn",
    "record, unchanged": "generated execute, record, unchanged",
    "cuGraphLaunch alone": "C: cuGraphLaunch of the same nodes alone",
}


def medians(result):
    """Return column heading → microseconds for one graph."""
    rows = {name: row["median_us"] for name, row in result["rows"].items()}
    best = min(value for name, value in rows.items() if name.startswith("frontend"))
    return {
        heading: best if row is None else rows.get(row, float("nan"))
        for heading, row in COLUMNS.items()
    }


def markdown(report):
    """Return the tables: host time, ratios and GPU time."""
    graphs = report["graphs"]
    lines = ["| graph | " + " | ".join(COLUMNS) + " |", "| --- |" + " ---: |" * len(COLUMNS)]
    for name, result in graphs.items():
        cells = [f"{value:.2f}" for value in medians(result).values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    ratios = list(next(iter(graphs.values()))["ratios"])
    lines += ["", "| graph | " + " | ".join(ratios) + " |", "| --- |" + " ---: |" * len(ratios)]
    for name, result in graphs.items():
        cells = [f"{result['ratios'].get(ratio, float('nan')):.2f}" for ratio in ratios]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    gpu = list(next(iter(graphs.values()))["gpu_us_back_to_back"])
    heads = [*(f"GPU µs, {kind}" for kind in gpu), "recording ms"]
    lines += ["", "| graph | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, result in graphs.items():
        cells = [f"{result['gpu_us_back_to_back'][kind]:.2f}" for kind in gpu]
        cells.append(f"{result['recording_ms']:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def tensor_markdown(report):
    """Return the tables of calls with tensors: host time, and what the differences are."""
    graphs = report["tensors"]
    modes = list(next(iter(next(iter(graphs.values()))["rows"].values())))
    heads = [f"{name}, {mode}" for name in graphs for mode in modes]
    head = " | ".join(heads) + " |"
    rule = "| --- |" + " ---: |" * len(heads)
    lines = [f"| µs a call | {head}", rule]
    # An optional path may be missing for a graph.
    paths = dict.fromkeys(path for result in graphs.values() for path in result["rows"])
    for path in paths:
        rows = [result["rows"].get(path, {}) for result in graphs.values()]
        cells = [row[mode]["median_us"] if row else float("nan") for row in rows for mode in modes]
        lines.append(f"| {path} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    lines += ["", f"| µs (ns an operand) | {head}", rule]
    for what in next(iter(graphs.values()))["differences"]:
        values = [result["differences"][what] for result in graphs.values()]
        cells = [(value["us"][m], value["ns_per_operand"][m]) for value in values for m in modes]
        lines.append(f"| {what} | " + " | ".join(f"{us:.2f} ({ns:.0f})" for us, ns in cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def accelerate_markdown(report):
    """Return the table of accelerated graphs: a graph for each row."""
    graphs = report["accelerate"]
    columns = [
        (path, mode)
        for path, modes in next(iter(graphs.values())).items()
        # The frontend knows nothing of the module's launch policy.
        for mode in (list(modes)[:1] if path.startswith("frontend") else modes)
    ]
    heads = [path if path.startswith("frontend") else f"{path}, {mode}" for path, mode in columns]
    lines = ["| graph | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(columns)]
    for name, rows in graphs.items():
        cells = [f"{rows[path][mode]:.2f}" for path, mode in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def family_markdown(report):
    """Return the table of a family beside the modules of its members."""
    lines = ["| path | median µs | p10 | p90 |", "| --- | ---: | ---: | ---: |"]
    for path, row in report["family"].items():
        cells = [f"{row[key]:.2f}" for key in ("median_us", "p10_us", "p90_us")]
        lines.append(f"| {path} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def recording_markdown(report):
    """Return the tables of recording: each call, and the whole program."""
    heads = ("mean µs, alone", "recorded", "median µs, alone", "recorded")
    lines = ["| graph, path | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, graph in report["recording"].items():
        for path, row in graph["paths"].items():
            cells = [row[key][kind] for key in ("mean_us", "median_us") for kind in row[key]]
            lines.append(f"| {name}, {path} | " + " | ".join(f"{c:.2f}" for c in cells) + " |")
    lines += ["", "| program of 10,000 calls | alone | recorded |", "| --- | ---: | ---: |"]
    for name, graph in report["recording"].items():
        for key, what in (("program_s", "from start to end, s"), ("calls_s", "its calls, s")):
            cells = [f"{graph[key][kind]:.2f}" for kind in ("alone", "recorded")]
            lines.append(f"| {name}: {what} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def own_engines_markdown(report):
    """Return the table of the frontend's own engines: a graph for each row."""
    graphs = report["own engines"]
    paths = list(next(iter(graphs.values()))["rows"])
    fields = {"planning_s": "planning, s", "import_s": "import, s", "first_call_s": "first call, s"}
    heads = [*paths, *fields.values(), "calls that differ"]
    lines = ["| graph | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, result in graphs.items():
        rows = result["rows"]
        best = min(value for path, value in rows.items() if path.startswith("frontend"))
        cells = [
            f"{rows[path]:.2f}"
            + ("" if path.startswith("frontend") else f" ({rows[path] / best:.2f} ×)")
            for path in paths
        ]
        cells += [f"{result[field]:.4g}" for field in fields]
        cells.append(f"{result['differing']} of {result['compared']:,}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def beside_markdown(report):
    """Return the table of calls that people know."""
    lines = ["| call | median µs |", "| --- | ---: |"]
    lines += [f"| {path} | {median:.2f} |" for path, median in report["beside"].items()]
    lines += [f"| {path} | missing: {why} |" for path, why in report["missing"].items()]
    return "\n".join([*lines, "", machine(report)])


def chains_markdown(report):
    """Return the table of chains beside their graphs' modules: a layer for each row."""
    layers = report["layers"]
    paths = list(next(iter(layers.values()))["host"])
    devices = list(next(iter(layers.values()))["device_us"])
    heads = [*paths, *(f"GPU: {name}" for name in devices), "graphs", "nodes"]
    lines = ["| layer | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name, found in layers.items():
        cells = [f"{found['host'][path]['median_us']:.2f}" for path in paths]
        cells += [f"{found['device_us'][what]:.1f}" for what in devices]
        cells += [str(len(found["modules"])), str(found["nodes"])]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def patching_markdown(report):
    """Return the table of ways to set parameters anew: host and GPU time of each graph."""
    graphs = report["patching"]
    heads = [f"{name} ({', '.join(found['nodes'])})" for name, found in graphs.items()]
    lines = ["| µs a launch: host, GPU | " + " | ".join(heads) + " |"]
    lines.append("| --- |" + " ---: |" * len(heads))
    for way in next(iter(graphs.values()))["host_us"]:
        cells = [f"{g['host_us'][way]:.2f}, {g['gpu_us'][way]:.2f}" for g in graphs.values()]
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


def ranks_markdown(report):
    """Return the table of ranks: a path for each row, kinds and numbers of ranks as columns."""
    kinds = {
        f"{count} {kind}": rows
        for kind, counts in report["ranks"].items()
        for count, rows in counts.items()
    }
    lines = []
    for key, what in (
        ("p50_us", "p50, µs"),
        ("p99_us", "p99, µs"),
        ("worst_us", "worst, µs"),
        ("calls_a_second", "calls a second, all ranks"),
        ("switches_in_1000_calls", "waits of the thread in 1,000 calls"),
    ):
        lines += [f"| {what} | " + " | ".join(kinds) + " |", "| --- |" + " ---: |" * len(kinds)]
        for path in dict.fromkeys(path for rows in kinds.values() for path in rows):
            cells = [f"{rows[path][key]:,}" if path in rows else "-" for rows in kinds.values()]
            lines.append(f"| {path} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join([*lines, machine(report)])


def machine(report):
    """Return where and how the figures were made."""
    facts = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    return f"Machine and command: {facts}."


def overrides_markdown(report):
    """Return the table of calls with overrides: a path for each row."""
    medians = [graph["median_us"] for graph in report["overrides"].values()]
    lines = ["| path | " + " | ".join(report["overrides"]) + " |"]
    lines.append("| --- |" + " ---: |" * len(medians))
    for path in medians[0]:
        cells = [f"{one[path]:.2f}" for one in medians]
        lines.append(f"| {path} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", machine(report)])


@click.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(results):
    """Write the tables of RESULTS into README.md, and the plot beside RESULTS."""
    report = json.loads(results.read_text())
    picture = results.with_suffix(".svg")
    for kind, render in RENDERERS.items():
        if kind in report:
            picture.write_text(chart(kind, report[kind]))
            plot = f"![{CHARTS[kind][0]}]({picture.name})"
            made = f"Plot and table: `python benchmarks/report.py benchmarks/{results.name}`."
            fill(f", {kind}", f"{plot}\n\n{render(report)}\n{made}")
            return
    graphs = {name: medians(result) for name, result in report["graphs"].items()}
    picture.write_text(bars(graphs, "host time of one call, median µs, GPU idle"))
    fill("", markdown(report))


# What a report has → its tables.
RENDERERS = {
    "tensors": tensor_markdown,
    "accelerate": accelerate_markdown,
    "family": family_markdown,
    "recording": recording_markdown,
    "own engines": own_engines_markdown,
    "ranks": ranks_markdown,
    "patching": patching_markdown,
    "layers": chains_markdown,
    "beside": beside_markdown,
    "overrides": overrides_markdown,
}


def fill(kind, tables):
    """Put the tables between the marks of their kind in README.md."""
    begin, end = (f"<!-- {side}: report.py{kind} -->" for side in ("begin", "end"))
    readme = HERE / "README.md"
    head, rest = readme.read_text().split(begin)
    tail = rest.split(end)[1]
    readme.write_text(f"{head}{begin}\n{tables}\n{end}{tail}")


if __name__ == "__main__":
    main()
