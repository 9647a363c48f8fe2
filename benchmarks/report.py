"""Turn host_overhead.py's JSON into the table and the plot of benchmarks/README.md.

python benchmarks/report.py benchmarks/h200.json
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import click

HERE = Path(__file__).parent
BEGIN, END = "<!-- begin: report.py -->", "<!-- end: report.py -->"

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
COLORS = ("#9aa5b1", "#52606d", "#2680c2", "#f0b429", "#3ebd93", "#199473", "#cbd2d9")


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
    machine = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    return "\n".join([*lines, "", f"Machine and command: {machine}."])


def svg(report):
    """Return a bar chart: host time of one call for each graph and path."""
    graphs = {name: medians(result) for name, result in report["graphs"].items()}
    bar, gap, left, width = 9, 14, 170, 560
    longest = max(value for values in graphs.values() for value in values.values())
    height = 60 + len(graphs) * (len(COLUMNS) * bar + gap)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, heading in enumerate(COLUMNS):
        x, y = 10 + index % 4 * 190, 14 + index // 4 * 16
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLORS[index]}"/>')
        parts.append(f'<text x="{x + 14}" y="{y}">{escape(heading)}</text>')
    y = 48
    for name, values in graphs.items():
        middle = y + len(COLUMNS) * bar / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>')
        for color, value in zip(COLORS, values.values(), strict=True):
            if value == value:  # a graph without a record has no bar there
                length = value / longest * width
                parts.append(
                    f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 1}" '
                    f'fill="{color}"/>'
                )
                parts.append(
                    f'<text x="{left + length + 3:.1f}" y="{y + bar - 1}" font-size="9">'
                    f"{value:.1f}</text>"
                )
            y += bar
        y += gap
    parts.append(
        f'<text x="{left}" y="{height - 4}">host time of one call, median µs, GPU idle</text>'
    )
    return "\n".join([*parts, "</svg>", ""])


@click.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(results):
    """Write README.md's tables and the plot beside RESULTS."""
    report = json.loads(results.read_text())
    results.with_suffix(".svg").write_text(svg(report))
    readme = HERE / "README.md"
    text = readme.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    readme.write_text(f"{head}{BEGIN}\n{markdown(report)}\n{END}{tail}")


if __name__ == "__main__":
    main()
