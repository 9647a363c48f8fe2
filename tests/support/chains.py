"""Chains for the stand-in, and what they must compute: each link's sum, one after another."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Mapping, Sequence
from typing import Any

import ubjson

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.chain import Chain, make_chain
from cudnn_bindgen.codegen.bind.chain_ports import LinkGraph
from cudnn_bindgen.codegen.bind.data import data_of_chain
from cudnn_bindgen.codegen.read.chain import ChainFile, Link, View
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render_chain
from cudnn_bindgen.module_data import RUNTIME_ABI
from support.cases import COUNT, POISON, SPARE, Case, chain, make_case, planned, scalar, tensor
from support.documents import to_json
from support.standin import Standin

MODULE = "chained"
"""A module of DIAMOND, compiled."""


def link_case(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    workspace: int = 0,
    count: int = COUNT,
    default: float | None = None,
    **fields: Any,
) -> Case:
    """A graph whose tensors have the stand-in's elements; with a scalar, if it has a default."""
    tensors = [
        tensor(uid, text, dim=[count], data_type="DOUBLE")
        for uid, text in enumerate([*inputs, *outputs], 1)
    ]
    written = [item["uid"] for item in tensors[len(inputs) :]]
    if default is not None:
        value = {"is_pass_by_value": True, "pass_by_value": scalar("FLOAT", default)}
        tensors.insert(1, tensor(90, "eps", dim=[1], data_type="FLOAT", **value))
    return make_case(name, name, planned(chain(tensors, written)), workspace=workspace, **fields)


def structure_of(case: Case) -> bytes:
    """Return a case's graph without its plan."""
    document = ubjson.loadb(case.plan)
    return to_json({key: document[key] for key in ("json_version", "context", "nodes", "tensors")})


NORM = link_case("norm", ["X", "W"], ["Y"], workspace=100, default=0.5)
PRODUCT = link_case("product", ["A", "B"], ["C"], workspace=300)
SUM = link_case("sum", ["L", "R", "Z"], ["S", "T"], workspace=700)


class Wired:
    """A chain as its file would say it: links by name, wires and operands."""

    def __init__(
        self,
        links: Mapping[str, Case],
        wires: Mapping[str, str | View],
        operands: Mapping[str, Sequence[str]] = {},
    ) -> None:
        self.links, self.wires, self.operands = links, wires, operands

    @property
    def said(self) -> ChainFile:
        link = tuple(Link(name, f"{case.name}.plan") for name, case in self.links.items())
        operands = {name: tuple(ends) for name, ends in self.operands.items()}
        return ChainFile(link, dict(self.wires), operands)

    def chain(self) -> Chain:
        graphs = [
            LinkGraph(name, f"{case.name}.plan", bind(read_graph(case.graph)))
            for name, case in self.links.items()
        ]
        return make_chain(self.said, graphs)

    def emit(self, module: str = MODULE) -> dict[str, str]:
        return render_chain(self.chain(), module, f"{module}.toml")

    def serve(self, name: str = "layer") -> Any:
        """Return the runtime's Binding of it: all that a module has."""
        from cudnn_bindgen.runtime.binding import Binding

        return Binding(name, RUNTIME_ABI, data_of_chain(self.chain(), f"{name}.toml"))

    def changed(self, **links: Case) -> Wired:
        """The same with other graphs in some links."""
        return Wired({**self.links, **links}, self.wires, self.operands)

    def name_of(self, link: str, text: str) -> str:
        """What the argument for a tensor is called; for an inner one a name that is none."""
        port = f"{link}.{text}"
        source = self.wires.get(port, port)
        port = source.of if isinstance(source, View) else source
        named = [name for name, ends in self.operands.items() if port in ends]
        return named[0] if named else port.lower().replace(".", "_")

    def expected(self, values: Mapping[str, list[float]]) -> dict[str, list[float]]:
        """Return all tensors after a call, by argument; links stand in an order that works."""
        found = {name: list(value) for name, value in values.items()}
        for link, case in self.links.items():
            arguments = case.binding.arguments
            names = {a.uid: self.name_of(link, a.original) for a in arguments}
            given: dict[int, Any] = {}
            for argument in arguments:
                source = self.wires.get(f"{link}.{argument.original}")
                first = source.offset if isinstance(source, View) else 0
                value = found.setdefault(names[argument.uid], [0.0] * (COUNT + SPARE))
                given[argument.uid] = value[0] if argument.is_scalar else value[first:]
            for uid, result in case.expected(given).items():
                found[names[uid]][:COUNT] = result
        return found


DIAMOND = Wired(
    {"norm": NORM, "left": PRODUCT, "right": PRODUCT, "sum": SUM},
    {"left.A": "norm.Y", "right.A": "norm.Y", "sum.L": "left.C", "sum.R": "right.C"},
    {"x": ["norm.X", "sum.Z"]},
)
"""Two branches between a norm and a sum, which also reads the norm's input."""

STRAIGHT = Wired(
    {"norm": NORM, "product": PRODUCT, "again": NORM, "sum": SUM},
    {"product.A": "norm.Y", "again.X": "product.C", "sum.R": "again.Y", "sum.L": "norm.Y"},
    {"hidden": ["norm.Y", "sum.Z"], "eps": ["norm.eps", "again.eps"]},
)
"""One after another; the first link's output is an argument, too."""


class Tensors:
    """Buffers for all arguments of a chain, with contents that tell what a call did."""

    def __init__(self, standin: Standin, wired: Wired, module: Any, seed: int = 0) -> None:
        self.wired, self._standin = wired, standin
        self._random = random.Random(seed)
        self.operands = module.OPERANDS
        self.addresses: dict[str, int] = {}
        self._blocks: list[int] = []
        self.values: dict[str, list[float]] = {}
        self.move()

    @staticmethod
    def bare(operand: Any) -> str:
        return str(operand.argument.removesuffix("_ptr"))

    def move(self, *names: str) -> None:
        """Give these operands other memory, or all of them."""
        for operand in self.operands:
            if operand.role != "scalar" and (not names or self.bare(operand) in names):
                self._blocks.append(self._standin.alloc(8 * (COUNT + SPARE)))
                self.addresses[self.bare(operand)] = self._blocks[-1]
        self.fill()

    def fill(self) -> None:
        for operand in self.operands:
            name = self.bare(operand)
            if operand.role == "scalar":
                self.values[name] = [2.5]
                continue
            fresh = [self._random.uniform(-4, 4) for _ in range(COUNT + SPARE)]
            self.values[name] = [POISON] * len(fresh) if operand.role == "output" else fresh
            self._buffer(name)[:] = self.values[name]

    @property
    def arguments(self) -> list[Any]:
        return [self.addresses.get(n, self.values[n][0]) for n in map(self.bare, self.operands)]

    def check(self) -> None:
        """Compare all buffers with what one call since `fill` must have left there."""
        expected = self.wired.expected(self.values)
        for name in self.addresses:
            assert list(self._buffer(name)) == expected[name], name

    def check_untouched(self) -> None:
        for name in self.addresses:
            assert list(self._buffer(name)) == self.values[name], name

    def call(self, module: Any, times: int = 1, **options: Any) -> None:
        """Call with other contents each time, and check each."""
        for _ in range(times):
            self.fill()
            module.execute(*self.arguments, **options)
            self.check()

    def _buffer(self, name: str) -> Any:
        return (ctypes.c_double * (COUNT + SPARE)).from_address(self.addresses[name])

    def close(self) -> None:
        for block in self._blocks:
            self._standin.free(block)
