"""How a plan was chosen: into a plan file and out again, whatever stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ubjson
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.documents import PLANS, add_graph, file_id, plan_document, to_ubjson

from cudnn_bindgen.cli import main
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.plan_file import read_plans
from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.evidence import (
    KEY,
    MAX_BYTES,
    Candidate,
    Evidence,
    Options,
    Timing,
    read_engine,
    read_evidence,
    write_evidence,
)
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.frontend.planning.evidence import splice

FULL = Evidence(
    tool="0.1.0",
    method="autotune",
    frontend="1.32.0",
    cudnn=91900,
    sm=90,
    sm_count=132,
    options=Options(("A", "FALLBACK"), None, {}, 1 << 30),
    chosen=2,
    candidates=(
        Candidate(0, "agrees", 8, {"STAGES": 2}, 64, 5.25, 0.125, 0.0),
        Candidate(1, "refused", reason="plan 1 does not build: no [bold]kernel"),
        Candidate(2, "agrees", 3, {"STAGES": 1, "TILE": 7}, 0, 4.5, 0.25, 0.5),
    ),
    gpu="NVIDIA H200",
    driver="580.65.06",
    timing=Timing(0, 4096, 128, 9),
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def lines(result: Result) -> list[str]:
    assert (result.exit_code, result.stderr) == (0, "")
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("path", PLANS, ids=file_id)
def test_every_other_byte_of_a_plan_file_stays(path: Path) -> None:
    before = path.read_bytes()
    after = splice(before, write_evidence(FULL))
    assert after.startswith(before[:-1]) and after.endswith(b"}")
    decoded = ubjson.loadb(after)
    assert json.loads(decoded.pop(KEY)) == json.loads(write_evidence(FULL))
    assert decoded == ubjson.loadb(before)


@pytest.mark.parametrize("path", PLANS, ids=file_id)
def test_a_binding_is_the_same_with_and_without(path: Path) -> None:
    before = path.read_bytes()
    after = splice(before, write_evidence(FULL))
    one, other = read_graph(before), read_graph(after)
    assert one.plan is not None and other.plan is not None
    assert (one.plan.evidence, other.plan.evidence) == (None, write_evidence(FULL))
    assert bind(one) == bind(other)
    assert render(bind(one), "g", "g.plan") == render(bind(other), "g", "g.plan")
    assert read_plans(before) == read_plans(after)


def test_it_comes_back_as_it_was() -> None:
    assert read_evidence(write_evidence(FULL)) == FULL
    later = json.loads(write_evidence(FULL)) | {"of_a_later_version": [1]}
    assert read_evidence(json.dumps(later)) == FULL


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", b"[]", b"{i\x01aZ", b"{#i\x01i\x01aZ", b"{$Z#i\x01i\x01a", b"Z}"]
)
def test_what_is_no_object_of_nlohmanns_gets_none(data: bytes) -> None:
    with pytest.raises(PlanError, match="expected serialize\\(\\) to write a UBJSON object"):
        splice(data, "{}")


def test_a_text_longer_than_a_byte_can_say() -> None:
    data = splice(to_ubjson(plan_document(add_graph())), "x" * 70_000)
    assert ubjson.loadb(data)[KEY] == "x" * 70_000


def test_engines() -> None:
    assert read_engine("engine 8") == (8, {})
    assert read_engine("engine -1 STAGES=2 TILE=-3") == (-1, {"STAGES": 2, "TILE": -3})


# Files that come from anywhere


HOSTILE: dict[str, Any] = {
    "a number": 5,
    "true": True,
    "a list": [1, [2]],
    "an object": {"chosen": 0},
    "no JSON": "chosen: 8",
    "other JSON": '{"tool": 1}',
    "nested": "[" * 5000,
    "long": json.dumps("x" * MAX_BYTES),
    "a huge rank": write_evidence(FULL).replace('"rank":1', f'"rank":{10**30}'),
    "an endless time": write_evidence(FULL).replace("5.25", "1e999"),
}


def plan_with(value: Any) -> bytes:
    return to_ubjson(plan_document(add_graph(), **{KEY: value}))


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_read_harms_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "g.plan"
    path.write_bytes(plan_with(HOSTILE[name]))
    graph = read_graph(path.read_bytes())
    assert graph.plan is not None and graph.plan.evidence is not None
    assert bind(graph) == bind(read_graph(to_ubjson(plan_document(add_graph()))))
    assert "chosen: cannot be read" in lines(run("show", path))
    shown = msgspec.json.decode(run("show", "--json", path).stdout)
    assert shown["plans"][0]["evidence"] == {}
    assert run("emit", path, "-o", tmp_path / "g.pyx").exit_code == 0


@given(st.text(), st.integers(), st.dictionaries(st.text(), st.integers(), max_size=3))
def test_any_text_is_read_or_not(text: str, number: int, knobs: dict[str, int]) -> None:
    raw = json.loads(write_evidence(FULL))
    raw["candidates"][0] |= {"reason": text, "rank": number, "knobs": knobs}
    for found in (read_evidence(text), read_evidence(json.dumps(raw))):
        assert found is None or isinstance(found, Evidence)
    assert read_evidence("\ud800") is None


# What is shown


def test_show_prints_a_table(tmp_path: Path) -> None:
    path = tmp_path / "g.plan"
    path.write_bytes(plan_with(write_evidence(FULL)))
    printed = lines(run("show", path))
    assert printed[printed.index("candidates") - 2] == (
        "chosen: by autotune, the fastest of those that agree with the first; frontend 1.32.0; "
        "NVIDIA H200; driver 580.65.06; 128 sets of 4096 bytes, 9 rounds"
    )
    assert "plan engine knobs workspace us spread error outcome reason" in printed
    assert "0 8 STAGES=2 64 5.25 0.12 0.00 agrees" in printed
    assert "1 refused plan 1 does not build: no [bold]kernel" in printed
    assert "2 3 STAGES=1 TILE=7 0 4.50 0.25 0.50 chosen" in printed
    shown = msgspec.json.decode(run("show", "--json", path).stdout)["plans"][0]["evidence"]
    assert msgspec.convert(shown, Evidence) == FULL
    assert shown["candidates"][1]["microseconds"] is None


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    evidence = msgspec.structs.replace(
        FULL,
        method="\x1b[31mby hand",
        candidates=(Candidate(2, "taken", 7),),
        gpu="",
        timing=None,
    )
    path = tmp_path / "g.plan"
    path.write_bytes(plan_with(write_evidence(evidence)))
    printed = lines(run("show", path))
    assert "chosen: \\x1b[31mby hand; frontend 1.32.0" in printed
    assert "plan engine outcome" in printed and "2 7 chosen" in printed
    path.write_bytes(plan_with(write_evidence(msgspec.structs.replace(evidence, candidates=()))))
    assert "candidates" not in lines(run("show", path))


def test_a_plan_without_any_shows_none(tmp_path: Path) -> None:
    path = tmp_path / "g.plan"
    path.write_bytes(to_ubjson(plan_document(add_graph())))
    assert not [line for line in lines(run("show", path)) if line.startswith("chosen")]
    shown = msgspec.json.decode(run("show", "--json", path).stdout)
    assert shown["plans"][0]["evidence"] is None
