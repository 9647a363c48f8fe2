"""Bundles that are damaged, edited or hostile: refused, and never taken for another plan."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from zipfile import ZIP_BZIP2, ZIP_LZMA, ZIP_STORED, ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bundling import (
    INDEX,
    bundle,
    device,
    file_name,
    make_zip,
    plan,
    two,
    unzip,
    with_entry,
    with_file,
    with_index,
)
from support.byte_mutations import mutate_bytes
from support.documents import Document, add_graph, document, node, scalar, tensor, tensors, to_json
from support.emitting import check_refusal

from cudnn_bindgen.codegen.bind.binding import bind
from cudnn_bindgen.codegen.bind.bundle import read_graphs, write_bundle
from cudnn_bindgen.codegen.errors import GraphFormatError
from cudnn_bindgen.codegen.model.graph import Graph
from cudnn_bindgen.codegen.read.archive import digest
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.codegen.read.source import MAX_BYTES

Files = Sequence[tuple[str, bytes]]

FIRST, SECOND = file_name(), file_name(cudnn="9.27.0")
AGAIN = "(the bundle is damaged or was edited: make it again with cudnn-bindgen bundle)"
CUT = "(is the file truncated? copy it again, or make it again with cudnn-bindgen bundle)"
ONE_GRAPH = "(a bundle holds plans of one graph: plan the same graph for each GPU and cuDNN)"
EDITED = "(the bundle was edited: make it again with cudnn-bindgen bundle)"
NO_PLAN = "(make a plan of it with cudnn-bindgen plan, on each GPU that it is for)"
MANY = "(make one for each generation of GPUs)"
LARGE = "(no plans are that large; are these the right files?)"
FILES = "expected each file that bundle.json lists, once and no other, got a difference: "
ENDS = f": expected a bundle, got a zip archive that does not end as one {CUT}"


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def with_end(data: bytes, offset: int, value: bytes) -> bytes:
    """Change the end of the directory."""
    return patched(data, len(data) - 22 + offset, value)


def with_directory(data: bytes, name: str, offset: int, value: bytes) -> bytes:
    """Change what the directory says of a file."""
    return patched(data, data.rindex(name.encode()) - 46 + offset, value)


def with_twice(data: bytes) -> bytes:
    """Two members of one name, of which zipfile takes the last one."""
    buffer = BytesIO(data)
    with ZipFile(buffer, "a") as archive:
        archive.writestr("x" * len(FIRST), plan(sm=100))
    return buffer.getvalue().replace(b"x" * len(FIRST), FIRST.encode())


def with_zip64(data: bytes) -> bytes:
    """A second end of the directory, whose numbers zipfile would take."""
    at = len(data) - 22
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1)
    size = struct.pack("<L", struct.unpack_from("<L", data, at + 12)[0] + len(locator))
    return with_end(data[:at] + locator + data[at:], 12, size)


def with_renamed(data: bytes, old: str, new: str) -> bytes:
    members = unzip(data)
    members[new] = members.pop(old)
    names = [entry["name"] for entry in json.loads(members[INDEX])["plans"]]
    return make_zip(members | {INDEX: unzip(with_entry(data, names.index(old), name=new))[INDEX]})


def without(data: bytes, name: str) -> bytes:
    return make_zip({key: value for key, value in unzip(data).items() if key != name})


def many_members() -> bytes:
    return make_zip({INDEX: b""} | {f"{number}.plan": b"" for number in range(300)})


def other_graph() -> bytes:
    nodes = [node("POINTWISE", {"IN_0": 1}, {"OUT_0": 2}, mode="EXP")]
    return plan(cudnn=92700, structure=document(nodes, tensors(1, 2)))


def fingerprint(data: bytes) -> str:
    return bind(read_graph(data)).fingerprint


def repeated_entry(data: bytes) -> bytes:
    plans = json.loads(unzip(data)[INDEX])["plans"]
    return with_index(data, plans=[*plans, plans[0]])


def scale_graph() -> Document:
    """``y = a * x``, with a scalar that some plan may have compiled in."""
    nodes = [node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, mode="MUL")]
    return document(nodes, [tensor(1), scalar(2), tensor(3)])


def compiled_in() -> bytes:
    return plan(cudnn=92700, structure=scale_graph(), variant_pack_uids=[1, 3])


SIZE = 2**31 - 1 + len(plan()) + len(plan(cudnn=92700))

# Bytes of a bundle, and what a user reads behind its name.
REFUSED: dict[str, tuple[bytes, str]] = {
    "its first bytes": (two()[:9], f": expected a bundle, got its first bytes {CUT}"),
    "half of it": (two()[:700], ENDS),
    "something behind it": (two() + b"\n", ENDS),
    "a comment behind it": (with_end(two(), 20, b"\1\0"), ENDS),
    "a second end": (with_zip64(two()), ENDS),
    "a directory elsewhere": (with_end(two(), 16, b"\0\0\0\0"), ENDS),
    "a number of members that is none": (
        with_end(two(), 10, b"\xff\xff"),
        f": expected a bundle of at most 256 plans, got 65534 {MANY}",
    ),
    "300 members": (
        many_members(),
        f": expected a bundle of at most 256 plans, got 300 {MANY}",
    ),
    "a long directory": (
        make_zip({f"{number}".ljust(60_000): b"" for number in range(3)}),
        f": expected a bundle of at most 256 plans, got more {MANY}",
    ),
    "another archive": (
        make_zip({"a.plan": plan()}),
        ": expected a bundle, got a zip archive without bundle.json "
        "(make a bundle of its plans with cudnn-bindgen bundle)",
    ),
    "no members": (
        make_zip({}),
        ": expected a bundle, got a zip archive without bundle.json "
        "(make a bundle of its plans with cudnn-bindgen bundle)",
    ),
    "a file twice": (
        with_twice(two()),
        f': expected each file once, got "{FIRST}" twice {AGAIN}',
    ),
    "encrypted": (
        with_directory(two(), INDEX, 8, b"\1\0"),
        f': expected files that are not encrypted, got "{INDEX}" '
        "(unpack it with its password, and bundle the plans)",
    ),
    "lzma": (
        make_zip(unzip(two()), ZIP_LZMA),
        f': expected files that are deflated or stored, got "{INDEX}" {AGAIN}',
    ),
    "bzip2": (
        make_zip(unzip(two()), ZIP_BZIP2),
        f': expected files that are deflated or stored, got "{INDEX}" {AGAIN}',
    ),
    "a size beyond all plans": (
        with_directory(make_zip(unzip(two()) | {INDEX: b""}), INDEX, 24, b"\xff\xff\xff\x7f"),
        f": expected a bundle of at most {MAX_BYTES} bytes, unpacked, got {SIZE} {LARGE}",
    ),
    "a flipped bit": (
        make_zip(unzip(two()), ZIP_STORED).replace(b'"engineId": 90', b'"engineId": 91', 1),
        f": expected a bundle, got a damaged zip archive: Bad CRC-32 for file '{FIRST}' {CUT}",
    ),
    "a file that ends early": (
        with_directory(make_zip({INDEX: b"{}" * 50}, ZIP_STORED), INDEX, 24, b"\xff\0\0\0"),
        f": expected a bundle, got a damaged zip archive: {INDEX} ends early {CUT}",
    ),
    "an index that is no object": (
        make_zip(unzip(two()) | {INDEX: b"[]"}),
        f": bundle.json $: expected object, got array {AGAIN}",
    ),
    "an index that is no JSON": (
        make_zip(unzip(two()) | {INDEX: b"{"}),
        f": expected bundle.json, got broken JSON: input data was truncated at line 1, column 2 "
        f"{AGAIN}",
    ),
    "an index with a key twice": (
        make_zip(unzip(two()) | {INDEX: b'{"bundle_version": 1, "bundle_version": 1}'}),
        f': $: expected each key of an object once, got "bundle_version" twice {AGAIN}',
    ),
    "a newer version": (
        with_index(two(), bundle_version=2),
        ": bundle.json $.bundle_version: expected 1, got 2 "
        "(a newer cudnn-bindgen reads it; or unzip it, and take its plans one by one)",
    ),
    "no plans": (
        with_index(two(), plans=[]),
        f": bundle.json $.plans: expected array of length >= 1 {AGAIN}",
    ),
    "a field of another type": (
        with_entry(two(), 1, sm="90"),
        f": bundle.json $.plans[1].sm: expected int, got str {AGAIN}",
    ),
    "a file that is lost": (without(two(), SECOND), f': {FILES}"{SECOND}" {AGAIN}'),
    "a file more": (
        make_zip(unzip(two()) | {"../../x\n": plan(sm=100)}),
        f': {FILES}"../../x\\n" {AGAIN}',
    ),
    "an entry twice": (repeated_entry(two()), f': {FILES}"{FIRST}" {AGAIN}'),
    "an edited plan": (
        make_zip(unzip(two()) | {FIRST: plan(sm=80)}),
        f': bundle.json $.plans[0].sha256: expected the digest of "{FIRST}", '
        f'{digest(plan(sm=80))}, got "{digest(plan())}" {AGAIN}',
    ),
    "an edited SM": (
        with_file(two(), FIRST, plan(sm=100)),
        f"/{FIRST}: expected a plan for {device()}, as "
        f"bundle.json says of it, got one for {device(100)} {EDITED}",
    ),
    "an edited SM count": (
        with_entry(two(), 0, sm_count=114),
        f"/{FIRST}: expected a plan for {device(sm_count=114)}, as "
        f"bundle.json says of it, got one for {device()} {EDITED}",
    ),
    "an edited cuDNN": (
        with_entry(two(), 1, cudnn_version=91900),
        f"/{SECOND}: expected a plan for {device()}, as "
        f"bundle.json says of it, got one for {device(cudnn='9.27.0')} {EDITED}",
    ),
    "a file of another name": (
        with_renamed(two(), FIRST, "../a.plan"),
        f"/../a.plan: expected a plan for {device()}, as "
        f"bundle.json says of it, got one for {device()} {EDITED}",
    ),
    "a structure": (
        with_file(two(), SECOND, to_json(add_graph())),
        f"/{SECOND}: expected a plan, got structure only {NO_PLAN}",
    ),
    "a bundle in it": (
        with_file(two(), SECOND, two()),
        f"/{SECOND}: expected a graph file, got a compressed one (unpack it first)",
    ),
}

# Files for one bundle, and what a user reads.
REFUSED_FILES: dict[str, tuple[Files, str]] = {
    "two plans for one key": (
        [("a.plan", plan()), ("b.plan", plan(cudnn=92700)), ("c.plan", plan(fe_workspace_size=8))],
        f"c.plan: expected one plan for {device()}, got another in a.plan (leave one of them out)",
    ),
    "two plans for one key, in bundles": (
        [("a.bundle", two()), ("b.bundle", bundle(plan(fe_workspace_size=8)))],
        f"b.bundle/{FIRST}: expected one plan for {device()}, got another "
        f"in a.bundle/{FIRST} (leave one of them out)",
    ),
    "a structure": (
        [("a.plan", plan()), ("a.json", to_json(add_graph()))],
        f"a.json: expected a plan, got structure only {NO_PLAN}",
    ),
    "two graphs": (
        [("a.plan", plan()), ("b.plan", other_graph())],
        f"b.plan: expected graph {fingerprint(plan())}, as in a.plan, got "
        f"{fingerprint(other_graph())} {ONE_GRAPH}",
    ),
    "other operands": (
        [("a.plan", plan()), ("b.plan", plan(cudnn=92700, variant_pack_uids=[1, 3]))],
        "b.plan: expected input BFLOAT16 as the argument with uid 2, as in a.plan, got nothing "
        + ONE_GRAPH,
    ),
    "a scalar that one has compiled in": (
        [("a.plan", plan(structure=scale_graph())), ("b.plan", compiled_in())],
        f"b.plan: expected graph {fingerprint(plan(structure=scale_graph()))}, as in a.plan, got "
        f"{fingerprint(compiled_in())} {ONE_GRAPH}",
    ),
    "300 plans": (
        [("a.plan", plan(sm_count=number)) for number in range(300)],
        f"expected a bundle of at most 256 plans, got 300 {MANY}",
    ),
}


def refusal(run: Callable[[], object]) -> str:
    with pytest.raises(GraphFormatError) as caught:
        run()
    check_refusal(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_a_bundle_is_refused_with_what_is_wrong(name: str) -> None:
    data, message = REFUSED[name]
    assert refusal(partial(read_graphs, data, "F")) == f"F{message}"


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_files_are_refused_with_what_is_wrong(name: str) -> None:
    files, message = REFUSED_FILES[name]
    assert refusal(partial(write_bundle, files)) == message


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_not_merged_either(name: str) -> None:
    data, message = REFUSED[name]
    files = [("a.plan", plan(sm=86)), ("F", data)]
    assert refusal(partial(write_bundle, files)) == f"F{message}"


def test_plans_of_two_graphs_in_a_bundle_made_by_hand() -> None:
    data = with_file(two(), SECOND, other_graph())
    message = refusal(partial(read_graphs, data, "F"))
    assert message.startswith(f"F/{SECOND}: expected graph ")
    assert f", as in F/{FIRST}, got " in message


def test_more_plans_than_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_bindgen.codegen.read.archive.MAX_BYTES", 3000)
    message = refusal(partial(bundle, *(plan(sm_count=number) for number in range(10))))
    assert message.startswith("expected a bundle of at most 3000 bytes, unpacked, got ")


def test_a_member_that_is_larger_than_it_says_takes_no_memory() -> None:
    zeros = make_zip({INDEX: bytes(2**26)})
    assert len(zeros) < 2**17
    bomb = with_directory(zeros, INDEX, 24, struct.pack("<L", 1000))
    tracemalloc.start()
    try:
        message = refusal(partial(read_graphs, bomb, "F"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "Bad CRC-32" in message
    assert peak < 2**21


GRAPHS = read_graphs(two())


def check(data: bytes) -> str:
    """Read what may be damaged: the plans that were written, or a refusal; say which."""
    try:
        graphs: tuple[Graph, ...] = read_graphs(data, "F")
    except GraphFormatError as error:
        check_refusal(error)
        return "refused"
    assert graphs == GRAPHS
    return "read"


def test_a_truncated_bundle_is_refused_wherever_it_ends() -> None:
    data = two()
    assert {check(data[:size]) for size in range(len(data))} == {"refused"}
    assert check(data) == "read"


@pytest.mark.parametrize("compression", ["deflated", "stored"])
def test_no_flipped_bit_gives_another_plan(compression: str) -> None:
    data = two() if compression == "deflated" else make_zip(unzip(two()), ZIP_STORED)
    found = {
        check(patched(data, at, bytes([data[at] ^ 1 << at % 8]))): at for at in range(len(data))
    }
    # What nobody reads: times, attributes, versions.
    assert set(found) == {"read", "refused"}


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, derandomize=True, database=None, max_examples=500)
def test_a_mutated_bundle_is_the_same_or_refused(number: int) -> None:
    rng = random.Random(number)
    seeds = (two(), make_zip(unzip(two()), ZIP_STORED), bundle(plan(sm=100)))
    data = mutate_bytes(seeds[number % 2], seeds[2], rng)
    try:
        graphs = read_graphs(data, "F")
    except GraphFormatError as error:
        check_refusal(error)
    else:
        assert graphs in (GRAPHS, read_graphs(seeds[2]))


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, derandomize=True, database=None, max_examples=500)
def test_a_mutated_index_is_refused_or_says_the_same(number: int) -> None:
    members = unzip(two())
    index = mutate_bytes(members[INDEX], unzip(bundle(plan(sm=100)))[INDEX], random.Random(number))
    check(make_zip(members | {INDEX: index}))
