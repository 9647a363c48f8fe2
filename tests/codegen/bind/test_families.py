"""What becomes one module of several graphs, what tells them apart, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from support.documents import (
    Document,
    document,
    node,
    plan_document,
    scalar,
    tensor,
    to_json,
    to_ubjson,
)
from support.emitting import record_of

from cudnn_bindgen.codegen.bind.alike import BoundGraph
from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.family import Family, make_family
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render_family

Change = Callable[[Document], Any]


def product(m: int, n: int = 8, k: int = 16, **fields: Any) -> Document:
    """``relu(a @ b)``, with a virtual tensor between."""
    return document(
        [
            node("MATMUL", {"A": 1, "B": 2}, {"C": 3}),
            node("POINTWISE", {"IN_0": 3}, {"OUT_0": 4}, mode="RELU_FWD", relu_lower_clip=None),
        ],
        [
            tensor(1, "a", dim=[1, m, k], stride=[m * k, k, 1]),
            tensor(2, "b", dim=[1, k, n], stride=[k * n, n, 1]),
            tensor(3, "mm::C", dim=[1, m, n], stride=[m * n, n, 1], is_virtual=True),
            tensor(4, "c", dim=[1, m, n], stride=[m * n, n, 1]),
        ],
        **fields,
    )


def bound(raw: Document, file: str) -> BoundGraph:
    graph = read_graph(to_ubjson(raw) if "cudnn_backend_data" in raw else to_json(raw))
    return BoundGraph(file, file, graph, bind(graph))


def family(*documents: Document, keys: tuple[str, ...] = ()) -> Family:
    graphs = [bound(raw, f"{chr(97 + i)}.json") for i, raw in enumerate(documents)]
    return make_family(graphs, keys)


def key_of(made: Family) -> dict[str, tuple[int, ...]]:
    return {dim.name: dim.values for dim in made.key}


def refusal(*documents: Document, keys: tuple[str, ...] = ()) -> str:
    with pytest.raises(EmitError) as caught:
        family(*documents, keys=keys)
    return str(caught.value)


# The key


def test_the_key_is_what_differs() -> None:
    made = family(product(64), product(16), product(32))
    assert key_of(made) == {"a_m": (16, 32, 64)}
    assert [member.key for member in made.members] == [(16,), (32,), (64,)]
    assert [member.source for member in made.members] == ["b.json", "c.json", "a.json"]
    # Where the outputs are made, they follow.
    assert made.key[0].places == ((0, 1), (2, 1))


def test_dims_that_differ_apart_are_numbers_of_their_own() -> None:
    made = family(product(16, 8), product(32, 8), product(16, 4), product(32, 4))
    assert key_of(made) == {"a_m": (16, 16, 32, 32), "b_n": (4, 8, 4, 8)}
    assert [member.key for member in made.members] == [(16, 4), (16, 8), (32, 4), (32, 8)]


def test_dims_that_change_together_are_one_number() -> None:
    made = family(product(16, 8), product(32, 4))
    assert key_of(made) == {"a_m": (16, 32)}
    assert made.key[0].places == ((0, 1), (2, 1))  # not those of n, which are other numbers


def test_a_key_may_be_named_and_chosen() -> None:
    graphs = product(16, 8), product(32, 4), product(64, 2)
    assert key_of(family(*graphs, keys=("N=b.n",))) == {"N": (2, 4, 8)}
    both = {"M": (16, 32, 64), "N": (8, 4, 2)}
    assert key_of(family(*graphs, keys=("M=a.m, N=b.2",))) == both
    assert key_of(family(*graphs, keys=("M=a.1", "N = c.n"))) == both


def test_a_key_may_name_a_number_that_is_the_same_in_all() -> None:
    made = family(product(16), product(32), keys=("M=a.m,K=a.k",))
    assert [member.key for member in made.members] == [(16, 16), (32, 16)]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("a.m", "NAME=OPERAND.AXIS such as B=q.b, got this"),
        ("", "NAME=OPERAND.AXIS such as B=q.b, got this"),
        ("M=a.m,", "NAME=OPERAND.AXIS such as B=q.b, got this"),
        ("M=a.m+1", "NAME=OPERAND.AXIS such as B=q.b, got this"),
        ("M=x.m", "an operand among a, b, c, got x"),
        ("M=a.x", "an axis of a among 0 (b), 1 (m), 2 (k), got x"),
        ("M=a.3", "an axis of a among 0 (b), 1 (m), 2 (k), got 3"),
        ("M=a.m,M=b.n", "a name of its own, got M, which is another argument"),
        ("a=a.m", "a name of its own, got a, which is another argument"),
        ("a_ptr=a.m", "a name of its own, got a_ptr, which is another argument"),
        ("stream=a.m", "a name that can be an argument, got stream"),
        ("key_=a.m", "a name that can be an argument, got key_"),
        ("class=a.m", "a name that can be an argument, got class"),
        ("NULL=a.m", "a name that can be an argument, got NULL"),
        ("True=a.m", "a name that can be an argument, got True"),
        ("_m=a.m", "a name that can be an argument, got _m"),
        ("1m=a.m", "a name that can be an argument, got 1m"),
        ("execute_member=a.m", "a name that can be an argument, got execute_member"),
        (f"{'m' * 41}=a.m", f"a name that can be an argument, got {'m' * 37}..."),
        ("\u00b5=a.m", "NAME=OPERAND.AXIS such as B=q.b, got this"),
    ],
)
def test_what_a_key_must_be(key: str, message: str) -> None:
    assert refusal(product(16), product(32), keys=(key,)).endswith(f": expected {message}")


def test_a_key_must_tell_all_graphs_apart() -> None:
    graphs = product(16, 8), product(32, 8), product(16, 4)
    assert refusal(*graphs, keys=("M=a.m",)) == (
        "--family: expected dims that tell all graphs apart, got M=16 in c.json and a.json"
    )


def test_graphs_that_differ_in_strides_only() -> None:
    other = product(16)
    other["tensors"][0]["stride"] = [1024, 64, 1]
    assert refusal(product(16), other, product(32)) == (
        "--family: expected dims that tell all graphs apart, got all dims equal, and only strides "
        "or numbers differ, in a.json and b.json"
    )


@pytest.mark.parametrize("fields", [{}, {"gid": 7}])
def test_one_graph_twice_belongs_into_a_bundle(fields: Document) -> None:
    message = refusal(product(16), product(32), product(16, **fields))
    assert message == (
        "--family: expected different graphs, got one twice: a.json and c.json: plans of one graph "
        "for several devices belong into a bundle (cudnn-bindgen bundle), which is one member"
    )


def test_how_many_there_can_be() -> None:
    assert refusal(product(16)) == "--family: expected several graphs, got 1"
    one = bound(product(16), "a.json")
    with pytest.raises(EmitError, match="expected at most 1024 graphs, got 1025"):
        make_family([one] * 1025)


def test_a_key_is_no_longer_than_anybody_reads() -> None:
    def many(seed: int) -> Document:
        tensors = [tensor(i, f"t{i}", dim=[1 + (seed >> i & 1)], stride=[1]) for i in range(1, 19)]
        nodes = [
            node("POINTWISE", {"IN_0": i, "IN_1": i + 1}, {"OUT_0": 100 + i}, mode="ADD")
            for i in range(1, 18)
        ]
        outputs = [tensor(100 + i, f"o{i}", dim=[1], stride=[1]) for i in range(1, 18)]
        return document(nodes, tensors + outputs)

    graphs = [many(0), *(many(1 << i) for i in range(1, 19))]
    assert refusal(*graphs) == (
        "--key: expected at most 16 numbers, got 18: the dims that differ; name those that matter"
    )
    one = tuple(f"k{i}=t{i}.0" for i in range(1, 18))
    assert refusal(*graphs, keys=one) == "--key: expected at most 16 numbers, got 17"


# What must be equal


def changed(change: Change) -> Document:
    raw = product(32)
    change(raw)
    return raw


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw["tensors"][0].update(name="x"),
            "operand 0: expected a_ptr as in a.json, got x_ptr",
        ),
        (
            lambda raw: raw["tensors"][0].update(data_type="HALF"),
            "a_ptr: expected data type BFLOAT16 as in a.json, got HALF",
        ),
        (
            lambda raw: [
                t.update(dim=t["dim"][1:], stride=t["stride"][1:]) for t in raw["tensors"]
            ],
            "a_ptr: expected rank 3 as in a.json, got 2",
        ),
        (
            lambda raw: raw["nodes"][1].update(mode="GELU_FWD"),
            "node 1 (POINTWISE): mode: expected RELU_FWD as in a.json, got GELU_FWD",
        ),
        (
            lambda raw: raw["nodes"][1].update(relu_lower_clip="3F800000"),
            "node 1 (POINTWISE): relu_lower_clip: expected nothing as in a.json, got a number",
        ),
        (
            lambda raw: raw["nodes"][1].update(is_odd=True),
            "node 1 (POINTWISE): is_odd: expected nothing as in a.json, got true",
        ),
        (
            lambda raw: raw["nodes"][0].update(tag="MATMUL_FP8"),
            "nodes: expected MATMUL, POINTWISE as in a.json, got MATMUL_FP8, POINTWISE",
        ),
        (
            lambda raw: raw["nodes"][1]["inputs"].update(IN_0=1),
            "node 1 (POINTWISE): IN_0: expected tensor 3 as in a.json, got a_ptr",
        ),
        (
            lambda raw: raw["tensors"][2].update(is_virtual=False),
            "operands: expected a_ptr, b_ptr, c_ptr as in a.json, got 4: a_ptr, b_ptr, c_ptr, "
            "c_2_ptr",
        ),
    ],
)
def test_what_must_be_equal(change: Change, message: str) -> None:
    # Of two, the one with smaller dims is the one that the other is compared with.
    assert refusal(product(16), changed(change)) == f"--family: b.json: {message}"


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw["nodes"][1].update(name="other"),
        lambda raw: raw["nodes"][1].update(is_new=False, also_new=None),
        lambda raw: raw["nodes"][0].update(padding_value=0.0, compute_data_type="FLOAT"),
        lambda raw: (
            raw["tensors"][2].update(uid=30, name="x::C")
            or raw["nodes"][0]["outputs"].update(C=30)
            or raw["nodes"][1]["inputs"].update(IN_0=30)
        ),
        lambda raw: raw["tensors"][0].update(stride=[32 * 64, 64, 1], alignment=32),
    ],
)
def test_what_may_differ(change: Change) -> None:
    first = product(16)
    first["nodes"][0]["padding_value"] = 1.0
    raw = changed(change)
    raw["nodes"][0].setdefault("padding_value", 2.0)
    assert key_of(family(first, raw)) == {"a_m": (16, 32)}


def test_override_shapes_need_no_family() -> None:
    context = product(16)["context"] | {"is_override_shape_enabled": True}
    message = refusal(product(16), product(32, context=context))
    assert message == (
        "--family: b.json: expected a graph of one shape, got one with override shapes: emit it "
        "alone, and its Overrides serve all shapes"
    )


def with_scalar(m: int, value: float | None) -> Document:
    raw = product(m)
    raw["nodes"][1]["inputs"]["IN_1"] = 5
    raw["nodes"][1]["mode"] = "ADD"
    written = None if value is None else {"index": 4, "value": value}
    raw["tensors"].append(scalar(5, "epsilon", written, data_type="DOUBLE"))
    return raw


@pytest.mark.parametrize(
    ("values", "default"),
    [((1.5, 1.5), 1.5), ((1.5, 2.5), None), ((1.5, None), None), ((None, None), None)],
)
def test_a_default_that_differs_is_none(
    values: tuple[float | None, float | None], default: float | None
) -> None:
    made = family(*(with_scalar(16 << i, value) for i, value in enumerate(values)))
    [joined] = made.scalars
    assert (joined.default.value if joined.default else None) == default
    text = render_family(made, "module")["module.pyi"]
    # Required arguments come before those with a default.
    order = ["a_m: int,", "epsilon: float = ...,", "workspace_ptr"]
    if default is None:
        order = ["epsilon: float,", "a_m: int,", "workspace_ptr"]
    places = [text.index(line) for line in order]
    assert places == sorted(places)


# Names


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a_m", "a_m_2"),
        ("key", "a_m"),
        ("key_", "a_m"),
        ("members", "a_m"),
        ("run_member", "a_m"),
        ("_family", "a_m"),
        ("MEMBERS", "a_m"),
        ('"""\nimport os', "a_m"),
    ],
)
def test_names_do_not_collide(name: str, key: str) -> None:
    graphs = []
    for m in (16, 32):
        raw = product(m)
        raw["tensors"][1]["name"] = name
        graphs.append(raw)
    made = family(*graphs)
    assert [dim.name for dim in made.key] == [key]
    check_text(render_family(made, "module"))


