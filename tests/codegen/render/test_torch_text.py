"""What is emitted for PyTorch: schemas, outputs, refusals, and that it is typed Python."""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.documents import (
    DATA,
    READABLE,
    Document,
    bind_document,
    document,
    file_id,
    node,
    scalar,
    tensor,
)

from cudnn_bindgen.codegen.bind import torch_operator
from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.bind.torch_operator import Operator, make_operator
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.files import Named, render_modules
from cudnn_bindgen.runtime.tensor_types import FRAMEWORK_NAMES, STORED

FRONTEND = DATA / "frontends/1.32.0"


def read(path: Path) -> Binding:
    return bind(read_graph(path.read_bytes()))


def emit(binding: Binding, module: str = "module", *backwards: Named) -> dict[str, str]:
    return render_modules(Named(module, binding, "graph.json"), backwards, "ns")


def emit_pair(forward: str, backward: str) -> dict[str, str]:
    """Emit a graph of the frontend's with its gradients."""
    pair = read(FRONTEND / f"{forward}.json"), read(FRONTEND / f"{backward}.json")
    return emit(pair[0], forward, Named(backward, pair[1], "graph.json"))


def one_output(**fields: Any) -> Document:
    return document([node("NEW", {"A": 1}, {"B": 2})], [tensor(1, "x"), tensor(2, "y") | fields])


def operator(raw: Document, module: str = "module", namespace: str = "ns") -> Operator:
    return make_operator(bind_document(raw), module, namespace)


def test_schemas_name_operands_as_run_does() -> None:
    raw = document(
        [node("NEW", {"A": 1, "B": 2, "S": 5, "T": 6, "U": 7}, {"C": 3, "D": 4})],
        [
            *(tensor(1, "class"), tensor(2, "B"), tensor(3, "y"), tensor(4, "tensor_4")),
            scalar(5, "eps"),
            scalar(6, "gain", {"index": 3, "value": "3F000000"}),
            scalar(7, "count", {"index": 0, "value": -3}),
        ],
    )
    made = operator(raw, "Attn")
    assert made.schema == (
        "Attn(Tensor class_, Tensor b, float eps, float gain=0.5, int count=-3) -> (Tensor, Tensor)"
    )
    assert made.schema_out == (
        "Attn_out(Tensor class_, Tensor b, Tensor(a0!) y, Tensor(a1!) d, "
        "float eps, float gain=0.5, int count=-3) -> ()"
    )


def test_one_output_is_no_tuple() -> None:
    assert operator(one_output()).schema == "module(Tensor x) -> Tensor"


@pytest.mark.parametrize(
    "value",
    [{"index": 3, "value": bits} for bits in ("7F800000", "FF800000", "7FC00000")]
    + [{"index": 4, "value": 5e-324}],
    ids=str,
)
def test_a_default_that_no_schema_can_say_is_in_the_function_only(value: Document) -> None:
    raw = document(
        [node("NEW", {"A": 1, "S": 3, "T": 4}, {"B": 2})],
        [
            *(tensor(1, "x"), tensor(2, "y")),
            scalar(3, "one", {"index": 3, "value": "3F800000"}),
            scalar(4, "two", value),
        ],
    )
    assert operator(raw).schema == "module(Tensor x, float one, float two) -> Tensor"
    text = emit(bind_document(raw))["module_torch.py"]
    [function] = [
        item
        for item in ast.parse(text).body
        if isinstance(item, ast.FunctionDef) and item.name == "module"
    ]
    assert [item is not None for item in function.args.kw_defaults] == [True, True]


def test_data_types_are_those_that_run_allocates() -> None:
    expected = {name: (dtype, STORED[name][0].pack) for name, dtype in FRAMEWORK_NAMES.items()}
    assert expected == torch_operator.DTYPES


