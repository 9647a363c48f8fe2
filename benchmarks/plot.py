"""Results of a benchmark → a bar chart, as SVG."""

from __future__ import annotations

from html import escape

COLORS = (
    *("#9aa5b1", "#52606d", "#2680c2", "#f0b429", "#3ebd93", "#199473", "#cbd2d9", "#e12d39"),
    *("#8719e0", "#da127d", "#0fb5ba"),
)
BAR, GAP, WIDTH, LETTER = 9, 14, 560, 6


def bars(groups, caption):
    """Return a chart of ``{group: {series: value}}``; a NaN has no bar."""
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    colors = dict(zip(series, COLORS, strict=False))
    left = max(170, 20 + LETTER * max(map(len, groups)))
    total = left + WIDTH + 70
    legend = 32 + LETTER * max(map(len, series))
    columns = max(1, (total - 10) // legend)
    rows = -(-len(series) // columns) if len(series) > 1 else 0
    top = 32 + 16 * rows
    longest = max(value for values in groups.values() for value in values.values())
    height = top + 12 + sum(len(values) * BAR + GAP for values in groups.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="15" font-size="12">{escape(caption)}</text>',
    ]
    if rows:
        for index, name in enumerate(series):
            x, y = 10 + index % columns * legend, 34 + index // columns * 16
            parts.append(
                f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colors[name]}"/>'
            )
            parts.append(f'<text x="{x + 14}" y="{y}">{escape(name)}</text>')
    y = top
    for group, values in groups.items():
        middle = y + len(values) * BAR / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle}" text-anchor="end">{escape(group)}</text>')
        for name, value in values.items():
            if value == value:
                length = value / longest * WIDTH
                parts.append(
                    f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{BAR - 1}" '
                    f'fill="{colors[name]}"/>'
                )
                parts.append(
                    f'<text x="{left + length + 3:.1f}" y="{y + BAR - 1}" font-size="9">'
                    f"{value:.1f}</text>"
                )
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>", ""])


def tensors(report):
    """Return the bars of calls with tensors: paths of a graph, by launch policy."""
    return {
        f"{name}: {path}": {mode: row["median_us"] for mode, row in modes.items()}
        for name, result in report.items()
        for path, modes in result["rows"].items()
    }


def accelerate(report):
    """Return the bars of accelerated graphs; the frontend has no launch policy."""
    return {
        name: {
            path if path.startswith("frontend") else f"{path}, {mode}": value
            for path, modes in rows.items()
            for mode, value in modes.items()
            if not path.startswith("frontend") or mode == "direct"
        }
        for name, rows in report.items()
    }


def recording(report):
    """Return the bars of calls alone and recorded."""
    return {
        f"{name}, {path}": row["median_us"]
        for name, graph in report.items()
        for path, row in graph["paths"].items()
    }


def ranks(report):
    """Return the bars of ranks: their median call and the hundredth longest."""
    return {
        f"{key.partition('_')[0]}, {count} {kind}": {path: row[key] for path, row in rows.items()}
        for key in ("p50_us", "p99_us")
        for kind, counts in report.items()
        for count, rows in counts.items()
    }


def ways_to_patch(report):
    """Return the bars of launches with other parameters."""
    return {f"{name}, host time": found["host_us"] for name, found in report.items()} | {
        f"{name}, GPU time": found["gpu_us"] for name, found in report.items()
    }


# What a report has → what its chart shows, and the bars.
CHARTS = {
    "tensors": ("host time of one call with tensors, median µs", tensors),
    "accelerate": ("host time of one call, median µs", accelerate),
    "family": (
        "host time of one call, median µs",
        lambda report: {path: {"median": row["median_us"]} for path, row in report.items()},
    ),
    "recording": ("host time of one call, median µs", recording),
    "own engines": (
        "host time of one call, median µs",
        lambda report: {name: result["rows"] for name, result in report.items()},
    ),
    "ranks": ("host time of one rank's calls beside others on one GPU, µs", ranks),
    "patching": ("one launch with other parameters, median µs", ways_to_patch),
    "layers": (
        "host time of one layer, median µs",
        lambda report: {
            name: {path: row["median_us"] for path, row in found["host"].items()}
            for name, found in report.items()
        },
    ),
    "beside": (
        "host time of one call, median µs",
        lambda report: {path: {"median": value} for path, value in report.items()},
    ),
    "overrides": (
        "host time of one call with overrides, median µs",
        lambda report: {name: graph["median_us"] for name, graph in report.items()},
    ),
}


def chart(kind, report):
    """Return the chart of a report that has `kind`."""
    caption, groups = CHARTS[kind]
    return bars(groups(report), caption)