def check_text(files: dict[str, str]) -> None:
    import ast

    from support.cython_tree import parse

    assert sorted(files) == ["module.pxd", "module.pyi", "module.pyx"]
    for text in files.values():
        assert text.isascii()
        assert text.splitlines() == text.removesuffix("\n").split("\n")
        assert max(len(line) for line in text.splitlines() if "Operand(" not in line) <= 100
    ast.parse(files["module.pyi"])
    parse(files["module.pyx"], is_pxd=False)
    parse(files["module.pxd"], is_pxd=True)


def test_hostile_names_of_files() -> None:
    files = ['"""', "\u202e.plan", "a\nimport os", "x" * 500]
    graphs = [bound(plan_document(product(16 << i)), f) for i, f in enumerate(files)]
    text = render_family(make_family(graphs), "module")
    check_text(text)
    assert "\nimport os" not in text["module.pyx"]


def test_the_order_of_files_does_not_show() -> None:
    documents = [plan_document(product(m, n)) for m in (16, 32, 64) for n in (4, 8)]
    graphs = [bound(raw, f"{i}.plan") for i, raw in enumerate(documents)]
    expected = render_family(make_family(graphs), "module")
    check_text(expected)
    for seed in range(5):
        random.Random(seed).shuffle(graphs)
        assert render_family(make_family(graphs), "module") == expected


def test_members_may_have_uids_of_their_own() -> None:
    other = product(32)
    for item in other["tensors"]:
        item["uid"] += 10
    for one in other["nodes"]:
        for ports in (one["inputs"], one["outputs"]):
            ports.update({port: uid + 10 for port, uid in ports.items()})
    made = family(product(16), other)
    text = render_family(made, "module")["module.pyx"]
    assert "  # uid" not in text
    uids = [[operand.uid for operand in graph.operands] for graph in record_of(text).graphs]
    assert uids == [[1, 2, 4], [11, 12, 14]]


def test_the_digest_is_that_of_all_members() -> None:
    one, other = family(product(16), product(32)), family(product(16), product(64))
    assert one.fingerprint == family(product(32), product(16)).fingerprint
    assert len({one.fingerprint, other.fingerprint}) == 2
