"""Bundles: what is written, what is read again, and the one binding of all plans."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from support.bundling import (
    INDEX,
    bundle,
    file_name,
    make_zip,
    plan,
    two,
    unzip,
    with_entry,
    with_index,
)
from support.documents import DATA, PLANS, add_graph, plan_document, to_json, to_ubjson
from support.emitting import record_of

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.bundle import (
    describe_plans,
    first_plan,
    merge_warnings,
    read_graphs,
    write_bundle,
)
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.options import ReadOptions
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.frontend.planning.make_plan import read_input

REAL = [
    DATA / "plans" / f"cudnn-{version}-sm90/scale_by_value.plan" for version in ("9.19", "9.27")
]
MANY = [
    plan(sm, count, cudnn)
    for sm, count in ((90, 132), (90, 114), (100, 148), (120, 0))
    for cudnn in (91900, 92700, 100001)
]


def keys(data: bytes) -> list[tuple[int, int, int]]:
    plans = bind_graphs(read_graphs(data)).plans
    return [(plan.sm, plan.sm_count, plan.cudnn_version) for plan in plans]


def test_members_are_the_plan_files_byte_for_byte() -> None:
    files = [path.read_bytes() for path in REAL]
    members = unzip(bundle(*files))
    names = [file_name(cudnn=version) for version in ("9.19.0", "9.27.0")]
    assert list(members) == [INDEX, *names]
    assert [members[name] for name in names] == files
    index = json.loads(members[INDEX])
    assert (index["bundle_version"], index["tool_version"]) == (1, __version__)
    assert [plan["name"] for plan in index["plans"]] == names
    for entry, file in zip(index["plans"], files, strict=True):
        info = read_graph(file).plan
        assert info is not None
        assert (entry["sm"], entry["sm_count"]) == (info.sm, info.sm_count) == (90, 132)
        assert (entry["cudnn_version"], entry["engine"]) == (info.cudnn_version, info.engine)
        assert re.fullmatch("[0-9a-f]{64}", entry["sha256"])


@pytest.mark.parametrize("extra", ["text", {"any": ["thing", 1, None]}, 2**40, b"bytes"])
def test_what_else_a_plan_file_holds_survives(extra: object) -> None:
    one = plan(cudnn_bindgen=extra)
    assert unzip(bundle(one))[file_name()] == one
    assert read_graphs(bundle(one)) == read_graphs(bundle(plan()))


def test_a_zip_program_reads_it(tmp_path: Path) -> None:
    (tmp_path / "a.bundle").write_bytes(two())
    command = [sys.executable, "-m", "zipfile", "-e", "a.bundle", "out"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "out" / file_name()).read_bytes() == plan()


def test_the_same_plans_give_the_same_bytes() -> None:
    few = MANY[:4]
    assert len({bundle(*order) for order in permutations(few)}) == 1
    assert bundle(*few, *few) == bundle(*few)
    assert bundle(bundle(*few[:2]), few[3], bundle(few[2], few[1])) == bundle(*few)
    assert bundle(bundle(*few)) == bundle(*few)
    assert b"2026" not in bundle(*few)


def test_graphs_come_sorted_by_key() -> None:
    assert keys(bundle(*reversed(MANY))) == sorted(keys(bundle(*MANY)))
    assert len(keys(bundle(*MANY))) == len(MANY) == 12
    assert file_name(120, 0, "10.0.1") in unzip(bundle(*MANY))
    assert describe_plans(bundle(MANY[9]))[0].startswith(
        "SM 120 with any number of multiprocessors under cuDNN 9.19.0, engine"
    )


def test_an_archive_of_another_program_is_a_bundle_too() -> None:
    """In another order, stored, with entries in another order, and fields that nobody knows yet."""
    members = unzip(two())
    index = json.loads(members[INDEX])
    index["plans"] = [entry | {"later": 1} for entry in reversed(index["plans"])]
    members[INDEX] = json.dumps(index).encode()
    assert read_graphs(make_zip(dict(reversed(members.items())), 0)) == read_graphs(two())


@pytest.mark.parametrize("path", PLANS[:4], ids=lambda path: path.stem)
def test_a_bundle_of_one_plan_is_that_plan(path: Path) -> None:
    data = path.read_bytes()
    binding = bind_graphs(read_graphs(bundle(data)))
    assert binding == bind(read_graph(data)) == bind_graphs(read_graphs(data))
    assert first_plan(bundle(data)) == first_plan(data) == data


def test_a_structure_is_read_as_before() -> None:
    data = to_json(add_graph())
    assert read_graphs(data) == (read_graph(data),)
    assert bind_graphs(read_graphs(data)).plans == ()


def test_a_module_has_all_plans() -> None:
    graphs = read_graphs(bundle(*(path.read_bytes() for path in REAL)))
    alone = [bind(graph) for graph in graphs]
    binding = bind_graphs(graphs)
    assert binding.plans == (*alone[0].plans, *alone[1].plans)
    assert binding.arguments == alone[0].arguments
    text = render(binding, "scale", "scale.bundle")["scale.pyx"]
    assert record_of(text).graphs[0].plans == binding.plans
    row = "Plan for SM 90, 132 multiprocessors, cuDNN %s: engine"
    assert text.index(row % "9.19.0") < text.index(row % "9.27.0")


@pytest.mark.parametrize("name", ["scale_by_value", "sdpa_thd"])
def test_plans_for_two_versions_of_cudnn_are_one_graph(name: str) -> None:
    """What lowering exchanged for one of them is the same memory, so calls are the same."""
    files = [(DATA / f"plans/cudnn-{v}-sm90/{name}.plan").read_bytes() for v in ("9.19", "9.27")]
    alone = [bind(read_graph(file)) for file in files]
    binding = bind_graphs(read_graphs(bundle(*reversed(files))))
    assert binding.arguments == alone[0].arguments
    assert [a.uid for a in binding.arguments] == [a.uid for a in alone[1].arguments]
    assert binding.plans == (*alone[0].plans, *alone[1].plans)
    assert len({plan.uids for plan in binding.plans}) == 1


def test_an_argument_is_aligned_as_the_strictest_plan_asks() -> None:
    plans = [
        plan(cudnn=version, aligned_operands=aligned)
        for version, aligned in (
            (91900, {"1": [64, 2], "2": [4, 2]}),
            (92700, {"1": [16, 2], "2": [8, 2], "3": [256, 2]}),
        )
    ]
    binding = bind_graphs(read_graphs(bundle(*plans)))
    assert {a.uid: a.alignment for a in binding.arguments} == {1: 64, 2: 8, 3: 256}
    assert [dict(p.alignments) for p in binding.plans] == [
        {1: 64, 2: 4},
        {1: 16, 2: 8, 3: 256},
    ]


def test_names_come_from_the_first_plan_and_dumps_may_differ_in_them() -> None:
    other = plan(cudnn=92700, structure=add_graph(a="left", b="right"), engine=1)
    binding = bind_graphs(read_graphs(bundle(plan(), other)))
    assert [a.name for a in binding.arguments] == ["in_0", "in_1", "out_0"]


def overridden(cudnn: int, exchange: bool) -> bytes:
    """Attention-like: what one plan declares with its last axes exchanged, the other does not."""
    graph = add_graph()
    graph["context"] |= {"is_override_shape_enabled": True}
    if exchange:
        graph["tensors"][1] |= {"dim": [4, 2], "stride": [1, 4]}
    return plan(cudnn=cudnn, structure=graph)


def test_calls_that_override_shapes_need_plans_that_declare_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fingerprint may be the same before and after lowering; a call's dims are not."""
    monkeypatch.setattr("cudnn_bindgen.codegen.bind.binding.fingerprint", lambda _: "same")
    assert len(read_graphs(bundle(overridden(91900, True), overridden(92700, True)))) == 2
    with pytest.raises(
        GraphFormatError,
        match=r"^1\.plan: expected input BFLOAT16 \[4, 2\] with strides \[1, 4\] as the argument "
        r"with uid 2, as in 0\.plan, got input BFLOAT16 \[2, 4\] with strides \[4, 1\] \(a bundle",
    ):
        bundle(overridden(91900, True), overridden(92700, False))


