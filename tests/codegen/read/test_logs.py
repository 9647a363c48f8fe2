"""Logs: which lines are graphs, which dumps are of one graph, and which of them counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.documents import (
    DATA,
    Document,
    add_graph,
    argument_names,
    document,
    node,
    scalar,
    tensor,
    to_ubjson,
    with_remedy,
)
from support.documents_v1 import old_add

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.dialects import log
from cudnn_bindgen.codegen.read.graph import Entry, list_graphs, read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions

LOGS = sorted(DATA.glob("frontends/*/three_graphs.log"))
Edit = Callable[[Document], Any]


def line(raw: Document) -> bytes:
    """One dump, as the frontend writes it: without spaces, the context first."""
    return json.dumps(raw, separators=(",", ":")).encode()


def listed(*lines: bytes) -> list[Entry]:
    return list_graphs(b"\n".join((b"INFO: begins", *lines)), "F")


def half_inferred(**names: str) -> Document:
    """The graph of `add_graph` before validate() has inferred what it can."""
    raw = add_graph(**names)
    raw["tensors"][2] |= {"dim": [], "stride": [], "data_type": None}
    raw["nodes"][0]["compute_data_type"] = None
    return raw


def inferred(**names: str) -> Document:
    raw = add_graph(**names)
    raw["nodes"][0]["compute_data_type"] = "FLOAT"
    return raw


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_real_logs(path: Path) -> None:
    """Three graphs: matmul, attention, and one convolution that was built twice."""
    entries = list_graphs(path.read_bytes(), path.name)
    assert [entry.tags[0] for entry in entries] == [
        *("MATMUL", "SDPA_FWD" if "1.18" in str(path) else "SDPA", "CONV_FPROP")
    ]
    lines = path.read_bytes().split(b"\n")
    assert all(lines[entry.line - 1].startswith(b'{"context"') for entry in entries)
    # Only older frontends validate a graph again, and then dump it with its shapes.
    is_old = path.parent.name < "1.27"
    readable = [entry.graph is not None for entry in entries]
    assert readable[0] is is_old
    for entry in entries:
        if entry.refusal is not None:
            assert "before its shapes were inferred" in entry.refusal.problem
            assert entry.refusal.line == entry.line
            assert "graph.validate()" in entry.refusal.hint


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_several_graphs_have_to_be_told_apart(path: Path) -> None:
    data = path.read_bytes()
    with pytest.raises(GraphFormatError) as caught:
        read_graph(data, "F")
    assert str(caught.value) == (
        "F: expected one graph, got 3 (choose one with --index 1 to 3; --list shows them)"
    )
    with pytest.raises(GraphFormatError) as caught:
        read_graph(data, "F", ReadOptions(index=4))
    assert str(caught.value) == (
        "F: expected an --index from 1 to 3, got 4 (--list shows the graphs)"
    )
    for index, entry in enumerate(list_graphs(data), 1):
        if entry.graph:
            assert read_graph(data, options=ReadOptions(index=index)) == entry.graph


def test_one_graph_needs_no_index() -> None:
    data = b"x\n" + line(inferred()) + b"\n"
    graph = read_graph(data)
    assert graph.dialect == "log"
    assert argument_names(bind(graph)) == ["in_0_ptr", "in_1_ptr", "out_0_ptr"]
    assert read_graph(data, options=ReadOptions(index=1)) == graph


COMPLETE, HALF = line(inferred()), line(half_inferred())


@pytest.mark.parametrize(
    ("dumps", "expected"),
    [
        ([HALF, COMPLETE], 3),
        ([COMPLETE, HALF], 2),
        ([HALF, COMPLETE, HALF], 3),
        ([HALF, HALF], 3),
        ([COMPLETE, COMPLETE.replace(b'"gid":1', b'"gid":7')], 3),
        ([COMPLETE, COMPLETE.replace(b'"gid":1,', b'"gid":  2,')], 3),
    ],
)
def test_the_most_complete_dump_counts_and_of_equal_ones_the_last(
    dumps: list[bytes], expected: int
) -> None:
    (entry,) = listed(*dumps)
    assert entry.line == expected
    assert (entry.graph is None) == (COMPLETE not in dumps)


def test_two_processes_number_their_graphs_alike() -> None:
    one, other = line(inferred(a="mine")), line(inferred(a="yours"))
    assert b'"gid":1,' in one
    assert b'"gid":1,' in other
    assert [entry.line for entry in listed(one, other, one)] == [4, 3]


def test_graphs_stand_in_the_order_of_their_first_dumps() -> None:
    first, second = half_inferred(a="first"), half_inferred(a="second")
    dumps = [first, second, inferred(a="second"), inferred(a="first")]
    assert [entry.line for entry in listed(*map(line, dumps))] == [5, 4]


def tensor_with(index: int, **fields: Any) -> Edit:
    return lambda raw: raw["tensors"][index].update(fields)


def node_with(**fields: Any) -> Edit:
    return lambda raw: raw["nodes"][0].update(fields)


# Relu and relu6, for one, differ in an attribute that is null in the first.
DIFFERENT: dict[str, Edit] = {
    "attribute": node_with(mode="MUL"),
    "attribute that was null": node_with(axis=1),
    "attribute that was absent": node_with(new=1),
    "attribute that is empty": node_with(mode=""),
    "compute type": node_with(compute_data_type="HALF"),
    "tag": node_with(tag="RESHAPE"),
    "name of a node": node_with(name="n"),
    "name of a tensor": tensor_with(0, name="a"),
    "no name": tensor_with(0, name=""),
    "dim": tensor_with(0, dim=[3, 4]),
    "rank": tensor_with(0, dim=[2, 4, 1], stride=[4, 1, 1]),
    "stride": tensor_with(2, stride=[1, 2]),
    "data type": tensor_with(0, data_type="HALF"),
    "virtual": tensor_with(0, is_virtual=True),
    "alignment": tensor_with(0, alignment=4),
    "reordering": tensor_with(0, reordering_type="F8_128x4"),
    "passed by value": tensor_with(0, is_pass_by_value=True),
    "ragged offset": tensor_with(0, ragged_offset_uid=2),
    "multiplier": tensor_with(0, ragged_offset_multiplier=2),
    "ports": node_with(inputs={"IN_0": 2, "IN_1": 1}),
    "one tensor twice": node_with(inputs={"IN_0": 1, "IN_1": 1}),
    "context": lambda raw: raw["context"].update(io_data_type="HALF"),
    "one tensor more": lambda raw: raw["tensors"].append(tensor(9)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_graphs_that_differ_in_anything_stay_two(name: str) -> None:
    other = inferred()
    DIFFERENT[name](other)
    assert len(listed(line(inferred()), line(other))) == 2
    assert len(listed(line(other), line(inferred()))) == 2


def test_a_type_of_null_is_the_graphs_and_no_other() -> None:
    null, same, other = (inferred() for _ in range(3))
    null["tensors"][0]["data_type"] = null["nodes"][0]["compute_data_type"] = None
    other["tensors"][0]["data_type"] = "INT8"
    assert len(listed(line(null), line(same))) == 1
    assert len(listed(line(null), line(other))) == 2
    other = inferred()
    other["nodes"][0]["compute_data_type"] = "HALF"
    assert len(listed(line(null), line(other))) == 2


def test_scalars_with_and_without_a_value_stay_two() -> None:
    def scaled(value: Any) -> bytes:
        nodes = [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3})]
        bits = None if value is None else {"index": 3, "value": value}
        return line(document(nodes, [tensor(1), scalar(2, "alpha", bits), tensor(3)]))

    values = [None, "3F800000", "00000000"]
    assert len(listed(*map(scaled, values))) == 3


def test_the_uids_of_tensors_do_not_tell_graphs_apart() -> None:
    """As little as the number of a graph; an early dump may not have them."""
    moved = json.loads(line(inferred()).replace(b'"uid":1,', b'"uid":11,'))
    moved["nodes"][0]["inputs"]["IN_0"] = 11
    (entry,) = listed(line(inferred()), line(moved))
    assert entry.line == 3


@pytest.mark.parametrize(
    "around",
    [
        b"%s\r",
        b"  %s  ",
        b"2026-01-01 12:00:00 [rank 3] DEBUG %s",
        b"%s | took 3 ms",
        b'%s {"other": "json"}',
        b"(worker) %s]]]",
        b"\xff\xfe %s \x00",
        b"\x1b[32m%s\x1b[0m",
    ],
)
def test_what_a_program_writes_around_a_dump(around: bytes) -> None:
    (entry,) = listed(around % line(inferred()))
    assert entry.graph is not None
    assert entry.graph.tensors == read_graph(line(inferred())).tensors


def test_line_ends_of_windows() -> None:
    entries = list_graphs(b"\r\n".join((b"INFO", line(inferred()), line(inferred(a="b")), b"")))
    assert [entry.line for entry in entries] == [2, 3]
    assert all(entry.graph for entry in entries)


def test_dumps_of_structure_v1() -> None:
    early = old_add()
    early["tensors"]["y"] |= {"dim": [], "stride": [], "data_type": None}
    (entry,) = listed(line(early), line(old_add(graph_uid=7)))
    assert entry.line == 3
    assert entry.graph is not None


def test_a_broken_line_does_not_hide_the_others() -> None:
    whole = line(inferred())
    entries = listed(whole[:-50], whole, b'{"context":1}', line(inferred(a="b")), whole[:40])
    assert [entry.line for entry in entries] == [2, 3, 4, 5, 6]
    assert [entry.graph is not None for entry in entries] == [False, True, False, True, False]
    refusals = [str(entry.refusal) for entry in entries if entry.refusal]
    assert refusals[0].startswith(
        "F: line 2: expected a graph, got broken JSON: input data was truncated at column "
    )
    assert refusals[0].endswith(
        "(is the file complete? write it again from repr(graph) or graph.serialize())"
    )
    assert refusals[1].startswith('F: line 4: $: expected a field "json_version", got none')
    assert all(entry.refusal.dialect == "log" for entry in entries if entry.refusal)


def test_a_graph_that_is_broken_says_line_and_path() -> None:
    raw = inferred()
    raw["tensors"][1]["uid"] = -1
    with pytest.raises(GraphFormatError) as caught:
        read_graph(b"INFO\n\n" + line(raw), "F")
    assert str(caught.value) == (
        "F: line 3: $.tensors[1].uid: expected an assigned uid, got -1 "
        "(call graph.validate() before dumping the graph)"
    )


def test_half_inferred_says_why_and_where_else() -> None:
    raw = half_inferred()
    raw["tensors"][0] |= {"dim": [], "stride": []}
    (entry,) = listed(line(raw))
    assert entry.refusal is not None
    assert (entry.refusal.path, entry.refusal.also) == ("$.tensors[0].dim", ("$.tensors[2].dim",))
    assert str(entry.refusal) == (
        "F: line 2: $.tensors[0].dim: expected the shape of an operand, got []: the graph was "
        "dumped before its shapes were inferred "
        "(call graph.validate() first, or set dim and stride of this tensor)"
    )


FEWER = "(keep the lines of the graph that you want, and those only)"


def many(count: int, rank: int) -> bytes:
    """Graphs that differ in the last shape only; of every other one another shape is not known."""

    def one(size: int) -> bytes:
        raw = inferred()
        raw["tensors"] += [tensor(uid) for uid in range(10, 10 + rank)]
        raw["tensors"][-1]["dim"] = [size, 4]
        if size % 2:
            raw["tensors"][2] |= {"dim": [], "stride": []}
        return line(raw)

    return b"\n".join(map(one, range(1, count + 1)))


def printed(raw: Document, prefix: str = "", indent: int = 4) -> bytes:
    """One dump as ``print(graph)`` writes it, each line behind `prefix`."""
    text = json.dumps(raw, indent=indent).replace("\n", f"\n{prefix}")
    return f"{prefix}{text}".encode()


@pytest.mark.parametrize("prefix", ["", "  ", "\t"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_graph_that_is_printed_on_many_lines_is_read(prefix: str, newline: bytes) -> None:
    lines = (b"built:", printed(inferred(), prefix), b"done", line(half_inferred(a="b")))
    data = b"\n".join(lines).replace(b"\n", newline)
    first, second = list_graphs(data)
    assert first.line == 2
    assert first.graph is not None
    assert bind(first.graph).arguments == bind(read_graph(line(inferred()))).arguments
    assert (second.line, second.refusal is None) == (data.count(b"\n") + 1, False)


def test_a_printed_graph_that_is_cut_short_hides_no_other() -> None:
    text = printed(inferred())
    for end in range(20, len(text) - 1, 7):
        entries = listed(text[:end].rstrip() + b"\nTraceback:", line(inferred(a="b")))
        assert entries[-1].graph is not None
        assert all(entry.graph is None for entry in entries[:-1])
        assert [entry.line for entry in entries[:-1]] in ([2], [])


def test_what_is_wrong_in_a_printed_graph_has_its_line_in_the_log() -> None:
    text = printed(inferred()).replace(b'"nodes":', b'"nodes"')
    (entry,) = listed(text)
    assert entry.refusal is not None
    at = text[: text.index(b'"nodes"')].count(b"\n") + 2
    assert f"at line {at}, column " in entry.refusal.problem


def test_a_printed_graph_of_the_frontends_python_part_is_named() -> None:
    raw = {"context": {}, "nodes": [{"type": "SDPA"}], "tensors": {}}
    (entry,) = listed(printed(raw, indent=2))
    assert entry.refusal is not None
    assert "printed before it was lowered" in entry.refusal.problem


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "more graphs than are compared": (
        lambda: b"\n".join(line(add_graph(a=f"name {index}")) for index in range(1001)),
        f"expected a log with at most 1000 graphs in {log.MAX_BYTES} bytes, got more {FEWER}",
    ),
    "graphs that take long to compare": (
        lambda: many(600, 60),
        "expected a log with fewer graphs that differ in shapes only, got too many to compare "
        + FEWER,
    ),
    "larger than all graphs of a program": (
        lambda: b"\n".join(line(inferred(a=f"{index}") | {"x": "y" * 2**20}) for index in range(9)),
        f"expected a log with at most 1000 graphs in {log.MAX_BYTES} bytes, got more {FEWER}",
    ),
    "the same dump again and again": (
        lambda: b'{"context"\n' * 200_001,
        f"expected a log with at most 200000 dumps of graphs, got more {FEWER}",
    ),
    "too many values on a line": (
        lambda: b"x\n" + line(inferred() | {"x": [0] * 600_000}),
        "line 2: expected a graph with at most 500000, got 600067 values "
        "(no graph is that large; is it the right file?)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_take_too_long_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(GraphFormatError) as caught:
        read_graph(make(), "F")
    assert str(caught.value) == with_remedy(f"F: {message}")


def test_a_thousand_graphs_are_listed() -> None:
    lines = [line(inferred(a=f"name {index}")) for index in range(1000)]
    assert len(list_graphs(b"\n".join(lines * 2))) == 1000
    assert len(list_graphs(many(400, 1))) == 400
    same = [inferred() for _ in range(1000)]
    for size, raw in enumerate(same, 1):
        raw["tensors"][0]["dim"] = [size, 4]
    assert len(list_graphs(b"\n".join(map(line, same)))) == 1000


@pytest.mark.parametrize(
    "data",
    [line(inferred()), to_ubjson(inferred()), b"\n" + COMPLETE + b"\n", printed(inferred())],
)
def test_a_graph_alone_is_no_log(data: bytes) -> None:
    assert not log.recognise(data)
    assert [entry.line for entry in list_graphs(data)] == [0]
