"""What today's cuDNN frontend dumps is read and bound as its users mean it; no GPU needed.

The other graph files of these tests were written once; these are written by the frontend that is
installed, so that a new release which changes the format or a name is noticed. Its Python part is
real, the libcudnn below it is the stand-in.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import TESTS
from support.standin import build as build_standin

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render

DUMP = TESTS / "support" / "programs" / "dump.py"

# Graph → argument, uid, role, data type, name in the dump.
ARGUMENTS = {
    "matmul_bias_relu": [
        ("a_ptr", 1, "input", "HALF", "A"),
        ("b_ptr", 2, "input", "HALF", "B"),
        ("bias_ptr", 3, "input", "HALF", "bias"),
        ("y_ptr", 6, "output", "HALF", "Y"),
    ],
    "matmul_names_of_the_frontend": [
        ("a_ptr", 1, "input", "HALF", "tensor_0"),
        ("b_ptr", 2, "input", "HALF", "tensor_1"),
        ("c_ptr", 3, "output", "HALF", "matmul.0::C"),
    ],
    "conv": [
        ("image_ptr", 1, "input", "HALF", "image"),
        ("weight_ptr", 2, "input", "HALF", "weight"),
        ("y_ptr", 3, "output", "HALF", "conv_fprop.0::Y"),
    ],
    "layernorm_training": [
        ("x_ptr", 1, "input", "BFLOAT16", "x"),
        ("scale_ptr", 2, "input", "FLOAT", "tensor_1"),
        ("bias_ptr", 3, "input", "FLOAT", "tensor_2"),
        ("y_ptr", 5, "output", "BFLOAT16", "layernorm.0::Y"),
        ("mean_ptr", 6, "output", "FLOAT", "layernorm.0::MEAN"),
        ("inv_variance_ptr", 7, "output", "FLOAT", "layernorm.0::INV_VARIANCE"),
        ("epsilon", 4, "scalar", "FLOAT", "epsilon"),
    ],
    "rmsnorm": [
        ("x_ptr", 1, "input", "BFLOAT16", "x"),
        ("scale_ptr", 2, "input", "FLOAT", "tensor_1"),
        ("y_ptr", 4, "output", "BFLOAT16", "rmsnorm.0::Y"),
        ("inv_variance_ptr", 5, "output", "FLOAT", "rmsnorm.0::INV_VARIANCE"),
        ("epsilon", 3, "scalar", "FLOAT", "epsilon"),
    ],
    "sdpa_causal": [
        ("q_ptr", 1, "input", "BFLOAT16", "q"),
        ("k_ptr", 2, "input", "BFLOAT16", "k"),
        ("v_ptr", 3, "input", "BFLOAT16", "v"),
        ("o_ptr", 4, "output", "BFLOAT16", "sdpa::O"),
        ("stats_ptr", 5, "output", "FLOAT", "sdpa::Stats"),
    ],
    "sdpa_ragged": [
        ("q_ptr", 3, "input", "BFLOAT16", "q"),
        ("k_ptr", 4, "input", "BFLOAT16", "k"),
        ("v_ptr", 5, "input", "BFLOAT16", "v"),
        ("seq_len_q_ptr", 1, "input", "INT32", "tensor_0"),
        ("seq_len_kv_ptr", 2, "input", "INT32", "tensor_1"),
        ("q_offsets_ptr", 8, "input", "INT64", "q_offsets"),
        ("k_ragged_offset_ptr", 9, "input", "INT64", "tensor_8"),
        ("o_ptr", 6, "output", "BFLOAT16", "sdpa::O"),
        ("stats_ptr", 7, "output", "FLOAT", "sdpa::Stats"),
    ],
    "scalar_without_value": [
        ("x_ptr", 1, "input", "FLOAT", "x"),
        ("out_0_ptr", 3, "output", "FLOAT", "mul.0::OUT_0"),
        ("alpha", 2, "scalar", "FLOAT", "alpha"),
    ],
    "scalar_without_value_or_name": [
        ("x_ptr", 1, "input", "FLOAT", "x"),
        ("out_0_ptr", 3, "output", "FLOAT", "mul.0::OUT_0"),
        ("in_1", 2, "scalar", "INT32", "tensor_1"),
    ],
    "scalar_as_device_tensor": [
        ("x_ptr", 1, "input", "FLOAT", "x"),
        ("alpha_ptr", 2, "input", "FLOAT", "alpha"),
        ("out_0_ptr", 3, "output", "FLOAT", "mul.0::OUT_0"),
    ],
    "scalar_with_value": [
        ("x_ptr", 1, "input", "FLOAT", "x"),
        ("out_0_ptr", 3, "output", "FLOAT", "mul.0::OUT_0"),
    ],
    "scalar_with_integer_value": [
        ("x_ptr", 1, "input", "FLOAT", "x"),
        ("out_0_ptr", 3, "output", "FLOAT", "mul.0::OUT_0"),
    ],
    # Its value is not in the dump: only a plan file tells that nobody has to pass it.
    "scalar_of_compile_time": [
        ("x_ptr", 1, "input", "FLOAT", "x"),
        ("out_0_ptr", 3, "output", "FLOAT", "mul.0::OUT_0"),
        ("in_1", 2, "scalar", "FLOAT", "mul.0::IN_1"),
    ],
    "scalar_as_number": [
        ("q_ptr", 1, "input", "BFLOAT16", "q"),
        ("k_ptr", 2, "input", "BFLOAT16", "k"),
        ("v_ptr", 3, "input", "BFLOAT16", "v"),
        ("o_ptr", 4, "output", "BFLOAT16", "sdpa::O"),
        ("stats_ptr", 5, "output", "FLOAT", "sdpa::Stats"),
    ],
    "reduction": [
        ("x_ptr", 1, "input", "HALF", "x"),
        ("y_ptr", 2, "output", "FLOAT", "reduction.0::OUT_0"),
    ],
    "uids": [
        ("a_ptr", 0, "input", "HALF", "tensor_0"),
        ("b_ptr", -7, "input", "HALF", "tensor_1"),
        ("in_1_ptr", 2**62, "input", "HALF", "tensor_2"),
        ("out_0_ptr", -(2**63), "output", "HALF", "bias.0::OUT_0"),
    ],
    "hostile_names": [
        ("import_ptr", 1, "input", "HALF", "import"),
        ("class_ptr", 2, "input", "HALF", "class"),
        ("quote_and_ptr", 4, "input", "HALF", 'quote " and \\'),
        ("two_lines_ptr", 6, "input", "HALF", "two\nlines"),
        ("unicode_x_ptr", 8, "input", "HALF", "ünïcode ∂x"),
        (f"{'x' * 40}_ptr", 10, "input", "HALF", "x" * 200),
        ("execute_ptr", 12, "input", "HALF", "execute"),
        ("in_1_7_ptr", 14, "input", "HALF", "tensor_13"),
        ("a_b_ptr", 16, "input", "HALF", "a b"),
        ("out_0_ptr", 17, "output", "HALF", '"""'),
    ],
    "same_name_twice": [
        ("x_ptr", 1, "input", "HALF", "x"),
        ("x_2_ptr", 2, "input", "HALF", "x"),
        ("x_3_ptr", 3, "output", "HALF", "x"),
    ],
    "overrides": [
        ("a_ptr", 1, "input", "HALF", "A"),
        ("b_ptr", 2, "input", "HALF", "B"),
        ("c_ptr", 3, "output", "HALF", "matmul.0::C"),
    ],
}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    return build_standin(tmp_path_factory.mktemp("standin")).cudnn.parent


