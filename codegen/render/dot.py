"""A picture → the languages of Graphviz and Mermaid, and SVG."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from cudnn_bindgen.codegen.render.columns import fold
from cudnn_bindgen.codegen.render.picture import Arrow, Box, Picture

# Kind of a box → its fill and its border.
_COLOURS = {
    "node": ("#f6f8fa", "#24292f"),
    "input": ("#ddf4ff", "#0969da"),
    "output": ("#dafbe1", "#1a7f37"),
    "scalar": ("#fff8c5", "#9a6700"),
    "other": ("#ffffff", "#6e7781"),
    "mark": ("#ffffff", "#24292f"),
}
_GREY = "#57606a"
# Of more nodes the operands stand beside them: arrows from the border would be too long.
_MOST_WITH_BORDERS = 8
# No file may keep Graphviz busy for minutes. Real graphs have about one arrow a box.
_MOST_TO_CURVE = 600
_HURRY = "nslimit=1, nslimit1=1, mclimit=0.1, splines=line, "


def to_dot(picture: Picture) -> str:
    """Return a picture in the language of Graphviz."""
    picture = fold(picture)
    boxes, arrows = len(picture.boxes), len(picture.arrows)
    hurry = _HURRY if arrows > min(2 * boxes, _MOST_TO_CURVE) else ""
    lines = [
        "digraph {",
        f'  graph [{hurry}bgcolor="white", nodesep=0.2, ranksep=0.35, fontname="monospace"]',
        '  node [shape=box, style="filled,rounded", fontname="monospace", fontsize=11, '
        'margin="0.12,0.06", height=0.3]',
        f'  edge [fontname="monospace", fontsize=9, fontcolor="{_GREY}", color="{_GREY}", '
        "arrowsize=0.6]",
        *(f"  {box.key} [{_attributes(box)}]" for box in picture.boxes),
        *_borders(picture),
        *(f"  {arrow.source} -> {arrow.target} [{_line(arrow)}]" for arrow in picture.arrows),
        "}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _attributes(box: Box) -> str:
    fill, border = _COLOURS[box.kind]
    title, *rest = map(_escape, box.lines)
    end = '<br align="left"/>' if box.kind == "node" else "<br/>"
    lines = [f"<b>{title}</b>", *(f'<font point-size="9">{line}</font>' for line in rest)]
    shape = ", shape=circle" if box.kind == "mark" else ""
    label = "".join(line + end for line in lines)
    return f'label=<{label}>, fillcolor="{fill}", color="{border}"{shape}'


def _line(arrow: Arrow) -> str:
    said = [f"label=<&#160;{_escape(', '.join(arrow.lines))}>"] if arrow.lines else []
    if arrow.uid is not None:
        said += ["weight=8", 'color="#24292f"', "penwidth=1.2"]
    if arrow.is_offset:
        said += ["style=dashed"]
    return ", ".join(said)


def _escape(line: str) -> str:
    r"""Return text for a label that is HTML, where ``\N`` still means the name of the node."""
    return html.escape(line.replace("\\", "\\\\"))


def _borders(picture: Picture) -> Iterator[str]:
    """Yield which operands stand in a row above all nodes and which in one below.

    If there are many nodes, each operand stands beside the first that uses it.
    """
    nodes = {box.key for box in picture.boxes if box.kind == "node"}
    if len(nodes) > _MOST_WITH_BORDERS:
        return
    read = {arrow.source for arrow in picture.arrows if arrow.target in nodes}
    written = {arrow.target for arrow in picture.arrows if arrow.source in nodes}
    for rank, keys in (("same", read - written), ("sink", written - read)):
        row = [box.key for box in picture.boxes if box.key in keys - nodes]
        if len(row) > 1:
            # Arrows that nobody sees keep the order of the arguments.
            yield f"  {{ rank={rank}; {' -> '.join(row)} [style=invis] }}"


def to_mermaid(picture: Picture) -> str:
    """Return a picture in the language of Mermaid."""
    lines = [
        "flowchart TB",
        *(
            f'  {box.key}["{_encode(box.lines, is_box=True)}"]:::{box.kind}'
            for box in picture.boxes
        ),
        *map(_mermaid_arrow, picture.arrows),
        *(
            f"  classDef {kind} fill:{fill},stroke:{border},color:#24292f"
            for kind, (fill, border) in _COLOURS.items()
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def _mermaid_arrow(arrow: Arrow) -> str:
    line = "-.->" if arrow.is_offset else "-->"
    label = f'|"{_encode(arrow.lines)}"| ' if arrow.lines else ""
    return f"  {arrow.source} {line} {label}{arrow.target}"


def _encode(lines: Sequence[str], *, is_box: bool = False) -> str:
    """Return lines with each letter that could mean something to Mermaid as its number."""
    safe = [re.sub(r"[^\w ,.:=-]", lambda found: f"#{ord(found[0])};", line) for line in lines]
    if is_box:
        safe[0] = f"<b>{safe[0]}</b>"
    return "<br/>".join(safe)