def test_graphs_that_are_not_one_are_refused_when_they_are_bound() -> None:
    graphs = [read_graph(plan()), read_graph(PLANS[0].read_bytes())]
    with pytest.raises(GraphFormatError, match=r"^plan 2: expected graph .*, as in plan 1, got"):
        bind_graphs(graphs)


def test_a_warning_of_all_plans_is_given_once() -> None:
    graph = add_graph()
    graph["nodes"][0]["tag"] = "NO_SUCH_TAG"
    graphs = read_graphs(bundle(plan(structure=graph), plan(cudnn=92700, structure=graph)))
    assert [w.problem for w in merge_warnings(graphs)] == [
        "expected a known node tag, got NO_SUCH_TAG"
    ]
    with pytest.raises(GraphFormatError, match=f"^F/{file_name()}: "):
        read_graphs(bundle(plan(structure=graph)), "F", ReadOptions(strict=True))


def test_a_bundle_is_planned_as_its_graph() -> None:
    assert read_input(two()) == read_input(plan()) == read_input(first_plan(two()))
    edited = with_entry(two(), 1, sm=80)
    with pytest.raises(GraphFormatError, match=rf"^F/{file_name(cudnn='9.27.0')}: expected"):
        read_input(edited, "F")


def test_a_newer_structure_can_be_allowed() -> None:
    raw = plan_document(add_graph() | {"json_version": "2.9"})
    newer, options = to_ubjson(raw), ReadOptions(allow_newer=True)
    data = write_bundle([("a.plan", newer)], options)
    assert len(read_graphs(data, options=options)) == 1
    with pytest.raises(GraphFormatError, match=r'json_version: expected "2.0"'):
        read_graphs(data)


def test_a_newer_bundle_is_refused_whatever_it_looks_like() -> None:
    newer = with_index(two(), bundle_version=2, plans={"other": "shape"})
    message = r"^F: bundle\.json \$\.bundle_version: expected 1, got 2 \(a newer cudnn-bindgen"
    with pytest.raises(GraphFormatError, match=message):
        read_graphs(newer, "F", ReadOptions(allow_newer=True))
