"""A log with graphs in it: ``CUDNN_FRONTEND_LOG_INFO=1``, and whatever a program wrote around it.

The frontend writes a graph as one line of JSON when it is validated, then maybe again when more of
it is known; a program prints one on many lines (``print(graph)``). Of the dumps of one graph the
most complete one counts, of equal ones the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model import ports
from cudnn_bindgen.codegen.read.dialects import structure
from cudnn_bindgen.codegen.read.dialects.decode import decode_json
from cudnn_bindgen.codegen.read.dialects.document import Document
from cudnn_bindgen.codegen.read.options import ReadOptions

NAME = "log"

# Bounds on what comparing dumps with each other may take, in dumps and in single values.
MAX_GRAPHS = 1000
MAX_COMPARED = 5_000_000
# Of all dumps that differ.
MAX_BYTES = 8 * 2**20
# Whether they differ or not: a frontend dumps a graph several times, each in some hundred bytes.
MAX_DUMPS = 200_000

_FEWER = "keep the lines of the graph that you want, and those only"

# What a node gets from the graph when it is validated, and what of a tensor is there before.
_COMPUTE_TYPE = "compute_data_type"
_FIXED = (
    *("name", "is_virtual", "is_pass_by_value", "pass_by_value", "reordering_type"),
    *("ragged_offset_multiplier", "alignment"),
)

_WORD = b'"context"'
_BEGIN = b"{" + _WORD
# As far as the word may stand from its brace.
_INDENT = 200
# On many lines: all that are indented as the first member is, then what closes the object. Without
# that it is a broken graph, so that no line is looked at twice.
_PRINTED = rb"\{[ \t]*\r?\n([ \t]+)\"context\"[^\n]*(?:\n\1[^\n]*)*(?:\n[ \t]*\})?"
_DUMP = re.compile(re.escape(_BEGIN) + rb"[^\r\n]*|" + _PRINTED)
_PROCESS = re.compile(rb'"(?:gid|graph_uid)": ?\d+,?')
_LINE = re.compile(r" at line (\d+)(?=, column )")
_AFTER = re.compile(r"trailing characters at line 1, column (\d+)")


def recognise(data: bytes) -> bool:
    """Text with a dump in it that is not all there is."""
    text = data.strip(b"\xef\xbb\xbf \t\r\n")
    found = next(_matches(text), None)
    return found is not None and found[0] != text


def read(data: bytes, options: ReadOptions) -> list[Document | GraphFormatError]:
    """Decode each graph of a log, in the order in which they were first dumped."""
    graphs: list[_Logged] = []
    alike = _Alike()
    for line, text in _dumps(data):
        logged = _Logged(_decode(text, line, options))
        earlier = alike.find(logged)
        if earlier is None:
            graphs.append(logged)
        else:
            earlier.update(logged)
    return [logged.reading for logged in graphs]


def _matches(data: bytes) -> Iterator[re.Match[bytes]]:
    """Yield where dumps stand, looked for by the word: braces may be many."""
    end = 0
    while (word := data.find(_WORD, end)) >= 0:
        brace = data.rfind(b"{", max(end, word - _INDENT), word)
        match = _DUMP.match(data, brace) if brace >= 0 else None
        end = match.end() if match else word + len(_WORD)
        if match:
            yield match


def _dumps(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield line and text of each dump, of equal texts the last one."""
    texts: dict[bytes, tuple[int, bytes]] = {}
    line = 1
    end = total = 0
    for number, match in enumerate(_matches(data), start=1):
        if number > MAX_DUMPS:
            raise GraphFormatError(
                f"expected a log with at most {MAX_DUMPS} dumps of graphs, got more", hint=_FEWER
            )
        line += data.count(b"\n", end, match.start())
        end = match.start()
        same = _PROCESS.sub(b"", match[0])
        total += 0 if same in texts else len(same)
        texts[same] = (line, match[0])
        if len(texts) > MAX_GRAPHS or total > MAX_BYTES:
            raise GraphFormatError(
                f"expected a log with at most {MAX_GRAPHS} graphs in {MAX_BYTES} bytes, got more",
                hint=_FEWER,
            )
    yield from texts.values()


