"""Graphs rebuilt with the frontend that is installed have the same dump; no GPU needed.

The frontend is the real one, the libcudnn below it the stand-in: nothing is planned here.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.documents import DATA, TESTS, Document, document, node, scalar, tensor
from support.standin import Paths

from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.graph import build_graph, list_graphs, read_document, read_graph
from cudnn_bindgen.frontend.planning.replay import REPLAYS
from cudnn_bindgen.frontend.planning.replay_pointwise import METHODS

REBUILD = TESTS / "support" / "programs" / "rebuild.py"
FILES = sorted(
    path
    for folder in ("structure-v2", "frontends", "plans", "made")
    for path in (DATA / folder).rglob("*")
    if path.suffix in (".json", ".plan", ".log") and path.stem != "device_properties_h200"
)
# Graphs whose own frontend refuses them, with what it says.
REFUSED = {"batchnorm_batch_only": "incompatible function arguments"}

# A constant of compile time, or what looks like one.
ASKED = {
    *(f"{version}/scalar_of_compile_time" for version in ("1.23.0", "1.26.0", "1.29.1", "1.32.0")),
    *(f"{version}/scalar_unnamed" for version in ("1.18.0", "1.23.0", "1.26.0")),
}

HOSTILE = (
    *("class", 'quote " and \\', "two\nlines", "ünïcode ∂x", "x" * 200, "\u202e", "nul\0", "a b"),
    *("tensor_0", "mul.0::OUT_0", "", "-1", "$.tensors[0]"),
)


def hostile_names() -> Document:
    """A chain of sums whose nodes and tensors have the names."""
    nodes, tensors = [], [tensor(0, HOSTILE[0])]
    last = 0
    for index, name in enumerate(HOSTILE):
        operand, output = -2 - index, 100 + index
        inputs = {"IN_0": last, "IN_1": operand}
        nodes.append(
            node("POINTWISE", inputs, {"OUT_0": output}, name=name or "n", **fields("ADD"))
        )
        is_last = index == len(HOSTILE) - 1
        tensors += [tensor(operand, name), tensor(output, name, is_virtual=not is_last)]
        last = output
    return document(nodes, tensors)


def fields(mode: str) -> Document:
    return {"mode": mode, "compute_data_type": "FLOAT"}


def product(**changes: Any) -> Document:
    """Return x * alpha; `changes` are made to alpha."""
    alpha = scalar(2, "mul::IN_1") | changes
    pair = {"IN_0": 1, "IN_1": 2}
    multiply = node("POINTWISE", pair, {"OUT_0": 3}, name="mul", **fields("MUL"))
    return document([multiply], [tensor(1, "x"), alpha, tensor(3, "y")])


def relu(**changes: Any) -> Document:
    """Return relu(x); `changes` are made to the node."""
    activation = node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2}, name="relu", **fields("RELU_FWD"))
    return document([activation | changes], [tensor(1, "x"), tensor(2, "y")])


def with_tensor(index: int, raw: Document, **changes: Any) -> Document:
    raw = copy.deepcopy(raw)
    raw["tensors"][index] |= changes
    return raw


def reversed_nodes() -> Document:
    return document(
        [
            node("POINTWISE", {"IN_0": 2}, {"OUT_0": 3}, name="b", **fields("EXP")),
            node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2}, name="a", **fields("EXP")),
        ],
        [tensor(1, "x"), tensor(2, "t", is_virtual=True), tensor(3, "y")],
    )


def in_place() -> Document:
    return document(
        [node("POINTWISE", {"IN_0": 1}, {"OUT_0": 1}, name="a", **fields("EXP"))], [tensor(1, "x")]
    )


HALF_VALUE = {"index": 2, "value": "3F000000"}
DOUBLE_VALUE = {"index": 4, "value": 0.5}

# Name → graph, what the user says, what the error says ("" if it is rebuilt).
SAID: dict[str, tuple[Document, dict[str, list[str]], str]] = {
    "hostile names": (hostile_names(), {}, ""),
    "constant": (product(), {"const": ["mul::IN_1=0.5"]}, ""),
    "constant by uid": (product(), {"const": ["2=0.1"]}, ""),
    "named constant": (product(name="alpha"), {"const": ["alpha=-inf"]}, ""),
    "whole constant": (product(data_type="INT32"), {"const": ["mul::IN_1=3"]}, ""),
    "argument": (product(), {"argument": ["mul::IN_1"]}, ""),
    "value": (product(pass_by_value={"index": 3, "value": "3F000000"}), {}, ""),
    "clips": (relu(relu_lower_clip="3DCCCCCD", relu_lower_clip_slope="BF800000"), {}, ""),
    "old node name": (relu(name=""), {}, ""),
    "not said": (product(), {}, "$.tensors[1]: expected the value of"),
    # A HALF cannot be made in Python; a DOUBLE that is a FLOAT as well becomes one.
    "constant in HALF": (
        product(data_type="HALF"),
        {"const": ["mul::IN_1=0.5"]},
        "$.tensors[1].data_type: the rebuilt graph differs: expected 'HALF', got 'FLOAT'",
    ),
    "value in HALF": (
        product(data_type="HALF", pass_by_value=HALF_VALUE),
        {},
        "$.tensors[1].data_type: the rebuilt graph differs: expected 'HALF', got 'FLOAT'",
    ),
    "value in DOUBLE": (
        product(data_type="DOUBLE", pass_by_value=DOUBLE_VALUE),
        {},
        "$.tensors[1].data_type: the rebuilt graph differs: expected 'DOUBLE', got 'FLOAT'",
    ),
    "name of a value": (
        product(name="alpha", pass_by_value={"index": 3, "value": "3F000000"}),
        {},
        "$.tensors[1].name: the rebuilt graph differs: expected 'alpha', got 'mul::IN_1'",
    ),
    "attribute": (relu(elu_alpha="3F800000"), {}, "$.nodes[0].elu_alpha: pygraph.relu is not"),
    "mode": (relu(mode="FOLD"), {}, "$.nodes[0].mode: expected a pointwise mode of frontend"),
    "tag": (relu(tag="FOLD"), {}, "$.nodes[0].tag: expected a node tag of frontend 1.32"),
    "no builder": (relu(tag="RNG"), {}, "$.nodes[0].tag: cannot rebuild RNG: the frontend's"),
    "data type": (
        with_tensor(1, relu(), data_type="COMPLEX_FP32"),
        {},
        "$.tensors[1]: expected a data_type of frontend",
    ),
    "reordering": (
        with_tensor(0, relu(), reordering_type="F9"),
        {},
        "$.tensors[0]: expected a tensor_reordering of frontend",
    ),
    "alignment": (
        with_tensor(0, relu(), alignment=64),
        {},
        "$.tensors[0].alignment: expected an alignment of 16, got 64: the Python API of frontend",
    ),
    "order": (reversed_nodes(), {}, "$.nodes[0] (input): expected nodes in the order in which"),
    "in place": (in_place(), {}, "$.nodes[0] (input): expected nodes in the order in which"),
    "no such input": (relu(inputs={}), {}, "$.nodes[0]: cannot build pygraph.relu: frontend "),
    "an input too many": (
        relu(inputs={"IN_0": 1, "IN_1": 1}),
        {},
        "$.nodes[0].inputs.IN_1: expected a port that pygraph.relu takes, got IN_1",
    ),
    "no types at all": (
        relu()
        | {
            "context": {
                "compute_data_type": None,
                "intermediate_data_type": None,
                "io_data_type": None,
            }
        },
        {},
        "$.context.",
    ),
}


@pytest.fixture(scope="module")
def libraries(standin_paths: Paths) -> Path:
    try:
        importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    return standin_paths.cudnn.parent


@pytest.fixture(scope="module")
def results(libraries: Path) -> dict[str, dict[str, str]]:
    path = os.environ.get("LD_LIBRARY_PATH")
    said = {name: {"text": json.dumps(raw)} | options for name, (raw, options, _) in SAID.items()}
    done = subprocess.run(
        [sys.executable, str(REBUILD), *map(str, FILES)],
        env=os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{path}" if path else str(libraries)},
        input=json.dumps(said),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def made(results: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {name: item for name, item in results.items() if "text" in item or "refused" in item}


def test_every_graph_comes_out_the_same(made: dict[str, dict[str, str]]) -> None:
    assert {name: item["error"] for name, item in made.items() if "error" in item} == {}
    refused = {name: item["refused"] for name, item in made.items() if "refused" in item}
    assert set(refused) == set(REFUSED)
    assert all(REFUSED[name] in message for name, message in refused.items())


def test_every_tag_and_mode_is_among_them(made: dict[str, dict[str, str]]) -> None:
    graphs = [read_graph(item["text"].encode()) for item in made.values() if "text" in item]
    nodes = [node for graph in graphs for node in graph.nodes]
    # Frontend 1.18 alone writes SDPA_FWD; its files are in tests/data.
    assert {node.tag for node in nodes} == {*REPLAYS} - {"SDPA_FWD"}
    modes = {node.attributes["mode"] for node in nodes if node.tag == "POINTWISE"}
    assert modes == set(METHODS)


def is_graph(path: Path) -> bool:
    """Whether it can be planned; a graph whose outputs have no shapes yet can."""
    try:
        build_graph(read_document(path.read_bytes()), is_inferred=False)
    except GraphFormatError:
        return False
    return True


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix != ".log"], ids=lambda path: path.name
)
def test_a_file(path: Path, results: dict[str, dict[str, str]]) -> None:
    error = results[str(path)].get("error", "")
    if not is_graph(path):
        assert error
    elif f"{path.parent.name}/{path.stem}" in ASKED:
        assert "a scalar without one, which may be a constant of compile time" in error
    elif path.stem == "slice_concat":  # whose own shapes Python graphs must state
        assert error.endswith("says: Tensor 'cat::Y' dims not set.")
    else:
        assert error == ""


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".log"], ids=lambda path: path.parent.name
)
def test_the_graphs_of_a_log(path: Path, results: dict[str, dict[str, str]]) -> None:
    """Most of them were logged before their shapes were inferred."""
    data = path.read_bytes()
    entries = list_graphs(data)
    assert len(entries) > 2
    for index, _ in enumerate(entries, 1):
        assert results[f"{path} {index}"] == {}


@pytest.mark.parametrize("name", SAID)
def test_a_made_graph(name: str, results: dict[str, dict[str, str]]) -> None:
    found, (_, _, expected) = results[name].get("error", ""), SAID[name]
    assert found.startswith(expected) if expected else found == ""
    assert found.isascii() and found.isprintable()
