"""What a report says of layouts, overrides and savings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from runtime.test_tensor_layout_model import asked, model
from support.documents import PLANS, TESTS
from support.recording_fakes import OVERRIDE

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.layouts import PLAIN, LayoutRule, find_layout_rules
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions
from cudnn_bindgen.codegen.model.graph import Tensor
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend.recording import estimate
from cudnn_bindgen.frontend.recording.accepts import explain_refusal
from cudnn_bindgen.frontend.recording.observe import Layout, Override
from cudnn_bindgen.frontend.recording.report import as_document
from cudnn_bindgen.frontend.recording.symbols import suggest_symbols
from cudnn_bindgen.frontend.recording.tally import OTHERS, Tally

BENCHMARKS = TESTS.parent / "benchmarks"


def tensor(dim: Any, stride: Any, data_type: str = "HALF", **fields: Any) -> Tensor:
    return Tensor(1, "x", data_type, tuple(dim), tuple(stride), **fields)


def seen(shape: Any, stride: Any, data_type: str = "float16", alignment: int = 256) -> Layout:
    return Layout(tuple(shape), tuple(stride), data_type, "cuda:0", alignment)


@given(asked())
def test_layouts_are_judged_as_by_the_model_of_the_runtime(values: tuple[Any, ...]) -> None:
    kind, free, declared, given_layout, pack = values
    if pack > 1:
        return
    found = explain_refusal(tensor(*declared), LayoutRule(kind, free), seen(*given_layout))
    expected = model(kind, free, declared, given_layout, pack)
    assert (found == "") == (expected == "same"), found


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_is_declared_is_taken(path: Path) -> None:
    graph = read_graph(path.read_bytes())
    names = {"HALF": "float16", "BFLOAT16": "bfloat16", "FLOAT": "float32"}
    names |= {"INT32": "int32", "INT64": "int64"}
    rules = find_layout_rules(graph, is_sized=False)
    for one in graph.tensors:
        if not one.is_virtual and not one.is_pass_by_value:
            layout = seen(one.dim, one.stride, names[one.data_type])
            assert explain_refusal(one, rules[one.uid], layout) == ""


@pytest.mark.parametrize(
    ("declared", "layout", "expected"),
    [
        (tensor([4, 8], [8, 1]), seen([4, 8], [1, 4]), "is [4, 8] by [1, 4], declared [4, 8] by"),
        (tensor([4, 8], [8, 1]), seen([2, 2, 8], [16, 8, 1]), ""),
        (tensor([4, 8], [8, 1]), seen([4, 8], [8, 1], "float32"), "has data type FLOAT, declared"),
        (tensor([4, 8], [8, 1]), seen([4, 8], [8, 1], alignment=8), "is aligned to 8, declared 16"),
        (tensor([4, 8], [8, 1]), Layout((4, 8), (8, 1), "float16", "cpu", 64), "is on the CPU"),
        (tensor([4], [1], "FP8_E4M3"), seen([4], [1], "uint8"), ""),
        (tensor([4], [1], "FP4_E2M1"), seen([2], [1], "uint8"), None),
        (tensor([4], [1]), Layout(None, None, "", "", 16), None),
        (tensor([4], [1]), seen([4], [1], "complex64"), None),
    ],
)
def test_why_run_would_refuse(declared: Tensor, layout: Layout, expected: str | None) -> None:
    found = explain_refusal(declared, PLAIN, layout)
    if expected:
        assert found is not None
        assert found.startswith(expected)
    else:
        assert found == expected


def binding_of(path: Path = OVERRIDE) -> Any:
    return bind(read_graph(path.with_suffix(".plan").read_bytes()))


def overriding(binding: Any, **dims: Any) -> Override:
    """Override operands with dims that are packed."""
    chosen = [a for a in binding.arguments if a.argument.removesuffix("_ptr") in dims]
    shapes = [dims[a.argument.removesuffix("_ptr")] for a in chosen]
    strides = []
    for shape in shapes:
        stride = [1]
        for size in reversed(shape[1:]):
            stride.insert(0, stride[0] * size)
        strides.append(tuple(stride))
    return Override(tuple(a.uid for a in chosen), tuple(map(tuple, shapes)), tuple(strides))


def test_symbols_that_set_what_changed() -> None:
    binding = binding_of()
    shapes = {shape.name: shape for shape in binding.overrides.shapes}
    names = [name for name, shape in shapes.items() if "m" in shape.axes]
    assert len(names) >= 2
    overrides = []
    for m in (8, 16, 24):
        dims = {}
        for name in names:
            dim = list(shapes[name].dim)
            dim[shapes[name].axes.index("m")] = m
            dims[name] = dim
        overrides.append(overriding(binding, **dims))
    symbols, notes = suggest_symbols(binding, overrides)
    assert symbols == [f"M={','.join(f'{name}.m' for name in names)}"]
    assert notes == []
    # What is suggested is taken.
    graph = read_graph(OVERRIDE.with_suffix(".plan").read_bytes())
    assert bind(graph, OverrideOptions(tuple(symbols))).overrides.symbols[0].name == "M"


def test_dims_that_change_apart_are_symbols_apart() -> None:
    binding = binding_of()
    shape = next(s for s in binding.overrides.shapes if {"m", "k"} <= {*s.axes})
    m, k = shape.axes.index("m"), shape.axes.index("k")
    overrides = []
    for sizes in ((8, 8), (8, 16), (16, 8)):
        dim = list(shape.dim)
        dim[m], dim[k] = sizes
        overrides.append(overriding(binding, **{shape.name: dim}))
    symbols, _ = suggest_symbols(binding, overrides)
    assert sorted(text.partition("=")[0] for text in symbols) == ["K", "M"]


def test_overrides_that_no_symbol_can_say() -> None:
    binding = binding_of()
    shape = next(s for s in binding.overrides.shapes if "m" in s.axes)
    dim = list(shape.dim)
    dim[shape.axes.index("m")] *= 2
    _, notes = suggest_symbols(binding, [overriding(binding, **{shape.name: dim})])
    assert notes == [f"{shape.name}.m exceeds what is declared: --unbounded"]
    fixed = bind(read_graph(PLANS[0].read_bytes()))
    assert suggest_symbols(fixed, []) == ([], ["the graph takes no overrides"])


def test_estimates_are_the_committed_figures() -> None:
    graphs = json.loads((BENCHMARKS / "h200.json").read_text())["graphs"]
    overrides = json.loads((BENCHMARKS / "h200-overrides.json").read_text())["overrides"]
    figures = [figures for _, figures in estimate._BY_TAG]
    for one in [*figures, estimate._POINTWISE, estimate._RAGGED]:
        rows = {name: row["median_us"] for name, row in graphs[one.benchmark]["rows"].items()}
        best = min(value for name, value in rows.items() if name.startswith("frontend"))
        record = rows["generated execute, record, every address new"]
        assert (one.frontend, one.record) == (round(best, 2), round(record, 2))
    for one, name in (
        (estimate._OVERRIDDEN, "matmul"),
        (estimate._OVERRIDDEN_ATTENTION, "sdpa"),
    ):
        rows = overrides[name]["median_us"]
        best = rows["frontend execute(list, tensor_uids=, override_uids=...)"]
        record = rows["generated execute, record of a class that repeats"]
        assert (one.frontend, one.record) == (round(best, 2), round(record, 2))


@pytest.mark.parametrize(
    ("tags", "is_ragged", "has_overrides", "benchmark"),
    [
        (["SDPA"], False, False, "sdpa_dense"),
        (["SDPA"], True, False, "sdpa_thd"),
        (["SDPA_BWD"], True, False, "built_sdpa_backward"),
        (["SDPA_FP8_FWD"], False, False, "sdpa_dense"),
        (["MATMUL", "POINTWISE"], False, False, "matmul_bias_relu"),
        (["POINTWISE", "POINTWISE"], False, False, "scale_by_value"),
        (["POINTWISE", "REDUCTION"], False, False, "built_reduction"),
        (["ADA_LAYER_NORM"], False, False, "layernorm"),
        ([], False, False, "layernorm"),
        (["MATMUL"], False, True, "overrides, product"),
        (["SDPA"], True, True, "overrides, attention"),
    ],
)
def test_which_benchmark_is_like_a_graph(
    tags: list[str], is_ragged: bool, has_overrides: bool, benchmark: str
) -> None:
    assert estimate.find_figures(tags, is_ragged, has_overrides).benchmark == benchmark


def test_processes_are_added_up(tmp_path: Path) -> None:
    tally = Tally(("MATMUL",), objects=1)
    tally.add_calls("MainThread", "", 5)
    tally.add_layout(1, seen([4], [1]))
    tally.add_override(Override((1,), ((4,),), ((1,),)), 5)
    tally.reasons = ["plan: none"]
    document = {
        "version": 1,
        "graphs": {"unread-1": tally.as_document()},
        "problems": [{"where": "a call", "what": "odd", "count": 2}],
    }
    (tmp_path / "usage").mkdir()
    for number in range(3):
        (tmp_path / "usage" / f"run-{number}.json").write_text(json.dumps(document))
    report = as_document(tmp_path)
    assert (report["processes"], report["calls"]) == (3, 15)
    (graph,) = report["graphs"]
    assert (graph["objects"], graph["threads"], graph["share"]) == (3, {"MainThread": 15}, 1.0)
    assert graph["reasons"] == ["plan: none", "no file of it is in the folder"]
    assert report["problems"] == [{"where": "a call", "what": "odd", "count": 6}]


def test_tallies_are_bounded() -> None:
    tally = Tally()
    for number in range(1000):
        tally.add_calls(f"thread {number}", "", 1)
        tally.add_layout(1, seen([number], [1]))
        tally.add_override(Override((number,), (), ()), 1)
    assert len(tally.threads) == 65
    assert tally.threads[OTHERS] == 936
    assert sum(tally.threads.values()) == 1000
    assert len(tally.layouts[1]) == 16
    assert (len(tally.overrides), tally.other_overrides) == (256, 744)
    assert Counter(tally.as_document()["plans"]) == {"": 1000}
