"""What emitted text always is: the same bytes, ASCII, within its columns, with a header."""

from __future__ import annotations

import ast
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cython_tree import parse
from support.documents import (
    READABLE,
    TESTS,
    Document,
    add_graph,
    bind_document,
    document,
    file_id,
    node,
    plan_document,
    scalar,
    tensor,
    tensors,
)
from support.emitting import record_of

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.describe import describe_nodes
from cudnn_bindgen.codegen.render.module import operand_table, render

SUFFIXES = ("pyx", "pyi", "pxd")


def emit(path: Path) -> dict[str, str]:
    return render(bind(read_graph(path.read_bytes())), "module", path.name)


def emit_document(raw: Document) -> dict[str, str]:
    return render(bind_document(raw), "module", "graph.json")


def digests() -> dict[str, str]:
    """Hash what is emitted for every real file; also run in processes of their own."""
    return {
        file_id(path): hashlib.sha256(repr(emit(path)).encode()).hexdigest() for path in READABLE
    }


PRINT = "from codegen.render import test_render; print(test_render.digests())"


@pytest.mark.parametrize("seed", ["0", "1"])
def test_every_process_emits_the_same(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINT],
        # These tests, not the folder of the repository; and the package that is tested here.
        cwd=TESTS,
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ast.literal_eval(done.stdout) == digests()


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_the_file_does_not_show(seed: int) -> None:
    shuffle = random.Random(seed).shuffle

    def reordered(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(key, reordered(item)) for key, item in value.items()]
            shuffle(items)
            return dict(items)
        return value

    raw = plan_document(
        document(
            [node("SDPA", {"Q": 1, "K": 2, "V": 3, "Attn_scale": 4}, {"O": 5, "Stats": 6})],
            [*tensors(1, 2, 3, 5, 6, 9), scalar(4, "scale", {"index": 4, "value": 0.1})],
        ),
        pass_by_values={"70": {"index": 1, "value": 3}, "60": {"index": 1, "value": 4}},
        workspace_modifications={"81": [2, 0, []], "80": [2, 4, []]},
        aligned_operands={"2": [32, 2], "1": [64, 2]},
        fe_workspace_size=8,
    )
    shuffled = reordered(raw)
    shuffled["tensors"] = [reordered(item) for item in shuffled["tensors"]]
    for field in ("tensors", "variant_pack_uids"):
        shuffle(shuffled[field])
    assert emit_document(shuffled) == emit_document(raw)


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_real_files_make_plain_text_within_100_columns(path: Path) -> None:
    for name, text in emit(path).items():
        assert text.isascii()
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        for line in text.splitlines():
            assert line == line.rstrip()
            assert "\t" not in line
            assert len(line) <= 100, name


def test_long_lists_are_wrapped() -> None:
    count = 60
    nodes = [
        node("POINTWISE", {"IN_0": i, "IN_1": 100 + i}, {"OUT_0": i + 1}) for i in range(count)
    ]
    items = [tensor(i, is_virtual=0 < i < count) for i in range(count + 1)]
    items += tensors(*range(100, 100 + count))
    parts = {str(1000 + i): [2, i, []] for i in range(count)}
    raw = plan_document(
        document(nodes, items),
        workspace_modifications=parts,
        fe_workspace_size=count,
        variant_pack_replacements=[[100 + i, [2000 + i, 0]] for i in range(count)],
        variant_pack_uids=[0, count, *range(2000, 2000 + count)],
        cudnn_backend_data=(
            '{"cudnnVersion": 91900, "GPUProfile": {"deviceVer": 900}, "engine": {"knobChoices": '
            + "{"
            + ", ".join(f'"CUDNN_KNOB_TYPE_{i}": {i}' for i in range(10, 40))
            + "}}}"
        ),
    )
    text = emit_document(raw)["module.pyx"]
    assert max(map(len, text.splitlines())) <= 100
    graph = constants(text)["GRAPH"]
    assert graph["nodes"] == ("POINTWISE",) * count
    [(sm, sm_count, version, engine)] = graph["plans"]
    assert (sm, sm_count, version) == (90, 0, 91900)
    assert engine.split() == [*("engine", "-1"), *(f"{i}={i}" for i in range(10, 40))]
    parse(text)


