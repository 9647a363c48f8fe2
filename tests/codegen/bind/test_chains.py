"""Wiring graphs: which tensors are one, in which order links run, where inner tensors lie."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import Case
from support.chains import DIAMOND, NORM, PRODUCT, STRAIGHT, SUM, Wired, link_case
from support.cython_tree import parse, shape
from support.documents import DATA
from support.emitting import check_binding, check_files
from support.hostile_values import NAMES

from cudnn_bindgen.codegen.bind.binding import Binding, bind
from cudnn_bindgen.codegen.bind.chain import Chain, make_chain
from cudnn_bindgen.codegen.bind.chain_layout import CycleError, Inner, find_order, lay_out
from cudnn_bindgen.codegen.bind.chain_ports import LinkGraph
from cudnn_bindgen.codegen.bind.data import data_of_chain
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.read.chain import ChainFile, Link, View
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.render.module import render_chain
from cudnn_bindgen.module_data import pack, unpack

# Layout


@st.composite
def wirings(draw: Any) -> tuple[list[set[int]], list[tuple[int, int, list[int]]]]:
    """Links in any order of a file, and tensors: bytes, who writes, who reads."""
    links = draw(st.permutations(range(draw(st.integers(1, 9)))))
    sizes = st.one_of(st.just(0), st.integers(1, 600), st.just(2**40))
    tensors = []
    for _ in range(draw(st.integers(0, 12)) if len(links) > 1 else 0):
        at = draw(st.integers(0, len(links) - 2))
        readers = draw(st.sets(st.integers(at + 1, len(links) - 1), min_size=1, max_size=3))
        tensors.append((draw(sizes), links[at], [links[reader] for reader in readers]))
    needs: list[set[int]] = [set() for _ in links]
    for _, writer, readers in tensors:
        for reader in readers:
            needs[reader].add(writer)
    return needs, tensors


def reaches(needs: list[set[int]], first: int, last: int) -> bool:
    """Whether `last` waits for `first`, by whatever way."""
    return any(one == first or reaches(needs, first, one) for one in needs[last])


@given(wirings())
def test_tensors_that_live_at_once_never_overlap(
    wiring: tuple[list[set[int]], list[tuple[int, int, list[int]]]],
) -> None:
    needs, tensors = wiring
    order = find_order(needs)
    place = {link: at for at, link in enumerate(order.links)}
    inner = [Inner(n, place[w], tuple(place[r] for r in readers)) for n, w, readers in tensors]
    offsets, size = lay_out(inner, order.before)
    spans = [(offset, offset + one.size) for offset, one in zip(offsets, inner, strict=True)]
    assert all(offset % 256 == 0 for offset in offsets)
    assert size % 256 == 0
    assert max((end for _, end in spans), default=0) <= size
    assert size <= sum(-(-one.size // 256) * 256 for one in inner)
    for number, (_, writer, readers) in enumerate(tensors):
        for other, (_, other_writer, other_readers) in enumerate(tensors[:number]):
            if spans[number][0] >= spans[other][1] or spans[other][0] >= spans[number][1]:
                continue
            # They share memory: all of one is over before the other is written.
            users, other_users = [writer, *readers], [other_writer, *other_readers]
            assert all(reaches(needs, user, other_writer) for user in users) or all(
                reaches(needs, user, writer) for user in other_users
            )


@given(wirings())
def test_the_order_is_one_and_says_no_more_than_it_must(
    wiring: tuple[list[set[int]], list[tuple[int, int, list[int]]]],
) -> None:
    needs, _ = wiring
    order = find_order(needs)
    assert sorted(order.links) == list(range(len(needs)))
    reduced = [{*after} for after in order.after]
    for last, link in enumerate(order.links):
        for first, other in enumerate(order.links):
            waits = reaches(needs, other, link)
            assert bool(order.before[last] >> first & 1) is waits
            assert reaches(reduced, first, last) is waits
            assert not waits or first < last
            if first != last and order.lanes[first] == order.lanes[last]:
                assert waits or reaches(needs, link, other)
        for one in reduced[last]:
            assert not any(reaches(reduced, one, other) for other in reduced[last])


def test_a_chain_reuses_memory() -> None:
    """Of a row of equal tensors two are alive at once."""
    order = find_order([set(), *({link} for link in range(9))])
    offsets, size = lay_out([Inner(1000, at, (at + 1,)) for at in range(9)], order.before)
    assert {*offsets} == {0, 1024}
    assert size == 2048


def test_links_keep_the_order_of_the_file_where_they_can() -> None:
    assert find_order([{2}, set(), set(), {0}]).links == (1, 2, 0, 3)
    with pytest.raises(CycleError) as caught:
        find_order([{1}, {2}, {0}])
    assert {*caught.value.links} == {0, 1, 2}


# Wiring


def test_arguments_are_inputs_outputs_and_scalars() -> None:
    chain = DIAMOND.chain()
    check_binding(chain.binding)
    assert [(a.name, a.role, a.original) for a in chain.binding.arguments] == [
        ("x", "input", "x"),
        ("norm_w", "input", "norm.W"),
        ("left_b", "input", "left.B"),
        ("right_b", "input", "right.B"),
        ("sum_s", "output", "sum.S"),
        ("sum_t", "output", "sum.T"),
        ("norm_eps", "scalar", "norm.eps"),
    ]
    assert [link.name for link in chain.links] == ["norm", "left", "right", "sum"]
    assert [link.after for link in chain.links] == [(), (0,), (0,), (1, 2)]
    assert [link.lane for link in chain.links] == [0, 0, 1, 0]


def test_tensors_are_named_by_name_argument_or_uid() -> None:
    names = Wired(DIAMOND.links, {"left.A": "norm.Y"}).chain()
    for wires in ({"left.a": "norm.y"}, {"left.1": "norm.3"}):
        assert Wired(DIAMOND.links, wires).chain().binding == names.binding


def test_the_fingerprint_is_of_graphs_and_wires() -> None:
    same = Wired(DIAMOND.links, {**DIAMOND.wires}, {"other": ["norm.X", "sum.Z"]})
    assert same.chain().binding.fingerprint == DIAMOND.chain().binding.fingerprint
    crossed = {**DIAMOND.wires, "sum.L": "right.C", "sum.R": "left.C"}
    for other in (
        Wired(DIAMOND.links, crossed, DIAMOND.operands),
        Wired(DIAMOND.links, DIAMOND.wires),
        Wired(DIAMOND.links, DIAMOND.wires, {**DIAMOND.operands, "y": ["norm.Y"]}),
        DIAMOND.changed(right=link_case("other", ["A", "B", "D"], ["C"])),
    ):
        assert other.chain().binding.fingerprint != DIAMOND.chain().binding.fingerprint


def test_what_may_be_the_same_memory_of_tensors_of_one_link() -> None:
    assert PRODUCT.binding.shared
    alone = Wired({"a": PRODUCT, "b": PRODUCT}, {"b.A": "a.C"}).chain().binding
    names = {(alone.arguments[o].name, alone.arguments[i].name) for o, i in alone.shared}
    assert names == {("b_c", "b_b")}  # a's output is read by b


def test_data_survives_packing() -> None:
    data = data_of_chain(STRAIGHT.chain(), "layer.toml")
    assert unpack(pack(data)) == data


def test_views() -> None:
    wide = link_case("wide", ["A"], ["C"], count=8, default=1.0)
    chain = Wired(
        {"wide": wide, "sum": SUM}, {"sum.L": View("wide.C", 2), "sum.R": View("wide.C")}
    ).chain()
    assert [offset for _, offset in chain.links[1].places[:2]] == [16, 0]
    read = Wired({"wide": wide, "sum": SUM}, {}, {"x": ["wide.A", View("sum.Z", 2)]}).chain()
    assert read.links[1].places[2] == (0, 16)
    assert read.binding.arguments[0].dim == (8,)


LONG = link_case("long", ["A", "A"], ["C"], count=9)
TWO = {"a": NORM, "b": NORM}
REFUSED: dict[str, tuple[Wired, str]] = {
    "no link": (
        Wired(TWO, {"c.X": "a.Y"}),
        r'\[wires\] "c\.X" = "a\.Y": expected LINK\.TENSOR with a link of the chain, got "c\.X"$',
    ),
    "nearly a link": (Wired({"norm": NORM}, {"nrom.X": "norm.Y"}), "did you mean norm"),
    "no tensor": (
        Wired(TWO, {"b.X": "a.Z"}),
        r'"b\.X" = "a\.Z": expected a tensor of a among x, w, y, eps, got "Z"$',
    ),
    "no dot": (Wired(TWO, {"b": "a.Y"}), r'expected a tensor of b among .* got ""$'),
    "two of a name": (
        Wired({"a": NORM, "b": LONG}, {"b.A": "a.Y"}),
        r'expected one tensor, got "A", which uids 1, 2 of b are called: name it by uid$',
    ),
    "into an output": (
        Wired(TWO, {"b.Y": "a.Y"}),
        r"expected an input at b\.Y \(output, DOUBLE, dim 5, stride 1\)$",
    ),
    "from an input": (Wired(TWO, {"b.X": "a.X"}), r"expected an output at a\.X \(input, "),
    "two into one": (
        Wired(TWO, {"b.X": "a.Y", "b.1": "a.Y"}),
        r'"b\.1" = "a\.Y": expected one wire into an input, got \[wires\] "b\.X" = "a\.Y"$',
    ),
    "a scalar": (
        Wired(TWO, {"b.eps": "a.Y"}),
        r"expected an input at b\.eps \(a scalar, FLOAT, which callers pass by value\)$",
    ),
    "other dims": (
        Wired({"a": NORM, "b": link_case("b", ["A", "B"], ["C"], count=9)}, {"b.A": "a.Y"}),
        r"expected tensors of one data type, dim and stride, got a\.Y \(output, DOUBLE, dim 5, "
        r"stride 1\) and b\.A \(input, DOUBLE, dim 9, stride 1\); where they are the same memory",
    ),
    "a view that is too large": (
        Wired(TWO, {"b.X": View("a.Y", 2)}),
        r"expected at most 5 elements, as a\.Y \(.*\) has, got 7 up to the end of b\.X",
    ),
    "a view off its alignment": (
        Wired(TWO, {"b.X": View("a.Y", 1)}),
        r"expected an offset of a multiple of 16 bytes, as b\.X \(.*\) asks, got 1 elements$",
    ),
    "a view of a scalar": (
        Wired(TWO, {}, {"e": ["a.eps", View("b.eps")]}),
        "expected tensors of one data type",
    ),
    "nothing but views": (
        Wired(TWO, {}, {"x": [View("a.X")]}),
        r"\[operands\] x: expected a tensor that is not a view of another, got none$",
    ),
    "itself": (Wired(TWO, {"a.X": "a.Y"}), "links that do not wait for each other, got a -> a$"),
    "a cycle": (
        Wired(TWO, {"a.X": "b.Y", "b.X": "a.Y"}),
        "expected links that do not wait for each other, got (a -> b -> a|b -> a -> b)$",
    ),
    "a scalar and a tensor": (
        Wired(TWO, {}, {"x": ["a.X", "a.eps"]}),
        r"\[operands\] x: expected tensors of one .* a\.X .* and a\.eps",
    ),
    "two outputs": (
        Wired(TWO, {}, {"x": ["a.Y", "b.Y"]}),
        r"\[operands\] x: expected at most one output, got a\.Y \(.*\) and b\.Y \(",
    ),
    "one tensor twice": (
        Wired(TWO, {}, {"x": ["a.X", "a.X"]}),
        r"\[operands\] x: expected each tensor once, got a\.X \(.*\) twice$",
    ),
    "two operands": (
        Wired(TWO, {}, {"x": ["a.X"], "y": ["a.X", "b.X"]}),
        r"\[operands\] y: expected tensors of one argument, got a\.X \(.*\), which is also x$",
    ),
    "a wired input": (
        Wired(TWO, {"b.X": "a.Y"}, {"x": ["b.X"]}),
        r'got b\.X \(.*\), which has a wire: \[wires\] "b\.X" = "a\.Y"; name the output$',
    ),
    "no name": (
        Wired(TWO, {}, {"\u2603": ["a.X"]}),
        r"\[operands\] \\u2603: expected a name that can be an argument$",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wires_that_cannot_be(name: str) -> None:
    wired, match = REFUSED[name]
    with pytest.raises(EmitError, match=match):
        wired.chain()


def test_a_graph_with_override_shapes() -> None:
    binding = bind(read_graph((DATA / "structure-v2/override.json").read_bytes()))
    said = ChainFile((Link("a", "override.json"),))
    with pytest.raises(EmitError, match=r"^\[\[link\]\] a: .* one with override shapes"):
        make_chain(said, [LinkGraph("a", "override.json", binding)])


def test_a_ragged_tensor_is_wired_as_a_view_alone() -> None:
    binding = bind(read_graph((DATA / "plans/cudnn-9.19-sm90/sdpa_thd.plan").read_bytes()))
    graphs = [LinkGraph(name, "sdpa_thd.plan", binding) for name in ("a", "b")]
    link = tuple(Link(one.name, one.source) for one in graphs)
    plain = dataclasses.replace(binding, arguments=tuple(map(_as_plain, binding.arguments)))
    # Both of them ragged, in the same way.
    make_chain(ChainFile(link, {"b.q": "a.o"}), graphs)
    one_plain = [graphs[0], LinkGraph("b", "b.plan", plain)]
    with pytest.raises(EmitError, match=r"got a\.\S+ \(ragged output, .* and b\.\S+ \(input, "):
        make_chain(ChainFile(link, {"b.q": "a.o"}), one_plain)
    make_chain(ChainFile(link, {"b.q": View("a.o")}), one_plain)


def _as_plain(argument: Any) -> Any:
    layout = dataclasses.replace(argument.layout, kind="plain")
    return dataclasses.replace(argument, layout=layout)


# Names


def named(case: Case, *names: str) -> Binding:
    """A case's binding with other names in its file."""
    renamed = zip(case.binding.operands, names, strict=True)
    operands = [dataclasses.replace(one, original=name) for one, name in renamed]
    return dataclasses.replace(case.binding, arguments=(*operands, *case.binding.scalars))


def hostile_chain(first: str, second: str, source: str) -> Chain:
    graphs = [
        LinkGraph("a", source, named(PRODUCT, first, second, "C")),
        LinkGraph("b", source, named(PRODUCT, second, first, "C")),
    ]
    link = (Link("a", "a.plan"), Link("b", "b.plan"))
    wires: dict[str, str | View] = {f"b.{first}": "a.C"}
    return make_chain(ChainFile(link, wires, {first or "x": (f"b.{second}",)}), graphs)


def test_whatever_tensors_are_called_only_literals_change() -> None:
    plain = render_chain(hostile_chain("first", "second", "plain"), "module", "plain")
    for first in NAMES:
        second = f"{first}2"
        try:
            chain = hostile_chain(first, second, first)
        except EmitError as error:
            assert "expected a name that can be an argument" in str(error)
            assert str(error).isascii()
            continue
        check_binding(chain.binding)
        files = render_chain(chain, "module", first)
        check_files(files)
        ast.parse(files["module.pyi"])
        assert shape(parse(files["module.pyx"])) == shape(parse(plain["module.pyx"]))