@pytest.mark.parametrize(
    ("data_type", "dim", "stride", "expected"),
    [
        ("FP4_E2M1", [3, 64], [64, 1], ("float4_e2m1fn_x2", (3, 32), (32, 1))),
        ("FP4_E2M1", [64, 3], [1, 64], ("float4_e2m1fn_x2", (32, 3), (1, 32))),
        ("FP4_E2M1", [1, 4, 64], [256, 64, 1], ("float4_e2m1fn_x2", (1, 4, 32), (128, 32, 1))),
        ("BOOLEAN", [4, 16], [16, 1], ("uint8", (4, 2), (2, 1))),
        ("FP8_E4M3", [4, 16], [16, 1], ("float8_e4m3fn", (4, 16), (16, 1))),
        ("BFLOAT16", [4, 16], [1, 4], ("bfloat16", (4, 16), (1, 4))),
        ("HALF", [4, 0], [1, 1], ("float16", (4, 0), (1, 1))),
    ],
)
def test_outputs_are_packed_as_pytorch_has_them(
    data_type: str, dim: list[int], stride: list[int], expected: tuple[Any, ...]
) -> None:
    raw = one_output(data_type=data_type, dim=dim, stride=stride)
    [output] = operator(raw).outputs
    assert (output.dtype, output.dim, output.stride) == expected
    assert not output.is_zeroed


def ragged(**fields: Any) -> Document:
    offsets = tensor(3, "offsets", dim=[2, 1], stride=[1, 1], data_type="INT32")
    raw = one_output(ragged_offset_uid=3, **fields)
    return raw | {"tensors": [*raw["tensors"], offsets]}


def test_ragged_outputs_are_zeroed() -> None:
    made = operator(ragged())
    assert [output.is_zeroed for output in made.outputs] == [True]
    text = emit(bind_document(ragged()))["module_torch.py"]
    assert text.count("is_zeroed=True") == 1


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            one_output(data_type="INT4"),
            "--torch: output y: expected a data type that PyTorch has, got INT4",
        ),
        (
            one_output(data_type="FP8_E5M3"),
            "--torch: output y: expected a data type that PyTorch has, got FP8_E5M3",
        ),
        (
            one_output(stride=[0, 1]),
            "--torch: output y: expected strides of at least 1, got (0, 1)",
        ),
        (
            one_output(stride=[-4, 1]),
            "--torch: output y: expected strides of at least 1, got (-4, 1)",
        ),
        (
            one_output(stride=[2**62, 1]),
            "--torch: output y: expected a layout that fits memory, "
            "got strides (4611686018427387904, 1)",
        ),
        (
            one_output(data_type="FP4_E2M1", dim=[4, 3], stride=[3, 1]),
            "--torch: output y: expected rows of a multiple of 2 elements of FP4_E2M1, "
            "got dims (4, 3), strides (3, 1)",
        ),
        (
            ragged(stride=[100, 1]),
            "--torch: output y: expected a ragged output without gaps, got strides (100, 1)",
        ),
        (
            document([node("RNG", {}, {"Y": 1})], [tensor(1, "y")]),
            "--torch: expected a graph with an input tensor, got none",
        ),
        (
            document(
                [node("NEW", {f"P{uid}": uid for uid in range(2, 66)}, {"Y": 1})],
                [tensor(uid, f"t{uid}") for uid in range(1, 66)],
            ),
            "--torch: expected at most 64 operands and scalars, got 65",
        ),
    ],
)
def test_what_pytorch_cannot_hold_is_refused(raw: Document, message: str) -> None:
    with pytest.raises(EmitError) as caught:
        operator(raw)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "namespace",
    ["aten", "prim", "a-b", "", "class", "a.b", "__x__", "\u00e9", "load_library", "1a"],
)
def test_a_namespace_is_a_free_name(namespace: str) -> None:
    with pytest.raises(EmitError, match=r"^--torch-namespace: expected a name that Py"):
        operator(one_output(), namespace=namespace)


def globals_of(text: str) -> set[str]:
    """Every name that a file reads or binds outside of parameters and their functions' locals."""
    tree = ast.parse(text)
    local = {item.arg for item in ast.walk(tree) if isinstance(item, ast.arg)} | {
        item.id
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.Lambda | ast.GeneratorExp | ast.ListComp)
        for item in ast.walk(function)
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
    }
    names = {item.id for item in ast.walk(tree) if isinstance(item, ast.Name)}
    names |= {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}
    return names - local


