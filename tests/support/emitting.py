"""Bytes through read, bind and render, and what must be true of what comes out."""

from __future__ import annotations

import ast
import dataclasses
import keyword
import re
import struct
from typing import Any

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.bind.torch_operator import make_operator
from cudnn_bindgen.codegen.errors import EmitError, GraphFormatError
from cudnn_bindgen.codegen.model.data_types import BITS, SCALAR_TYPES
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.options import DEFAULT, ReadOptions
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.codegen.render.torch import render_torch
from cudnn_bindgen.module_data import ModuleData, unpack
from support.cython_tree import parse, shape

Emitted = tuple[Graph, Binding, dict[str, str]]

# More text than this in an error line is a file, not an error.
LONGEST_LINE = 2_000


def emit(
    data: bytes, file: str = "fuzz.json", options: ReadOptions = DEFAULT
) -> Emitted | Exception:
    """Return what `data` becomes or how it is refused; anything else is raised."""
    try:
        graph = read_graph(data, file, options)
        binding = bind(graph)
        return graph, binding, render(binding, "module", file)
    except (GraphFormatError, EmitError) as error:
        return error


_DATA = re.compile(r"(?:^        b'.*'\n)+", re.MULTILINE)


def without_data(text: str) -> str:
    """Return a module's text that is for reading."""
    return _DATA.sub("", text)


def without_options(text: str) -> str:
    """Return a module's text without what its head says of options."""
    return re.sub(r"^# (Option|\+) .*\n", "", text, flags=re.MULTILINE)


def record_of(text: str) -> ModuleData:
    """Return what an emitted module tells the runtime."""
    lines = _DATA.search(text)
    assert lines
    return unpack(b"".join(map(ast.literal_eval, map(str.strip, lines[0].splitlines()))))


def check_refusal(error: Exception) -> None:
    """A refusal is one line that a terminal can show, and hides no lack of memory."""
    line = str(error)
    assert line
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < LONGEST_LINE
    assert not isinstance(error.__context__, MemoryError)


def check_graph(graph: Graph) -> None:
    """The invariants that graph.py states, looked at again by other code."""
    uids = [tensor.uid for tensor in graph.tensors]
    assert uids == sorted(set(uids))
    assert -1 not in uids
    assert graph.nodes
    tensors = {tensor.uid: tensor for tensor in graph.tensors}
    for tensor in graph.tensors:
        struct.pack(f"<q{len(tensor.stride)}q", tensor.uid, *tensor.stride)
        assert all(0 <= size < 2**63 for size in tensor.dim)
        assert tensor.alignment.bit_count() == 1
        assert tensor.ragged_offset_uid is None or tensor.ragged_offset_uid in tensors
        assert tensor.value is None or tensor.is_pass_by_value
        if not tensor.is_virtual:
            assert 0 < len(tensor.dim) == len(tensor.stride)
            assert tensor.data_type in BITS
            assert not tensor.is_pass_by_value or tensor.data_type in SCALAR_TYPES
    written = [uid for node in graph.nodes for _, uid in node.outputs]
    assert len(written) == len(set(written))
    assert not all(tensors[uid].is_virtual for uid in written)
    assert {uid for node in graph.nodes for _, uid in node.ports} <= {*uids}


def check_binding(binding: Binding) -> None:
    """Slots count up, arguments are distinct identifiers, defaults come last."""
    arguments = binding.arguments
    assert [argument.slot for argument in arguments] == list(range(len(arguments)))
    parameters = [argument.argument for argument in arguments]
    for names in (parameters, [argument.name for argument in arguments]):
        assert len(names) == len({*names})
        assert all(name.isascii() and name.isidentifier() for name in names)
        assert not any(keyword.iskeyword(name) for name in names)
        assert max(map(len, names), default=0) < 80
    has_default = [argument.default is not None for argument in arguments]
    assert has_default == sorted(has_default)
    assert not {*parameters} & {"workspace_ptr", "stream"}
    assert len({argument.uid for argument in arguments}) == len(arguments)


def check_files(files: dict[str, str]) -> None:
    """Plain ASCII lines; a stub that Python parses."""
    assert sorted(files) == ["module.pxd", "module.pyi", "module.pyx"]
    for text in files.values():
        assert text.isascii()
        assert text.splitlines() == text.removesuffix("\n").split("\n")
    ast.parse(files["module.pyi"])


def check_parsed(binding: Binding, files: dict[str, str]) -> None:
    """Cython's tree is that of the same binding with plain names: text changes literals only."""
    plain = render(_plain(binding), "module", "plain")
    for name, is_pxd in (("module.pyx", False), ("module.pxd", True)):
        found, expected = shape(parse(files[name], is_pxd)), shape(parse(plain[name], is_pxd))
        assert found == expected, name


def check_accepted(emitted: Emitted) -> None:
    """All of it that needs no Cython."""
    graph, binding, files = emitted
    check_graph(graph)
    check_binding(binding)
    check_files(files)
    check_operators(binding)


def check_operators(binding: Binding) -> None:
    """PyTorch's operators are Python in plain ASCII lines, or refused in one of them."""
    try:
        operator = make_operator(binding, "module", "ns")
    except EmitError as error:
        check_refusal(error)
        return
    [text] = render_torch(operator, (), binding, "fuzz.json").values()
    assert text.isascii()
    assert text.splitlines() == text.removesuffix("\n").split("\n")
    ast.parse(text)


def _plain(binding: Binding) -> Binding:
    changed: dict[str, Any] = {
        "arguments": tuple(
            dataclasses.replace(
                argument,
                name=f"a{argument.slot}",
                argument=f"a{argument.slot}" + ("" if argument.is_scalar else "_ptr"),
                original="plain",
            )
            for argument in binding.arguments
        ),
        "nodes": ("TAG",) * len(binding.nodes),
    }
    changed["plans"] = tuple(plan._replace(engine="plain", text=b"{}") for plan in binding.plans)
    return dataclasses.replace(binding, **changed)


def shape_of(binding: Binding) -> tuple[Any, ...]:
    """What decides which statements are emitted; bindings of one shape differ in text only."""
    parts = tuple(
        (
            *(len(plan.constants), len(plan.workspace_parts), len(plan.replacements)),
            len(plan.dropped),
        )
        for plan in binding.plans
    )
    arguments = tuple(
        (argument.role, argument.data_type if argument.is_scalar else "", bool(argument.default))
        for argument in binding.arguments
    )
    return arguments, len(binding.nodes), binding.is_empty, parts
