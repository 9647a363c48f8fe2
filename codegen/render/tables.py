"""Rows → tables for people, which lose no letter however narrow the terminal is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# Laying out a table takes a while; real graphs have some hundred nodes.
_MOST_ROWS = 1000
# A pipe has no width of its own; rows that fit are one line each, for grep.
_PIPE = 200


class Tables:
    """Prints paragraphs and tables on standard output or standard error."""

    def __init__(self, *, stderr: bool = False) -> None:
        self._stream = sys.stderr if stderr else sys.stdout
        is_known = self._stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
        self._console = Console(stderr=stderr, width=None if is_known else _PIPE)

    def say(self, text: str, title: str = "") -> None:
        """Print a paragraph, in bold what stands before it."""
        self._print(Text.assemble((title, "bold"), ": " if title and text else "", text))

    def table(
        self,
        title: str,
        rows: Sequence[Mapping[str, str]],
        below: Mapping[str, str] | None = None,
    ) -> None:
        """Print rows, unless there are none.

        Columns without a word in any row are left out. Where the table is too wide, each column of
        `below` moves below the one that it names there, so that a row has two lines.
        """
        if not rows:
            return
        said = [name for name in rows[0] if any(row[name] for row in rows)]
        table = _lay_out(rows, [(name,) for name in said])
        if below and self._width(table) > self._console.width:
            lower = {upper: name for name, upper in below.items() if name in said}
            columns = [
                (name if name in said else "", lower.get(name, ""))
                for name in rows[0]
                if name in lower or (name in said and name not in below)
            ]
            table = _lay_out(rows, columns)
        self._print("")
        if title:
            self.say("", title)
        self._print(table)
        if len(rows) > _MOST_ROWS:
            self.say(f"and {len(rows) - _MOST_ROWS} more; --json has all of them")

    def _width(self, table: Table) -> int:
        """Return how wide a table would be without an end to lines."""
        return self._console.measure(
            table, options=self._console.options.update(max_width=1_000_000)
        ).maximum

    def _print(self, what: RenderableType) -> None:
        with self._console.capture() as captured:
            self._console.print(what)
        # rich fills each line up to the table's width.
        print(re.sub(" +$", "", captured.get(), flags=re.MULTILINE), end="", file=self._stream)


def _lay_out(rows: Sequence[Mapping[str, str]], columns: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for names in columns:
        # Folded, never cut: whoever looks for a tensor looks for its name.
        table.add_column(Text("\n".join(names)), overflow="fold")
    for row in rows[:_MOST_ROWS]:
        cells = ("\n".join(row.get(name, "") for name in names) for names in columns)
        table.add_row(*(Text(cell.rstrip("\n")) for cell in cells))
    return table