def test_no_module_can_have_a_name_that_its_file_uses() -> None:
    files = emit_pair("sdpa_causal", "sdpa_backward") | emit(
        read(DATA / "structure-v2/conv_uid0_neg.json")
    )
    texts = [text for name, text in files.items() if name.endswith("_torch.py")]
    used = set().union(*map(globals_of, texts))
    used -= {name for name in used if name.startswith(("sdpa", "module"))}
    assert {"torch", "Tensor", "Arriving", "_LIBRARY", "_OPERATOR", "tuple"} <= used
    for name in used - {"__package__", "None"}:
        with pytest.raises(EmitError, match=f"^module name: --torch needs another one than {name}"):
            operator(one_output(), module=name)


def test_parameters_are_no_names_that_their_functions_use() -> None:
    """Parameters are lower case and begin with a letter: the functions that have them need more."""
    for name, text in emit_pair("layernorm", "layernorm_backward").items():
        for function in ast.parse(text).body if name.endswith("_torch.py") else ():
            if isinstance(function, ast.FunctionDef) and "epsilon" in ast.dump(function.args):
                parameters = {item.arg for item in ast.walk(function) if isinstance(item, ast.arg)}
                used = {item.id for item in ast.walk(function) if isinstance(item, ast.Name)}
                # Annotations are evaluated where no parameter is seen.
                annotations = {"Tensor", "float", "tuple"}
                assert all(item.startswith("_") for item in used - parameters - annotations)


def test_modules_must_not_share_names() -> None:
    binding = read(FRONTEND / "sdpa_causal.json")
    backward = read(FRONTEND / "sdpa_backward.json")
    for name in ("sdpa", "sdpa_torch"):
        with pytest.raises(EmitError, match=f"^module name: expected one graph for {name}, got"):
            emit(binding, "sdpa", Named(name, backward, "g.json"))


def test_a_graph_that_computes_nothing_asks_for_no_workspace() -> None:
    """Asking loads a plan, which such a graph may not have."""
    said = "    is_empty=True,\n"
    assert said in emit(read(DATA / "structure-v2/zero_dim.json"))["module_torch.py"]
    raw = one_output(dim=[0, 4])
    assert said in emit(bind_document(raw))["module_torch.py"]
    raw["context"]["is_override_shape_enabled"] = True
    assert said not in emit(bind_document(raw))["module_torch.py"]


@pytest.mark.parametrize("path", READABLE, ids=file_id)
def test_real_files_make_plain_text_or_are_refused(path: Path) -> None:
    try:
        text = emit(read(path))["module_torch.py"]
    except EmitError as error:
        assert str(error).startswith("--torch: output ")
        return
    assert text.isascii()
    assert text == emit(read(path))["module_torch.py"]
    ast.parse(text)
    for line in text.splitlines():
        assert len(line) <= 100
        assert line == line.rstrip()


@pytest.mark.long
def test_emitted_files_pass_a_type_checker_linters_and_the_formatter(
    mypy_cache: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    files = emit_pair("sdpa_causal", "sdpa_backward") | emit_pair("layernorm", "layernorm_backward")
    names = [name for name in files if name.endswith("_torch.py")]
    for name in names:
        (tmp_path / name).write_text(files[name])
    options = ["--strict", "--cache-dir", str(mypy_cache), "--no-error-summary"]
    ruff = ["ruff", "check", "--no-cache", "--line-length=100", "--select=E,F,I,N,UP,W,B,SIM,RUF"]
    for tool in (
        ["mypy", *options],
        ruff,
        ["ruff", "format", "--no-cache", "--line-length=100", "--diff"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *tool, *names],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_builtins_that_the_file_uses_are_known() -> None:
    """A module called `tuple` would replace what the file means by it."""
    found = {name for name in torch_operator._TAKEN if hasattr(builtins, name)}
    assert found == {"Ellipsis", "float", "int", "tuple"}
