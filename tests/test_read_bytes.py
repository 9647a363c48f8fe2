"""Bytes that are no graph, or a graph by half: always one plain line, never another exception."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from documents import (
    Document,
    add_graph,
    bind_document,
    document,
    node,
    scalar,
    tensor,
    to_json,
    to_ubjson,
)
from hypothesis import given
from hypothesis import strategies as st

from cudnn_bindgen.codegen.binding import bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read import read_graph


def refusal(data: bytes, file: str = "F") -> str:
    with pytest.raises(GraphFormatError) as caught:
        read_graph(data, file)
    return str(caught.value)


WRITTEN_BY = "(a graph file is written by repr(graph) or graph.serialize())"
NO_GRAPH = {
    "empty": (b"", "expected a graph file, got an empty one"),
    "blank": (b" \n", "expected a graph file, got an empty one"),
    "text": (b"hello\n", f"expected a graph file, got b'hello\\\\n'... {WRITTEN_BY}"),
    "open brace": (b"{", "expected a graph file, got broken JSON: Input data was truncated"),
    "broken JSON": (
        b'{"nodes": [}',
        "expected a graph file, got broken JSON: JSON is malformed: invalid character (byte 11)",
    ),
    "list": (
        b" [123, 105]",
        "expected an object, got a list "
        "(if it is a plan as a list of ints, write bytes(list) to a file)",
    ),
    "log": (
        b'INFO: dump\n{"context": {}, "nodes": []}\n',
        "expected one graph, got text with graphs in it, such as a frontend log "
        '(save one line that begins with {"context" as a file of its own)',
    ),
    "python-engine plan": (
        b"CUDNN_FE_PYPLAN\0rest",
        "expected a backend plan, got the plan of a Python engine "
        "(its kernels are Python code; build the graph with a cuDNN backend engine)",
    ),
}


@pytest.mark.parametrize(("data", "message"), NO_GRAPH.values(), ids=NO_GRAPH)
def test_what_is_no_graph_is_refused_with_a_hint(data: bytes, message: str) -> None:
    assert refusal(data) == f"F: {message}".replace("\\\\n", "\\n")


@pytest.mark.parametrize("opening", [b'{"a":', b"[", b"{i\x01a[", b"{i\x01a"])
@pytest.mark.parametrize("repeated", [b'{"a":', b"[", b"{i\x01a"])
def test_deep_nesting_is_refused(opening: bytes, repeated: bytes) -> None:
    assert refusal(opening + repeated * 10_000).startswith("F: expected ")


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
