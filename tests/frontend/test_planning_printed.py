"""Attention that was printed before it was lowered is lowered again from its text; no GPU needed.

The frontend is the real one, the libcudnn below it the stand-in. What the texts leave out is said
as the program knows it; only the last test makes a plan.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.documents import DATA, TESTS
from support.standin import Paths

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.planning.compare import compare
from cudnn_bindgen.frontend.planning.constants import Constants
from cudnn_bindgen.frontend.planning.deviceless import own_cudnn
from cudnn_bindgen.frontend.planning.make_plan import read_any, read_input
from cudnn_bindgen.frontend.planning.printed import Printed

SINK = DATA / "cases" / "python_ir" / "after_build_operation_graph_1.32.json"  # and a scale
FROZEN = TESTS / "golden" / "refused_python_ir" / "input.json"
STATES = ("built", "validated", "lowered")

GRAPH = ("intermediate=FLOAT", "rest=default")
DENSE = (*GRAPH, "ragged=none")
SCALED = (*DENSE, "Scale=by-value")

HOSTILE = ('quote " and \\', "two\nlines", "\u202e", "nul\0", "$.tensors[0]", "{x}", "a=b*2")


def text(file: Path = SINK) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_bytes())
    return document


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Give each tensor of a text, and its node, a hostile name."""
    new = dict(zip(document["tensors"], HOSTILE, strict=True))
    (node,) = document["nodes"]
    for side in ("inputs", "outputs"):
        node[side] = {port: new[name] for port, name in node[side].items()}
    node["name"] = HOSTILE[0]
    document["tensors"] = {new[name]: item for name, item in document["tensors"].items()}
    return document


def shown(document: dict[str, Any], *facts: str) -> Printed:
    """Read a text with what is said of it; needs no frontend."""
    printed = read_any(json.dumps(document).encode(), Constants(said=facts), "F")
    assert isinstance(printed, Printed)
    return printed


def refusal(document: dict[str, Any], *facts: str) -> str:
    with pytest.raises(PlanError) as caught:
        shown(document, *facts)
    return str(caught.value)


def run_program(libraries: Path, cases: dict[str, tuple[str, list[str]]]) -> dict[str, Any]:
    path = os.environ.get("LD_LIBRARY_PATH")
    done = subprocess.run(
        [sys.executable, str(TESTS / "support" / "programs" / "printed.py")],
        env=os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{path}" if path else str(libraries)},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def found(standin_paths: Paths) -> dict[str, Any]:
    """What the frontend prints of all attention, and what comes of the texts."""
    try:
        importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nvidia-cudnn-frontend is not installed")
    other = text()
    other["tensors"]["sdpa_cudnn::O"]["stride"] = [2097152, 32768, 64, 2]
    unknown = text()
    unknown["nodes"][0]["params"]["os"] = 1
    lost = text()
    lost["nodes"][0]["outputs"]["O_2"] = lost["nodes"][0]["outputs"].pop("O")
    offsets = text()
    offsets["tensors"]["off"] = text()["tensors"]["sinks"] | {
        "dtype": "data_type.INT32",
        "dim": [2, 1, 1, 1],
        "stride": [1, 1, 1, 1],
        "uid": 20,
    }
    cases = {
        "by value": (text(), [*SCALED]),
        "by address": (text(), [*DENSE, "Scale=by-address"]),
        "half inside": (text(), ["intermediate=HALF", *SCALED[1:]]),
        "hostile": (renamed(text()), [*DENSE, "3=by-value"]),
        "frozen": (text(FROZEN), [*DENSE]),
        "strided": (other, [*SCALED]),
        "unknown argument": (unknown, [*SCALED]),
        "lost output": (lost, [*SCALED]),
        "ragged, no padding": (offsets, [*GRAPH, "Scale=by-value", "Q=ragged:off"]),
    }
    return run_program(
        standin_paths.cudnn.parent,
        {name: (json.dumps(document), facts) for name, (document, facts) in cases.items()},
    )


def graphs(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, made) for name, made in found.items() if name.startswith("sdpa"))


def test_all_attention_comes_out_as_the_frontend_lowers_it(found: dict[str, Any]) -> None:
    differences = {}
    for name, made in graphs(found):
        truth = read_input(made["structure"].encode())
        for state in STATES:
            assert '"json_version"' not in made["texts"][state], name
            if isinstance(made[state], dict):
                differences[name, state] = [made[state]["error"]]
                continue
            lowered = read_input(made[state].encode())
            told = [*compare(truth, lowered), *compare(lowered, truth)]
            if told:
                differences[name, state] = [*map(str, told)]
    assert differences == {}
    tags = {json.loads(made["structure"])["nodes"][0]["tag"] for _, made in graphs(found)}
    assert tags >= {
        *("SDPA", "SDPA_BWD", "SDPA_FP8_FWD", "SDPA_FP8_BWD", "SDPA_MXFP8_FWD", "SDPA_MXFP8_BWD"),
    }


def test_a_ragged_graph_never_becomes_a_dense_one_unsaid(found: dict[str, Any]) -> None:
    ragged = found["sdpa_ragged"]
    lowered = read_input(ragged["validated"].encode())
    assert {item.ragged_offset_uid for item in lowered.tensors.values()} > {None}
    document = json.loads(ragged["texts"]["validated"])
    assert '--say "NAME=ragged:offset"' in refusal(document, *GRAPH)
    assert '--say "NAME=ragged:offset"' in refusal(document, *DENSE)
    # Two tensors of offsets with one name are not printed at all.
    del document["tensors"]["offset"]
    assert refusal(document, *GRAPH).count("--say") == 1
    assert '--say "ragged=none"' in refusal(document, *GRAPH)