def _decode(text: bytes, line: int, options: ReadOptions) -> Document | GraphFormatError:
    try:
        document = structure.read_object(_decode_line(text), options)
    except GraphFormatError as error:
        error.line = line
        error.dialect = NAME
        if b"\n" in text:
            error.problem = _LINE.sub(lambda at: f" at line {int(at[1]) + line - 1}", error.problem)
        error.problem = error.problem.replace(" at line 1, column ", " at column ")
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
        self.fixed: object = None
        self.inferred: tuple[object, ...] = ()
        if isinstance(reading, Document):
            self.fixed, self.inferred = _compare_by(reading)

    def update(self, later: _Logged) -> None:
        """Take a later dump of this graph if it is no less complete."""
        if _count(later.inferred) >= _count(self.inferred):
            self.reading, self.inferred = later.reading, later.inferred


# Which of the inferred values are known → these → their graph.
_Groups = dict[object, dict[object, _Logged]]


class _Alike:
    """Finds the graph that a dump is of, among those that differ in nothing but what is inferred.

    Dumps in which the same is known are equal or not, which takes no comparing one by one.
    """

    def __init__(self) -> None:
        self._groups: dict[object, _Groups] = {}
        self._left = MAX_COMPARED

    def find(self, logged: _Logged) -> _Logged | None:
        """Return the graph with which `logged` agrees; remember `logged` if there is none.

        A dump that cannot be read agrees with none.
        """
        if logged.fixed is None:
            return None
        groups = self._groups.setdefault(logged.fixed, {})
        known = tuple(map(bool, logged.inferred))
        found = groups.setdefault(known, {}).get(logged.inferred)
        found = found or self._search(groups, known, logged.inferred)
        groups[known].setdefault(logged.inferred, found or logged)
        return found

    def _search(self, groups: _Groups, known: object, inferred: object) -> _Logged | None:
        for other, dumps in groups.items():
            for earlier, graph in reversed(dumps.items()) if other != known else ():
                if self._agree(earlier, inferred):
                    return graph
        return None

    def _agree(self, one: Any, other: Any) -> bool:
        """Whether nothing that both say differs: null and an empty shape say nothing."""
        self._left -= len(one)
        if self._left < 0:
            raise GraphFormatError(
                "expected a log with fewer graphs that differ in shapes only, got too many to "
                "compare",
                hint=_FEWER,
            )
        return all(a == b or not a or not b for a, b in zip(one, other, strict=True))


def _compare_by(document: Document) -> tuple[object, tuple[object, ...]]:
    """Return what two dumps of one graph share, and what one of them may not know yet.

    That is what validate() infers: shapes, and data types that are null where the graph's own
    stands for them. Tensors are told by position: an early dump may not have their uids yet.
    """
    context = document.structure.context
    order: dict[int, int] = {}
    nodes = []
    inferred: list[object] = []
    for node, raw in zip(document.structure.nodes, document.raw_nodes, strict=True):
        inputs, outputs = node.inputs or {}, node.outputs or {}
        required, optional = ports.order_inputs(node.tag, inputs)
        places = [(port, inputs[port]) for port in required + optional]
        places += [(port, outputs[port]) for port in ports.order_outputs(node.tag, outputs)]
        attributes = {k: v for k, v in raw.items() if k not in ("inputs", "outputs", _COMPUTE_TYPE)}
        nodes.append(
            (
                tuple((port, order.setdefault(uid, len(order))) for port, uid in places),
                msgspec.json.encode(attributes, order="sorted"),
            )
        )
        inferred.append(_text(raw.get(_COMPUTE_TYPE) or context.compute_data_type))
    tensors = {tensor.uid: tensor for tensor in document.structure.tensors}
    for uid in sorted(tensors):
        order.setdefault(uid, len(order))
    fixed: list[object] = [tuple(nodes), context]
    for uid in sorted(order, key=order.__getitem__):
        tensor = tensors.get(uid)
        if tensor is not None:
            fixed.append(
                (
                    *(getattr(tensor, field) for field in _FIXED),
                    order.get(tensor.ragged_offset_uid, -1)
                    if tensor.ragged_offset_uid is not None
                    else None,
                )
            )
            virtual, other = context.intermediate_data_type, context.io_data_type
            data_type = tensor.data_type or (virtual if tensor.is_virtual else other)
            inferred += (tuple(tensor.dim), tuple(tensor.stride), data_type)
    return tuple(fixed), tuple(inferred)


def _text(value: Any) -> bytes | None:
    return None if value is None else msgspec.json.encode(value)


def _count(inferred: tuple[object, ...]) -> int:
    return sum(map(bool, inferred))
