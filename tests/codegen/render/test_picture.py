"""Pictures of graphs: what is on them, in three languages, and that no name breaks one of them."""

from __future__ import annotations

import html
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.documents import (
    DATA,
    READABLE,
    Document,
    chain,
    document,
    file_id,
    node,
    scalar,
    tensor,
    to_json,
)

from codegen.render.test_render_hostile import HOSTILE, structure
from cudnn_bindgen.codegen.bind.bundle import read_graphs
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.render import svg
from cudnn_bindgen.codegen.render.columns import fold
from cudnn_bindgen.codegen.render.document import as_document
from cudnn_bindgen.codegen.render.dot import to_dot, to_mermaid
from cudnn_bindgen.codegen.render.picture import Arrow, Box, Picture, draw
from cudnn_bindgen.codegen.render.svg import to_svg

THD = DATA / "plans/cudnn-9.19-sm90/sdpa_thd.plan"
NAMESPACE = "{http://www.w3.org/2000/svg}"
DRAWN = {f"{NAMESPACE}{name}" for name in ("svg", "g", "title", "path", "polygon", "text")}
PLACES = ("tag", "port", "output port", "node", "tensor", "scalar")


def picture(data: bytes) -> Picture:
    graphs = read_graphs(data, "g")
    return draw(as_document(graphs, bind_graphs(graphs)))


def picture_of(raw: Document) -> Picture:
    return picture(to_json(raw))


def drawn(text: str) -> tuple[Counter[str], list[str]]:
    """Return how often each element stands in an SVG, and all of its text."""
    root = ElementTree.fromstring(text)
    said = ["".join(item.itertext()) for item in root.iter(f"{NAMESPACE}text")]
    return Counter(item.tag for item in root.iter()), said


def test_attention() -> None:
    found = picture(THD.read_bytes())
    assert [(box.key, box.kind) for box in found.boxes] == [
        *((f"a{slot}", "input") for slot in range(10)),
        ("a10", "output"),
        ("a11", "output"),
        ("n0", "node"),
    ]
    assert found.boxes[0].lines == ("q", "uid 1", "64,8,4,128 BFLOAT16")
    assert found.boxes[-1].lines == (
        *("SDPA", '"sdpa"', "attn_scale_value=0.08838835", "diagonal_alignment=BOTTOM_RIGHT"),
        *("generate_stats", "implementation=COMPOSITE", "mma_core_mode=HALF", "padding_mask"),
        *("right_bound=0", "Attn_scale=0.08838835"),
    )
    assert [(arrow.source, arrow.target) for arrow in found.arrows if not arrow.is_offset] == [
        *((f"a{slot}", "n0") for slot in range(5)),
        *(("n0", "a10"), ("n0", "a11")),
    ]
    assert [(arrow.source, arrow.target) for arrow in found.arrows if arrow.is_offset] == [
        *(("a5", "a0"), ("a6", "a1"), ("a7", "a2"), ("a8", "a10"), ("a9", "a11"))
    ]
    dot = to_dot(found)
    assert "{ rank=same; a0 -> a1 -> a2 -> a3 -> a4 [style=invis] }" in dot
    assert "{ rank=sink; a10 -> a11 [style=invis] }" in dot


def test_virtual_tensors_are_arrows_with_dims_and_type() -> None:
    raw = document(
        [
            node("MATMUL", {"A": 1, "B": 2}, {"C": 4}),
            node("POINTWISE", {"IN_0": 4, "IN_1": 5}, {"OUT_0": 6}, mode="MUL"),
            node("POINTWISE", {"IN_0": 6}, {"OUT_0": 3}, mode="RELU_FWD"),
        ],
        [
            *(tensor(1, "x"), tensor(2, "w"), tensor(3, "y")),
            *(tensor(uid, is_virtual=True, data_type="FLOAT") for uid in (4, 6)),
            scalar(5, "tensor_5", {"index": 3, "value": "40200000"}),
        ],
    )
    found = picture_of(raw)
    assert [(box.key, box.lines[0]) for box in found.boxes] == [
        *(("a0", "x"), ("a1", "w"), ("a2", "y")),
        *(("n0", "MATMUL"), ("n1", "POINTWISE MUL"), ("n2", "POINTWISE RELU_FWD")),
    ]
    assert found.boxes[4].lines == ("POINTWISE MUL", "IN_1=2.5")
    assert found.arrows == (
        Arrow("a0", "n0", ("A",)),
        Arrow("a1", "n0", ("B",)),
        Arrow("n0", "n1", ("2,4 FLOAT", "IN_0"), 4),
        Arrow("n1", "n2", ("2,4 FLOAT",), 6),
        Arrow("n2", "a2", ("OUT_0",)),
    )


def test_what_only_a_plan_says_is_at_its_node() -> None:
    found = picture((DATA / "cases/score_mod/sm_cap30.plan").read_bytes())
    assert "score_mod=DIV, TANH_FWD, MUL" in found.boxes[-1].lines