def test_what_is_said_decides_the_graph(found: dict[str, Any]) -> None:
    made = {
        name: read_input(found[name].encode())
        for name in ("by value", "by address", "half inside", "frozen")
    }
    assert made["by value"].tensors[3].is_pass_by_value
    assert not made["by address"].tensors[3].is_pass_by_value
    assert made["half inside"].context.intermediate_data_type == "HALF"
    (node,) = made["frozen"].nodes
    assert (node.attributes["right_bound"], node.attributes["diagonal_alignment"]) == (
        0,
        "TOP_LEFT",
    )


def test_names_come_through(found: dict[str, Any]) -> None:
    lowered = read_input(found["hostile"].encode())
    by_uid = {item["uid"]: name for name, item in renamed(text())["tensors"].items()}
    assert {uid: item.name for uid, item in lowered.tensors.items() if uid in by_uid} == by_uid


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("strided", "should be 1 for O"),
        ("unknown argument", "sdpa has no such argument"),
        ("lost output", "expected an output of pygraph.sdpa, got O_2"),
        ("ragged, no padding", "Ragged offsets are only supported with padding mask"),
    ],
)
def test_the_frontend_refutes_what_cannot_be(
    found: dict[str, Any], name: str, problem: str
) -> None:
    assert problem.casefold() in found[name]["error"].casefold()


def test_all_that_is_left_out_is_asked_for() -> None:
    said = refusal(text())
    for fact in ("intermediate=TYPE", "ragged=none", "Scale=by-value|by-address", "rest=default"):
        assert f'--say "{fact}"' in said
    # What a shell would read otherwise is called by its uid.
    assert '--say "3=by-value|by-address"' in refusal(renamed(text()), *DENSE)
    assert shown(text(), *SCALED).said.scalars == {"Scale": True}
    assert refusal(text(), *SCALED[1:]).count("--say") == 1
    many = text()
    for index in range(1000):
        many["tensors"][f"s{index}"] = text()["tensors"]["Scale"] | {"uid": 100 + index}
        many["nodes"][0]["inputs"][f"s{index}"] = f"s{index}"
    assert "and 960 more;" in refusal(many, *SCALED)


@pytest.mark.parametrize(
    ("fact", "problem"),
    [
        ("by-value", "expected the name or the uid of a tensor, got none"),
        ("intermediate=HALFF", "expected a fact such as"),
        ("Nobody=by-value", "expected the name or the uid of a tensor, got Nobody"),
        ("Q=by-value", "expected an input of one element, got BFLOAT16"),
        ("sdpa_cudnn::O=by-address", "expected an input of one element, got BFLOAT16"),
        ("Scale=by-address", "expected one of both, got both"),
        ("Q=ragged:K", "expected offsets of INT32 or INT64"),
        ("Q=ragged:", "expected the name or the uid of a tensor, got none"),
        ("Q=unused", "expected a tensor at no port"),
    ],
)
def test_what_says_nothing_is_refused(fact: str, problem: str) -> None:
    assert problem in refusal(text(), *SCALED, fact)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"diagonal_alignment": "pygraph.SDPA"}, "expected a member of"),
        *(
            ({name: 1}, "expected an argument")
            for name in ("name", "self", "dropout", "out_dims", "compute_data_type", "q")
        ),
        ({"_dropout_n": 10**9}, "expected 2 or 3 parts"),
        ({"_dropout_n": 2, "dropout_0": 0.5}, "expected 2 parts of dropout, got 1"),
    ],
)
def test_arguments_that_nobody_passes(params: object, problem: str) -> None:
    document = text()
    document["nodes"][0]["params"] = params
    assert problem in refusal(document, *SCALED)


def test_a_text_that_nobody_prints_is_no_graph_to_plan() -> None:
    document = text()
    document["nodes"][0]["type"] = "CONV_FPROP"
    assert "F: $.nodes[0].type: expected nodes of attention, got CONV_FPROP" in refusal(document)


def test_a_text_in_a_log() -> None:
    log = b"step 1\n" + SINK.read_bytes() + b"\nstep 2\n"
    assert isinstance(read_any(log, Constants(said=SCALED)), Printed)


def test_facts_of_other_files_are_not_taken() -> None:
    structure = DATA / "plans" / "cudnn-9.19-sm90" / "sdpa_dense.json"
    with pytest.raises(PlanError, match="expected a graph printed before it was lowered"):
        read_any(structure.read_bytes(), Constants(said=("rest=default",)))


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_module_from_a_text(tmp_path: Path) -> None:
    if importlib.util.find_spec("cudnn") is None:  # imported, it would load the real cuDNN
        pytest.skip("nvidia-cudnn-frontend is not installed")
    if own_cudnn() is None:
        pytest.skip("nvidia-cudnn-jit-cu13 is not installed")
    for command, suffix in (("emit", "pyx"), ("plan", "plan")):
        asked = run(command, SINK, "--for", "h100", "-o", tmp_path / f"sink.{suffix}")
        assert asked.exit_code == 2
        assert '--say "Scale=by-value|by-address"' in asked.stderr
    said = [word for fact in SCALED for word in ("--say", fact)]
    plan = tmp_path / "sink.plan"
    done = run("plan", SINK, "--for", "h100", "-o", plan, *said)
    assert done.exit_code == 0, done.stderr
    graph = read_graph(plan.read_bytes())
    assert graph.plan is not None
    assert [node.tag for node in graph.nodes] == ["SDPA"]
    assert {tensor.uid for tensor in graph.tensors} >= {0, 1, 2, 3, 5, 8, 9}
    assert run("emit", plan, "-o", tmp_path / "sink.pyx").exit_code == 0
