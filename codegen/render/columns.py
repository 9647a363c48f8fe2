"""A picture of a long chain → the same in columns, so that it fits a screen and stays legible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from graphlib import TopologicalSorter

from cudnn_bindgen.codegen.render.picture import Arrow, Box, Picture

_ROWS = 16


def fold(picture: Picture) -> Picture:
    """Return a picture without arrows between its columns.

    A virtual tensor ends there at a mark, and begins at a mark of the same number in another
    column. An operand that several columns use is in each of them.
    """
    columns = _columns(picture)
    boxes = {box.key: box for box in picture.boxes}
    placed = {(columns[key], key): box for key, box in boxes.items()}
    arrows: list[Arrow] = []
    marks: dict[int, str] = {}
    for arrow in picture.arrows:
        source, column = arrow.source, columns[arrow.target]
        if columns[source] == column:
            arrows.append(arrow)
            continue
        again = boxes[source]
        if arrow.uid is not None:
            if arrow.uid not in marks:
                marks[arrow.uid] = f"m{len(marks) + 1}"
                again = Box(marks[arrow.uid], "mark", (str(len(marks)),))
                placed[columns[source], again.key] = again
                arrows.append(replace(arrow, target=again.key, lines=arrow.lines[:1]))
            again = Box(marks[arrow.uid], "mark", (marks[arrow.uid][1:],))
        key = f"{again.key}_{column}"
        placed.setdefault((column, key), replace(again, key=key))
        arrows.append(replace(arrow, source=key))
    ordered = sorted(placed, key=lambda place: place[0])
    return Picture(tuple(placed[place] for place in ordered), tuple(arrows))


def _columns(picture: Picture) -> Mapping[str, int]:
    """Return the column of each box: a node's by depth, an operand's with a node."""
    before: dict[str, set[str]] = {box.key: set() for box in picture.boxes}
    for arrow in picture.arrows:
        if not arrow.is_offset:  # files may have circles of those
            before[arrow.target].add(arrow.source)
    nodes = {box.key for box in picture.boxes if box.kind == "node"}
    depths: dict[str, int] = {}
    for key in TopologicalSorter(before).static_order():
        depths[key] = max((depths[each] for each in before[key]), default=-1) + (key in nodes)
    # A column is about four times as wide as a row is high.
    rows = max(_ROWS, math.isqrt(4 * max(depths.values()) + 4))
    columns = {key: depth // rows for key, depth in depths.items() if key in nodes}
    for arrow in picture.arrows:
        if arrow.source in nodes:
            columns.setdefault(arrow.target, columns[arrow.source])
    for arrow in picture.arrows:
        columns.setdefault(arrow.source, columns.get(arrow.target, 0))
    return {box.key: columns.get(box.key, 0) for box in picture.boxes}
