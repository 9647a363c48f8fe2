"""Plans that are kernels, and Python plans, which are traced into such."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from support.documents import (
    DATA,
    Document,
    add_graph,
    packed_kernels,
    plan_document,
    python_plan,
    to_ubjson,
    with_remedy,
)

from cudnn_bindgen import module_data
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.bundle import read_graphs, write_bundle
from cudnn_bindgen.codegen.bind.graphs import bind_graphs
from cudnn_bindgen.codegen.bind.plan_parts import plan_parts
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.model.kernel_plan import KEY, KernelLaunch, KernelPlan, TensorMap
from cudnn_bindgen.codegen.read.dialects.python_plan import read_head, without_code
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render
from cudnn_bindgen.module_data import pack, unpack

ADD = KernelPlan(
    engine=20517,
    name="add_sm90",
    knobs={"TILE_M": 64},
    sm=90,
    sm_count=132,
    binaries=[b"\x50\xed\x55\xba code"],
    tensor_maps=[TensorMap(9, [64, 4], [128], [64, 1], [1, 1], 0, 3, 0, 0, 1, 16)],
    launches=[
        KernelLaunch(
            0, "add", (4, 1, 1), (128, 1, 1), 1024, [(4, b"\2\0\0\0\1\0\0\0\1\0\0\0")],
            [bytes(128), bytes(16)], [(1, 0, 2, 0), (1, 8, 3, 8)], [(0, 0, 0)],
        )
    ],
    workspace_size=256,
)  # fmt: skip


def kernels(plan: KernelPlan = ADD, **fields: Any) -> Document:
    """A plan file of ``y = a + b``."""
    text = json.loads(msgspec.json.encode(plan)) | fields
    document = plan_document(add_graph(), **{KEY: json.dumps(text)})
    del document["cudnn_backend_data"]
    return document


CUT_OFF = "expected a whole Python plan, got one that is cut off (write graph.serialize() again)"
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "two plans": (
        lambda: to_ubjson(plan_document(add_graph()) | kernels()),
        "$: expected one plan, got cudnn_backend_data and kernel_plan",
    ),
    "another text": (
        lambda: to_ubjson(kernels(launches=[])),
        "$.kernel_plan: expected a plan that is kernels, as JSON text: Expected `array` of length "
        ">= 1 - at `$.launches`",
    ),
    "an unknown operand": (
        lambda: to_ubjson(kernels(tensor_maps=[[9, [4], [], [4], [1], 0, 3, 0, 0, 77, 0]])),
        "$.kernel_plan: expected a plan that is kernels, as JSON text: Expected `object`, got "
        "`array` - at `$.tensor_maps[0]`",
    ),
    "an operand that nobody binds": (
        lambda: to_ubjson(kernels() | {"variant_pack_uids": [1, 2]}),
        "$.kernel_plan: expected addresses of variant_pack_uids, got 3",
    ),
    "Python plan": (
        python_plan,
        "expected a plan that is traced, got a Python plan (sdpa_sm90) (cudnn-bindgen plan traces "
        "it, where nvidia-cudnn-frontend 1.32 or newer is installed)",
    ),
    "Python plan without a head": (lambda: python_plan()[:20], CUT_OFF),
    "Python plan with half a head": (lambda: python_plan()[:60], CUT_OFF),
    "Python plan without its code": (lambda: python_plan()[:-1], CUT_OFF),
    "Python plan of another format": (
        lambda: python_plan({"format": 2}),
        "$.format: expected format 1, got 2",
    ),
    "Python plan with another head": (
        lambda: python_plan({"plan": 1}),
        "expected the head of a Python plan, as JSON: Expected `object`, got `int` - at `$.plan`",
    ),
    "Python plan of no object": (
        lambda: python_plan(code=b"#!/bin/sh"),
        "$.kernels[0]: expected an object file (ELF), got something else",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(GraphFormatError) as caught:
        read_graph(make(), "F")
    assert str(caught.value) == with_remedy(f"F: {message}")


def test_a_plan_of_kernels_is_read() -> None:
    graph = read_graph(to_ubjson(kernels()))
    assert graph.plan is not None
    assert graph.plan.kernels == ADD
    assert graph.plan.engine == "engine 20517 TILE_M=64"
    assert (graph.plan.sm, graph.plan.sm_count, graph.plan.cudnn_version) == (90, 132, 0)
    structure_only = read_graph(json.dumps(add_graph()).encode())
    assert fingerprint(graph) == fingerprint(structure_only)


def test_the_runtime_gets_the_same_kernels() -> None:
    graph = read_graph(to_ubjson(kernels()))
    assert graph.plan is not None
    parts = plan_parts(graph.plan, fingerprint(graph), {1, 2, 3})
    assert parts.kernels == module_data.KernelPlan(
        (b"\x50\xed\x55\xba code",),
        (module_data.TensorMap(9, (64, 4), (128,), (64, 1), (1, 1), 0, 3, 0, 0, 1, 16),),
        (
            module_data.KernelLaunch(
                0, "add", (4, 1, 1), (128, 1, 1), 1024, ((4, b"\2\0\0\0\1\0\0\0\1\0\0\0"),),
                (bytes(128), bytes(16)), ((1, 0, 2, 0), (1, 8, 3, 8)), ((0, 0, 0),),
            ),
        ),
        256,
    )  # fmt: skip
    assert (parts.text, parts.cudnn_version) == (b"", 0)
    graph_data = module_data.GraphData((), "f", "s", "plan", (), (), (), (), None, (parts,), b"")
    data = module_data.ModuleData("f", (), (), (graph_data,))
    assert unpack(pack(data)) == data


def test_a_bundle_holds_both_kinds() -> None:
    both = write_bundle([("a", to_ubjson(kernels())), ("b", to_ubjson(plan_document(add_graph())))])
    found = [graph.plan for graph in read_graphs(both)]
    assert {(plan.sm_count, plan.cudnn_version) for plan in found if plan} == {(132, 0), (0, 91900)}


def test_packed_operands_of_kernels_are_as_large_as_declared() -> None:
    """Kernels are launched with the size of packed tokens; one plan of them decides."""
    file = DATA / "plans" / "cudnn-9.19-sm90" / "sdpa_thd.plan"
    of_cudnn = file.read_bytes()
    launch = msgspec.structs.replace(ADD.launches[0], addresses=[(1, 0, 11, 0)])
    of_kernels = packed_kernels(msgspec.structs.replace(ADD, launches=[launch]))

    def kinds(*plans: bytes) -> dict[str, str]:
        bundle = write_bundle([(str(index), plan) for index, plan in enumerate(plans)])
        binding = bind_graphs(read_graphs(bundle))
        return {argument.name: argument.layout.kind for argument in binding.arguments}

    assert kinds(of_cudnn)["q"] == kinds(of_cudnn)["k"] == kinds(of_cudnn)["o"] == "ragged"
    for plans in ((of_kernels,), (of_cudnn, of_kernels), (of_kernels, of_cudnn)):
        found = kinds(*plans)
        assert "ragged" not in found.values()
        assert (found["q"], found["k"]) == ("plain", "swapped")


def test_a_module_names_its_kernels() -> None:
    binding = bind(read_graph(to_ubjson(kernels())))
    text = render(binding, "add", "add.plan")["add.pyx"]
    said = " ".join(text.split())
    assert "Plan for SM 90, 132 multiprocessors, any cuDNN: engine 20517 TILE_M=64" in said
    assert f"kernels with SHA-256 {ADD.digest}" in said


def test_a_python_plan_without_its_code() -> None:
    data = python_plan()
    head = read_head(without_code(data))
    assert (head.kernels, head.plan) == ([], read_head(data).plan)
    assert b"ELF" not in without_code(data)
