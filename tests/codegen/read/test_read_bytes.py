"""Bytes that are no graph, or a graph by half: always one plain line, never another exception."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.documents import (
    Document,
    add_graph,
    bind_document,
    document,
    node,
    plan_document,
    scalar,
    tensor,
    to_json,
    to_ubjson,
)

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.graph import read_graph


def refusal(data: bytes, file: str = "F") -> str:
    with pytest.raises(GraphFormatError) as caught:
        read_graph(data, file)
    return str(caught.value)


WRITTEN_BY = "(a graph file is written by repr(graph) or graph.serialize())"
COMPLETE = "(is the file complete? write it again from repr(graph) or graph.serialize())"
AS_LIST = "(print(list(graph.serialize())) gives such a list)"
NO_GRAPH = {
    "empty": (b"", f"expected a graph file, got an empty one {WRITTEN_BY}"),
    "blank": (b" \n", f"expected a graph file, got an empty one {WRITTEN_BY}"),
    "text": (b"hello\n", f"expected a graph file, got b'hello\\n'... {WRITTEN_BY}"),
    "open brace": (
        b"{",
        "expected a graph file, got broken JSON: input data was truncated at line 1, column 2 "
        f"{COMPLETE}",
    ),
    "broken JSON": (
        b'{"tag": 1,\n"nodes": [}',
        "expected a graph file, got broken JSON: invalid character at line 2, column 11 "
        f"{COMPLETE}",
    ),
    "more after the object": (
        b'{"a": 1}\n{',
        "expected a graph file, got broken JSON: trailing characters at line 2, column 1 "
        f"{COMPLETE}",
    ),
    "no UTF-8": (
        b'{"\xff": 1}',
        "expected a graph file, got broken JSON: invalid utf-8 encoded string at line 1, column 9 "
        f"{COMPLETE}",
    ),
    "UTF-16": (
        "{}".encode("utf-16"),
        "expected UTF-8 text, got UTF-16 (save the file as UTF-8)",
    ),
    "list of other bytes": (
        b" [123, 104]",
        f"$: expected the bytes of a plan file, got b'{{h'... {AS_LIST}",
    ),
    "list of large numbers": (
        b"[123, 105, 256]",
        f"$[2]: expected a byte, 0 to 255, got another number {AS_LIST}",
    ),
    "list of negative numbers": (
        b"[123, -105]",
        f"$[1]: expected a byte, 0 to 255, got another number {AS_LIST}",
    ),
    "list of graphs": (
        b'[{"nodes": []}]',
        "$[0]: expected int, got object "
        "(a list of graphs is no graph file: write each graph into one of its own)",
    ),
    "broken list": (
        b"[123, 105",
        "expected a plan as a list of ints, got broken JSON: input data was truncated at line 1, "
        f"column 10 {COMPLETE}",
    ),
    "broken bytes literal": (
        b"b'{i\\x0",
        "expected a plan as a bytes literal, got a broken one "
        "(write the bytes themselves: open(file, 'wb').write(bytes(graph.serialize())))",
    ),
    "pickle": (
        pickle.dumps([123, 105]),
        "expected a graph file, got a pickle, which could run any code when it is read "
        "(load it where you trust it, and write the bytes of the plan to a file)",
    ),
    "archive": (
        b"\x1f\x8b\x08\0",
        "expected a graph file, got a compressed one (unpack it first)",
    ),
    "log of JSON": (
        b'{"message": "{\\"context\\": {}}"}\n{"message": ""}\n'.replace(b"{", b"#{", 1),
        "expected a graph file, got one with graphs inside of JSON strings "
        '(unescape it, so that a line has {"context" in it)',
    ),
}


@pytest.mark.parametrize(("data", "message"), NO_GRAPH.values(), ids=NO_GRAPH)
def test_what_is_no_graph_is_refused_with_a_hint(data: bytes, message: str) -> None:
    assert refusal(data) == f"F: {message}".replace("\\\\n", "\\n")


RIGHT_FILE = "(no graph is that large; is it the right file?)"


def test_what_is_larger_than_any_graph_is_refused() -> None:
    large = refusal(b"{" + b" " * 2**23 + b"}")
    assert large == f"F: expected a graph file with at most 8388608, got 8388610 bytes {RIGHT_FILE}"
    nodes = refusal(b'{"nodes": [' + b'{"a":""},' * 800_000 + b"{}]}")
    assert nodes == f"F: expected a graph file with at most 500000, got 1600003 values {RIGHT_FILE}"


@pytest.mark.parametrize(("count", "field"), [(5001, "nodes"), (10_001, "tensors")])
def test_more_nodes_or_tensors_than_any_graph_has_are_refused(count: int, field: str) -> None:
    raw = document([node("RELU", {"X": 1}, {"Y": 2})], [tensor(1), tensor(2)])
    raw[field] = [raw[field][0]] * count
    assert refusal(to_json(raw)) == (
        f"F: $.{field}: expected at most {count - 1}, got {count} "
        "(no cuDNN graph is that large; is it the right file?)"
    )


def test_lists_of_ints_and_bytes_literals_are_plans() -> None:
    data = to_ubjson(plan_document(add_graph()))
    plan = read_graph(data)
    for text in (list(data), data):
        assert read_graph(f" {text!r}\n".encode()) == plan


@pytest.mark.parametrize("opening", [b'{"a":', b"[", b"{i\x01a[", b"{i\x01a"])
@pytest.mark.parametrize("repeated", [b'{"a":', b"[", b"{i\x01a"])
def test_deep_nesting_is_refused(opening: bytes, repeated: bytes) -> None:
    assert "expected " in refusal(opening + repeated * 10_000)


@pytest.mark.parametrize("depth", range(900, 1001, 4))
@pytest.mark.parametrize("encode", [to_json, to_ubjson])
def test_no_depth_of_an_attribute_breaks_what_comes_after_reading(
    depth: int, encode: Callable[[Document], bytes]
) -> None:
    raw = add_graph()
    raw["nodes"][0]["axis"] = "HERE"
    data = encode(raw)
    mark = b'"HERE"' if encode is to_json else b"SU\x04HERE"
    assert data.count(mark) == 1
    with contextlib.suppress(GraphFormatError):
        bind(read_graph(data.replace(mark, b"[" * depth + b"]" * depth)))


@pytest.mark.parametrize("file", ["a\nb", "\x1b[2J", "\u202e", "\udcff", "\r", '"', "x" * 5000])
@pytest.mark.parametrize("data", [b"", b"{}", b"CUDNN_FE_PYPLAN\0", b"\x1b[2J\n"])
def test_an_error_is_one_plain_line_whatever_the_files_name(file: str, data: bytes) -> None:
    message = refusal(data, file)
    assert message.isascii()
    assert message.isprintable()


@pytest.mark.parametrize("text", ["a\nb", "\u202e", "`$`", "{0}", "%s"])
def test_an_error_is_one_plain_line_whatever_the_files_content(text: str) -> None:
    hostile = {
        "port": document([node("RELU", {text: 9}, {})], []),
        "data type": document([node("RELU", {}, {})], [tensor(1, data_type=text)]),
        "bits": document([], [scalar(1, "s", {"index": 3, "value": text})]),
        "version": document([], [], json_version=text),
    }
    for raw in hostile.values():
        message = refusal(to_json(raw))
        assert message.isascii()
        assert message.isprintable()


@given(
    st.binary(max_size=64),
    st.sampled_from([b"", b"{", b"{i", b"{U\x01a", b'{"a":', b"\xef\xbb\xbf{"]),
)
def test_random_bytes_are_refused(data: bytes, head: bytes) -> None:
    assert refusal(head + data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=5), items),
    max_leaves=5,
)


@given(st.data())
def test_any_value_in_any_field_is_bound_or_refused(data: st.DataObject) -> None:
    raw = document(
        [node("BATCHNORM", {"X": 1, "EPSILON": 2}, {"Y": 3}, peer_stats=[tensor(7)])],
        [tensor(1, ragged_offset_uid=1), scalar(2, "eps", {"index": 4, "value": 0.5}), tensor(3)],
    )
    place: Any = raw
    while True:
        key = data.draw(
            st.sampled_from(list(place) if isinstance(place, dict) else range(len(place)))
        )
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(JSON_VALUES)
            break
        place = place[key]
    with contextlib.suppress(GraphFormatError):
        bind_document(raw)
