"""A log with graphs in it: ``CUDNN_FRONTEND_LOG_INFO=1``, and whatever a program wrote around it.

The frontend writes a graph as one line of JSON when it is validated, then maybe again when more of
it is known. Of the dumps of one graph the most complete one counts, of equal ones the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cudnn_bindgen.codegen import ports
from cudnn_bindgen.codegen.dialects import structure
from cudnn_bindgen.codegen.dialects.decode import check_bytes, decode_json, too_large
from cudnn_bindgen.codegen.dialects.document import Document
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.options import ReadOptions

NAME = "log"

# A bound on what comparing every dump with every other may take.
MAX_GRAPHS = 1000

_BEGIN = b'{"context"'
_DUMP = re.compile(re.escape(_BEGIN) + rb"[^\r\n]*")
_PROCESS = re.compile(rb'"(?:gid|graph_uid)":\d+,?')
_AFTER = re.compile(r"trailing characters at line 1, column (\d+)")


def recognise(data: bytes) -> bool:
    """Text with a dump in it that is not all there is."""
    text = data.strip(b"\xef\xbb\xbf \t\r\n")
    return _BEGIN in text and not (text.startswith(_BEGIN) and b"\n" not in text)


def read(data: bytes, options: ReadOptions) -> list[Document | GraphFormatError]:
    """Decode each graph of a log, in the order in which they were first dumped."""
    graphs: list[_Logged] = []
    by_shape: dict[object, list[_Logged]] = {}
    for line, text in _dumps(data):
        logged = _Logged(_decode(text, line, options))
        alike = by_shape.setdefault(logged.shape, [])
        for earlier in reversed(alike):
            if earlier.update(logged):
                break
        else:
            graphs.append(logged)
            alike.append(logged)
    return [logged.reading for logged in graphs]


def _dumps(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield line and text of each dump, of equal texts the last one."""
    texts: dict[bytes, tuple[int, bytes]] = {}
    line = 1
    end = total = 0
    for match in _DUMP.finditer(data):
        line += data.count(b"\n", end, match.start())
        end = match.start()
        same = _PROCESS.sub(b"", match[0])
        total += 0 if same in texts else len(same)
        texts[same] = (line, match[0])
        if len(texts) > MAX_GRAPHS:
            raise too_large("a log", f"more than {MAX_GRAPHS} different graphs", str(MAX_GRAPHS))
    check_bytes(total, "a log")
    yield from texts.values()


def _decode(text: bytes, line: int, options: ReadOptions) -> Document | GraphFormatError:
    try:
        document = structure.read_object(_decode_line(text), options)
    except GraphFormatError as error:
        error.line = line
        error.dialect = NAME
        return error
    # msgspec has no way to say "the same but for two fields" that mypy understands.
    return Document(
        dialect=NAME,
        structure=document.structure,
        plan=document.plan,
        raw_nodes=document.raw_nodes,
        tensor_paths=document.tensor_paths,
        line=line,
        warnings=document.warnings,
    )


def _decode_line(text: bytes) -> Any:
    try:
        return decode_json(text, "a graph")
    except GraphFormatError as error:
        # Programs that write the frontend's lines into a log of their own may end them their way.
        after = _AFTER.search(error.problem)
        if after is None:
            raise
        return decode_json(text[: int(after[1]) - 1], "a graph")


class _Logged:
    """One graph of a log: its best dump so far."""

    def __init__(self, reading: Document | GraphFormatError) -> None:
        self.reading = reading
        self.shape: object = None
        self.content: list[object] = []
        if isinstance(reading, Document):
            self.shape, self.content = _compare_by(reading)

    def update(self, later: _Logged) -> bool:
        """Take `later` if it is a dump of this graph and no less complete; return whether it is."""
        if self.shape is None or not _agree(self.content, later.content):
            return False
        if _known(later.content) >= _known(self.content):
            self.reading, self.content = later.reading, later.content
        return True


def _compare_by(document: Document) -> tuple[object, list[object]]:
    """Return what two dumps of one graph share, and the values of which one may know more.

    Tensors are told by position: an early dump may not have their uids yet.
    """
    order: dict[int, int] = {}
    nodes = []
    for node in document.structure.nodes:
        inputs, outputs = node.inputs or {}, node.outputs or {}
        required, optional = ports.order_inputs(node.tag, inputs)
        places = [(port, inputs[port]) for port in required + optional]
        places += [(port, outputs[port]) for port in ports.order_outputs(node.tag, outputs)]
        nodes.append(
            (node.tag, node.name, tuple((p, order.setdefault(u, len(order))) for p, u in places))
        )
    tensors = {tensor.uid: tensor for tensor in document.structure.tensors}
    known = [tensors[uid] for uid in order if uid in tensors]
    known += [tensor for uid, tensor in sorted(tensors.items()) if uid not in order]
    attributes = [
        {key: value for key, value in node.items() if key not in ("inputs", "outputs")}
        for node in document.raw_nodes
    ]
    values = [
        [getattr(tensor, field) for field in tensor.__struct_fields__ if not field.endswith("uid")]
        for tensor in known
    ]
    return (tuple(nodes), document.structure.context), [attributes, values]


def _agree(one: Any, other: Any) -> bool:
    """Whether nothing that both say differs: null and empty say nothing."""
    if one in (None, [], "") or other in (None, [], ""):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_agree(one[key], other[key]) for key in one.keys() & other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    return bool(one == other)


def _known(value: Any) -> int:
    """Count what is said."""
    if isinstance(value, dict):
        return sum(map(_known, value.values()))
    if isinstance(value, list):
        return sum(map(_known, value))
    return value not in (None, "")
