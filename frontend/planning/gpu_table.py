"""The table of GPUs, as one document for programs and as a table for people."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cudnn_bindgen.frontend.planning.gpus import device_properties, load_table

_COLUMNS = 80


def as_document() -> dict[str, Any]:
    """Return all that is known of each GPU."""
    table = load_table()
    return {
        "sources": table.sources,
        "gpus": [
            {
                "name": name,
                "aliases": [alias for alias, gpu in table.aliases.items() if gpu == name],
                "sm": gpu.sm,
                "sm_count": gpu.sm_count,
                "sources": gpu.sources.split(),
                "unsure": gpu.unsure,
                "properties": msgspec.Raw(device_properties(name)),
            }
            for name, gpu in table.gpus.items()
        ],
    }


def print_gpus() -> None:
    """Print the names and what stands behind them, in 80 columns."""
    table = load_table()
    console = Console(highlight=False, emoji=False, width=_COLUMNS)
    listing = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    listing.add_column("name", no_wrap=True)
    for column in ("SM", "SMs", "GiB", "MHz", "memory"):
        listing.add_column(column, justify="right", no_wrap=True)
    listing.add_column("source", no_wrap=True)
    for name, gpu in table.gpus.items():
        cells = {
            "sm_count": str(gpu.sm_count),
            "memory": f"{gpu.memory / 2**30:.0f}",
            "clock": str(gpu.clock),
            "memory_clock": str(gpu.memory_clock),
        }
        marked = [text + ("?" if field in gpu.unsure else " ") for field, text in cells.items()]
        listing.add_row(name, str(gpu.sm), *marked, gpu.sources)
    console.print(listing)
    names = ", ".join(f"{alias} = {name}" for alias, name in table.aliases.items())
    lines = [
        "",
        "MHz: boost clock. memory: its clock in MHz. ?: unsure.",
        *textwrap.wrap(f"Also: {names}", _COLUMNS, break_on_hyphens=False),
        *(f"{key}: {source}" for key, source in table.sources.items()),
    ]
    for line in lines:
        console.print(escape(line), soft_wrap=True)
