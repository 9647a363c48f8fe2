"""A graph printed before it was lowered → its structure, as NVIDIA's frontend lowers it.

The text names the method that built each node, and its arguments. So they are called again, and
the proof is the text itself: the frontend that is here must print the graph as the file has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.read.dialects.document import ContextDocument
from cudnn_bindgen.codegen.read.dialects.python_ir import (
    METHODS,
    Param,
    PrintedGraph,
    PrintedNode,
    PrintedTensor,
    read_printed,
)
from cudnn_bindgen.codegen.text import member, shorten
from cudnn_bindgen.frontend.planning.frontend import (
    Graph,
    Module,
    dump,
    find_member,
    new_graph,
    refusals,
)
from cudnn_bindgen.frontend.planning.said import Said, read_said

# Outputs whose tensors are arguments.
_PASSED = ("dBias", "dSink_token", "rng_dump", "score_max", "score_sum_exp")
_DROPOUT = "dropout_"
_COUNT = "_dropout_n"
# What stands in a node beside its params.
_OTHER = frozenset({"name", "compute_data_type", "out_dims", "dropout", "self"})
# How the frontend and cuDNN want the factors of blocks to lie: without it the node becomes another.
_BLOCKS, _FACTORS, _LIE = "SDPA_MXFP8", "descale_", "F8_128x4"
_ENUMS = ("attention_implementation", "diagonal_alignment")


@dataclass(frozen=True, slots=True)
class Printed:
    """A graph that was printed before it was lowered, and what its text leaves out."""

    graph: PrintedGraph
    said: Said
    warnings: tuple[GraphFormatError, ...] = ()


def check_printed(raw: dict[str, Any], texts: Sequence[str]) -> Printed:
    """Return what such a text says, and what the user says beside it.

    Raises
    ------
    PlanError
        It is no graph that can be rebuilt, or something is left unsaid.
    """
    try:
        printed = read_printed(raw)
    except GraphFormatError as error:
        raise PlanError(error.problem, path=error.path, hint=error.hint) from None
    for index, node in enumerate(printed.nodes):
        _check_arguments(node, f"$.nodes[{index}]")
    return Printed(printed, read_said(printed, texts))


def _check_arguments(node: PrintedNode, path: str) -> None:
    params = node.params
    for name in (*params, *node.inputs):
        if name in _OTHER or (name in params and name in node.inputs):
            raise PlanError(f"expected an argument, got {name}", path=path)
    for name, value in params.items():
        place = member(f"{path}.params", name)
        if isinstance(value, str) and value.partition(".")[0] not in _ENUMS:
            raise PlanError(
                f"expected a member of {' or '.join(_ENUMS)}, got {shorten(value)}", path=place
            )
    count = params.get(_COUNT, 0)
    if count is True or count not in (0, 2, 3):
        raise PlanError(f"expected 2 or 3 parts of dropout, got {count!r}", path=path)
    parts = {name for name in (*params, *node.inputs) if name.startswith(_DROPOUT)}
    if parts != {f"{_DROPOUT}{index}" for index in range(int(count or 0))}:
        raise PlanError(f"expected {count} parts of dropout, got {len(parts)}", path=path)


def lower_printed(printed: Printed, frontend: Module, device: Mapping[str, object]) -> bytes:
    """Return the text of the structure that the frontend makes of a printed graph.

    Raises
    ------
    PlanError
        The frontend refuses it, or prints it in another way.
    """
    if not hasattr(frontend.pygraph, "inspect"):
        raise PlanError(
            f"expected nvidia-cudnn-frontend 1.27 or newer, got {frontend.__version__}, which has "
            "no such graphs"
        )
    said, types = printed.said, printed.graph.context
    context = ContextDocument(types.io, said.intermediate, types.compute)
    graph = new_graph(frontend, context, device)
    _Replay(printed, frontend, graph).build()
    before = [*_differences(printed.graph, graph)]
    with refusals(frontend, "the graph is not valid as it was printed, with what was said"):
        graph.validate()
    # It may have been printed before that, or after: types are filled in then.
    after = [*_differences(printed.graph, graph)] if before else []
    for path, expected, found in after:
        raise PlanError(
            f"the frontend prints the rebuilt graph differently: expected {shorten(repr(expected))}"
            f", got {shorten(repr(found))}",
            path=path,
        )
    return dump(frontend, graph)


class _Replay:
    """One graph while it is built: the frontend's tensors by name."""

    def __init__(self, printed: Printed, frontend: Module, graph: Graph) -> None:
        self.printed = printed.graph
        self.said = printed.said
        self.frontend = frontend
        self.graph = graph
        self.tensors: dict[str, Any] = {}
        self.blocks = {
            name
            for node in self.printed.nodes
            for port, name in node.inputs.items()
            if node.type.startswith(_BLOCKS) and port.startswith(_FACTORS)
        }

    def build(self) -> None:
        """Make the tensors that no node returns, the nodes, then the ragged offsets."""
        returned = {
            name
            for node in self.printed.nodes
            for port, name in node.outputs.items()
            if port not in _PASSED
        }
        for name, item in self.printed.tensors.items():
            if name not in returned:
                with refusals(self.frontend, "cannot make a tensor", member("$.tensors", name)):
                    self.tensors[name] = self._make(name, item)
        for index, node in enumerate(self.printed.nodes):
            self._call(node, f"$.nodes[{index}]")
        for name, (offset, unit) in self.said.offsets.items():
            with refusals(self.frontend, "cannot set a tensor", member("$.tensors", name)):
                self.tensors[name].set_ragged_offset(self.tensors[offset])
                if unit != 1:
                    self.tensors[name].set_ragged_offset_multiplier(unit)

    def _make(self, name: str, item: PrintedTensor) -> Any:
        options: dict[str, object] = {
            "dim": item.dim,
            "stride": item.stride,
            "is_virtual": item.is_virtual,
            "is_pass_by_value": self.said.scalars.get(name, False),
            "name": name,
            "uid": item.uid,
        }
        if item.data_type is not None:
            options["data_type"] = self._type(item.data_type, member("$.tensors", name))
        if name in self.blocks:
            kind = find_member(self.frontend, "tensor_reordering", _LIE, "$.tensors")
            options["reordering_type"] = kind
        return self.graph.tensor(**options)

    def _call(self, node: PrintedNode, path: str) -> None:
        arguments: dict[str, object] = {
            name: self._param(value, member(f"{path}.params", name))
            for name, value in node.params.items()
            if name != _COUNT
        }
        passed = {port: name for port, name in node.outputs.items() if port in _PASSED}
        for port, name in (*node.inputs.items(), *passed.items()):
            if name not in self.tensors:
                raise PlanError(
                    "expected nodes in the order in which they compute", path=member(path, port)
                )
            arguments[port] = self.tensors[name]
        parts = sorted(name for name in arguments if name.startswith(_DROPOUT))
        if parts:
            arguments["dropout"] = tuple(arguments.pop(part) for part in parts)
        if self.said.compute:
            arguments["compute_data_type"] = self._type(self.said.compute, path)
        method = METHODS[node.type]
        with refusals(self.frontend, f"cannot build pygraph.{method}", path):
            getattr(self.graph, method)(name=node.name, **arguments)
            made = dict(self.graph.nodes[-1].outputs)
        for port, name in node.outputs.items():
            if port in passed:
                continue
            if port not in made or name in self.tensors:
                raise PlanError(
                    f"expected an output of pygraph.{method}, got {shorten(port)}",
                    path=member(f"{path}.outputs", port),
                )
            with refusals(self.frontend, "cannot set an output", member("$.tensors", name)):
                self._set_output(made[port], name)
            self.tensors[name] = made[port]

    def _set_output(self, tensor: Any, name: str) -> None:
        item = self.printed.tensors[name]
        tensor.set_uid(item.uid)
        tensor.set_output(not item.is_virtual)
        tensor.set_name(name)
        if item.data_type is not None:
            tensor.set_data_type(self._type(item.data_type, member("$.tensors", name)))
        tensor.set_dim(item.dim)
        tensor.set_stride(item.stride)

    def _param(self, value: Param, path: str) -> object:
        if not isinstance(value, str):
            return value
        enum, _, name = value.partition(".")
        return find_member(self.frontend, enum, name, path)

    def _type(self, name: str, path: str) -> Any:
        return find_member(self.frontend, "data_type", name, path)


def _differences(file: PrintedGraph, graph: Graph) -> Iterator[tuple[str, object, object]]:
    """Yield where the frontend does not print a graph, lowered or not, as the file has it."""
    text = json.dumps(graph.inspect(), default=str)
    rebuilt = read_printed(msgspec.json.decode(text))
    return _compare(msgspec.to_builtins(file), msgspec.to_builtins(rebuilt), "$")


def _compare(one: Any, other: Any, path: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _compare(one.get(key), other.get(key), member(path, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, its) in enumerate(zip(one, other, strict=True)):
            yield from _compare(mine, its, f"{path}[{index}]")
    elif repr(one) != repr(other):
        yield path, one, other