def constants(text: str) -> dict[str, Any]:
    """Return what a module for one graph says of it."""
    data = record_of(text)
    [graph] = data.graphs
    return {
        "FINGERPRINT": data.fingerprint,
        "GRAPH": graph.describe(),
        "OPERANDS": graph.operands,
    }


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_constants_say_what_the_binding_says(path: Path) -> None:
    binding = bind(read_graph(path.read_bytes()))
    found = constants(emit(path)["module.pyx"])
    assert found["FINGERPRINT"] == binding.fingerprint
    assert [operand[:8] for operand in found["OPERANDS"]] == [
        (a.uid, a.argument, a.original, a.role, a.data_type, a.dim, a.stride, a.alignment)
        for a in binding.arguments
    ]
    expected = {
        "source": path.name,
        "dialect": binding.dialect,
        "nodes": binding.nodes,
        "is_override_shape_enabled": binding.is_override_shape_enabled,
    }
    if binding.plans:
        expected["plans"] = tuple(
            (plan.sm, plan.sm_count, plan.cudnn_version, plan.engine) for plan in binding.plans
        )
    assert found["GRAPH"] == expected


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_header_says_by_what_of_what_and_from_what(suffix: str) -> None:
    raw = add_graph()
    lines = render(bind_document(raw), "module", "attn.plan")[f"module.{suffix}"].splitlines()
    assert lines[:3] == [
        f"# @generated by cudnn-bindgen {__version__}: do not edit, emit it again.",
        f"# Graph {bind_document(raw).fingerprint}",
        "# From attn.plan",
    ]


def test_the_docstring_is_a_table_of_the_arguments() -> None:
    raw = document(
        [node("MATMUL", {"A": 1, "B": 2}, {"C": 3})] * 1
        + [node("POINTWISE", {"IN_0": 3, "IN_1": 4}, {"OUT_0": 5})] * 1,
        [tensor(1, "x"), tensor(2), tensor(3, is_virtual=True), scalar(4, "alpha"), tensor(5)],
    )
    binding = bind_document(raw)
    assert describe_nodes(binding) == "MATMUL, POINTWISE"
    assert operand_table(binding) == [
        "slot  uid  argument   role    data type  dim  stride  align  layout  name",
        "0     1    x_ptr      input   BFLOAT16   2,4  4,1     16     plain   x",
        "1     2    b_ptr      input   BFLOAT16   2,4  4,1     16     plain",
        "2     5    out_0_ptr  output  BFLOAT16   2,4  4,1     16     plain",
        "3     4    alpha      scalar  FLOAT      1,1  1,1     -      -       alpha",
    ]
    assert parse(emit_document(raw)["module.pyx"]).doc == (
        "MATMUL, POINTWISE.\n\n" + "\n".join(operand_table(binding)) + "\n\n"
        "Addresses are device addresses as int; every call is enqueued, none waits for the GPU.\n"
    )


def test_nodes_are_counted() -> None:
    nodes = [node("RELU", {"X": i}, {"Y": i + 1}) for i in range(3)] + [
        node("A", {"X": 3}, {"Y": 4})
    ]
    assert describe_nodes(bind_document(document(nodes, tensors(0, 1, 2, 3, 4)))) == "RELU x3, A"


def test_the_stub_is_the_signature() -> None:
    raw = document(
        [node("NORM", {"X": 1, "EPSILON": 2, "SHIFT": 3, "COUNT": 4}, {"Y": 5})],
        [
            *tensors(1, 5),
            scalar(2, "eps"),
            scalar(3, "shift", {"index": 2, "value": "3F800000"}),
            scalar(4, "count", {"index": 0, "value": 7}),
        ],
    )
    stub = ast.parse(emit_document(raw)["module.pyi"])
    (execute,) = (
        item for item in stub.body if isinstance(item, ast.FunctionDef) and item.name == "execute"
    )
    assert ast.unparse(execute.args) == (
        "x_ptr: int, y_ptr: int, eps: float, count: int=..., shift: float=..., "
        "workspace_ptr: int=0, stream: int=0"
    )