@pytest.mark.parametrize("length", [1, 16, 17, 60, 300])
def test_a_long_chain_is_folded_into_columns(length: int) -> None:
    whole = picture_of(chain(length))
    folded = fold(whole)
    if length <= 16:
        assert folded == whole
        return
    boxes = {box.key: box for box in folded.boxes}
    assert len(boxes) == len(folded.boxes)
    assert {box.key for box in whole.boxes} <= boxes.keys()
    joined = connected(folded)
    columns = [joined[f"n{index}"] for index in range(length)]
    assert len({*columns}) == -(-length // max(16, int((4 * length) ** 0.5)))
    # Each mark but the last stands in two columns, with the same number.
    marks = Counter(box.lines for box in folded.boxes if box.kind == "mark")
    assert {*marks.values()} == {2}
    assert len(marks) == len({*columns}) - 1
    # In each column there is all that its nodes read.
    for arrow in folded.arrows:
        assert joined[arrow.source] == joined[arrow.target]
    assert len(folded.arrows) == len(whole.arrows) + len(marks)


def connected(found: Picture) -> dict[str, int]:
    """Return for each box the number of the part of the picture that it is in."""
    parts = {box.key: index for index, box in enumerate(found.boxes)}
    for arrow in found.arrows:
        old, new = parts[arrow.source], parts[arrow.target]
        parts = {key: new if part == old else part for key, part in parts.items()}
    return parts


def test_offsets_in_a_circle_do_no_harm() -> None:
    pytest.importorskip("pygraphviz")
    raw = chain(40)
    raw["tensors"][1]["ragged_offset_uid"], raw["tensors"][2]["ragged_offset_uid"] = 3, 2
    assert to_svg(picture_of(raw)).endswith("</svg>\n")


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_every_operand_and_node_is_drawn(path: Path) -> None:
    pytest.importorskip("pygraphviz")
    graphs = read_graphs(path.read_bytes(), path.name)
    binding = bind_graphs(graphs)
    found = draw(as_document(graphs, binding))
    elements, said = drawn(to_svg(found))
    assert elements.keys() <= DRAWN
    assert elements[f"{NAMESPACE}path"] >= len(found.arrows)
    for argument in binding.arguments:
        assert argument.argument.removesuffix("_ptr") in said
    for tag in binding.nodes:
        assert any(text.split()[0] == tag for text in said)
    mermaid(found)


def mermaid(found: Picture) -> list[str]:
    """Return the labels that Mermaid shows; fail for a line with anything else in it."""
    lines = to_mermaid(found).splitlines()
    label = r'"((?:[\w ,.:=-]|#\d+;|</?b>|<br/>)+)"'
    keys = "|".join(box.key for box in found.boxes)
    grammar = re.compile(
        rf"  (?:(?:{keys})\[{label}\]:::\w+|(?:{keys}) (?:-->|-\.->) (?:\|{label}\| )?(?:{keys}))"
    )
    styles = [line for line in lines if line.startswith("  classDef ")]
    assert lines[0] == "flowchart TB"
    matches = [grammar.fullmatch(line) for line in lines[1 : -len(styles)]]
    assert None not in matches
    labels = [text for match in matches if match for text in match.groups() if text]
    plain = [re.sub("</?b>|<br/>", "\n", text) for text in labels]
    return [html.unescape(re.sub(r"#(\d+);", r"&#\1;", text)) for text in plain]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_name_changes_text_and_nothing_else(where: str, text: str) -> None:
    pytest.importorskip("pygraphviz")
    from pygraphviz import AGraph

    plain, found = picture_of(structure(where, "plain")), picture_of(structure(where, text))
    keys = [box.key for box in found.boxes]
    assert keys == [box.key for box in plain.boxes]
    graph = AGraph(string=to_dot(found))
    assert graph.nodes() == keys
    assert {*graph.edges()} >= {(arrow.source, arrow.target) for arrow in found.arrows}
    elements, said = drawn(to_svg(found))
    assert elements.keys() <= DRAWN
    assert elements[f"{NAMESPACE}g"] == drawn(to_svg(plain))[0][f"{NAMESPACE}g"]
    lines = [line for box in found.boxes for line in box.lines]
    shown = {text.replace("\xa0", " ").strip() for text in said}
    assert {line.strip() for line in lines} - {""} <= shown
    assert {line for label in mermaid(found) for line in label.split("\n")} >= {*lines} - {""}


def test_names_that_are_markup_are_shown_as_they_are() -> None:
    names = ("<b>x</b>", "&lt;&#60;", "#60;#quot;", '"]; evil["', "\\N\\G\\l", "`md`", "--> n1")
    for name in names:
        found = Picture(
            (Box("n0", "node", (name, name)), Box("n1", "node", ("N",))),
            (Arrow("n0", "n1", (name,)),),
        )
        assert mermaid(found)[0] == f"\n{name}\n\n{name}"
        pytest.importorskip("pygraphviz")
        _, said = drawn(to_svg(found))
        plain = Counter(text.replace("\xa0", " ").strip() for text in said)
        assert plain == {name: 3, "N": 1}


def test_a_missing_library_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    with pytest.raises(EmitError, match=r"pip install 'cudnn-bindgen\[svg\]', or --dot"):
        to_svg(picture_of(chain(3)))


def test_no_file_keeps_graphviz_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "_MOST", 10)
    with pytest.raises(EmitError, match="at most 10 boxes and arrows, got 13: --dot"):
        to_svg(picture_of(chain(3)))
    boxes = tuple(Box(f"n{index}", "node", ("N",)) for index in range(4))
    every = [Arrow(a.key, b.key, ()) for a in boxes for b in boxes if a.key < b.key]
    for arrows, is_hurried in ((every[:4], False), (every * 2, True)):
        assert ("nslimit" in to_dot(Picture(boxes, tuple(arrows)))) == is_hurried


def test_a_node_has_few_lines() -> None:
    many: dict[str, Any] = {f"attribute_{index}": index for index in range(30)}
    raw = document([node("TAG", {"X": 1}, {"Y": 2}, **many)], [tensor(1), tensor(2)])
    lines = picture_of(raw).boxes[-1].lines
    assert (len(lines), lines[-1]) == (13, "and 19 more")