def run_frontend(libraries: Path, *arguments: str) -> dict[str, dict[str, str]]:
    path = os.environ.get("LD_LIBRARY_PATH")
    done = subprocess.run(
        [sys.executable, str(DUMP), *arguments],
        env=os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{path}" if path else str(libraries)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The last line: the frontend may print notices of its own.
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def dumps(libraries: Path) -> dict[str, dict[str, str]]:
    return run_frontend(libraries)


@pytest.fixture(scope="module")
def graphs(dumps: dict[str, dict[str, str]]) -> dict[str, Graph]:
    return {name: read_graph(dump["text"].encode(), name) for name, dump in dumps.items()}


@pytest.fixture(scope="module")
def bindings(graphs: dict[str, Graph]) -> dict[str, Binding]:
    return {name: bind(graph) for name, graph in graphs.items()}


def test_every_graph_is_expected(dumps: dict[str, dict[str, str]]) -> None:
    assert list(dumps) == list(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str, bindings: dict[str, Binding]) -> None:
    found = [
        (argument.argument, argument.uid, argument.role, argument.data_type, argument.original)
        for argument in bindings[name].arguments
    ]
    assert found == ARGUMENTS[name]
    assert [argument.slot for argument in bindings[name].arguments] == list(range(len(found)))
    # A value of a tensor the user named would be a default; the frontend dumps none.
    assert all(argument.default is None for argument in bindings[name].arguments)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_emitted_stub_is_python(name: str, bindings: dict[str, Binding]) -> None:
    stub = ast.parse(render(bindings[name], "module", f"{name}.json")["module.pyi"])
    (execute,) = (
        item for item in stub.body if isinstance(item, ast.FunctionDef) and item.name == "execute"
    )
    parameters = [parameter.arg for parameter in execute.args.args]
    assert parameters[: len(ARGUMENTS[name])] == [row[0] for row in ARGUMENTS[name]]


def test_fingerprints_in_another_process(libraries: Path, bindings: dict[str, Binding]) -> None:
    again = {
        name: bind(read_graph(dump["text"].encode())).fingerprint
        for name, dump in run_frontend(libraries, "reversed").items()
    }
    assert again == {name: binding.fingerprint for name, binding in bindings.items()}


def test_fingerprints_tell_graphs_apart(bindings: dict[str, Binding]) -> None:
    by_fingerprint: dict[str, list[str]] = {}
    for name, binding in bindings.items():
        by_fingerprint.setdefault(binding.fingerprint, []).append(name)
    # A compile-time constant's dump differs from a caller's scalar in its name only.
    assert [names for names in by_fingerprint.values() if len(names) > 1] == [
        ["scalar_without_value", "scalar_of_compile_time"]
    ]


@pytest.mark.parametrize(
    ("name", "data_type", "data"),
    [
        ("scalar_with_value", "FLOAT", struct.pack("<f", 0.5)),
        ("scalar_with_integer_value", "INT64", struct.pack("<q", 2**40)),
    ],
)
def test_values_survive(name: str, data_type: str, data: bytes, graphs: dict[str, Graph]) -> None:
    (value,) = (tensor.value for tensor in graphs[name].tensors if tensor.value)
    assert (value.data_type, value.data) == (data_type, data)


def test_override_flag(bindings: dict[str, Binding]) -> None:
    enabled = [name for name, found in bindings.items() if found.is_override_shape_enabled]
    assert enabled == ["overrides"]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_graph_that_was_printed_too_early(name: str, dumps: dict[str, dict[str, str]]) -> None:
    with pytest.raises(GraphFormatError, match="lowered"):
        read_graph(dumps[name]["early"].encode(), name)
