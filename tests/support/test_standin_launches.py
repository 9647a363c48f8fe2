"""How stand-in plans launch their work: what stands in captures, and what a replay computes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.launching import (
    ALLOC,
    EVENT,
    HOST,
    KERNEL,
    MEMSET,
    OUTPUTS,
    PLACES,
    PLAIN_EDGE,
    PROGRAMMATIC_EDGE,
    WORKSPACE,
    Rebuilt,
    Work,
    moved,
    payload,
    shape,
)
from support.standin import LAUNCHES, LEAVING, Standin
from support.test_standin import Cudnn, pointer


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    return Standin.load(tmp_path_factory.mktemp("standin"))


@pytest.fixture
def standin(library: Standin) -> Iterator[Standin]:
    library.reset()
    with library.forgetting(), library.context():
        yield library
    library.reset()


@pytest.fixture
def cudnn(standin: Standin) -> Cudnn:
    return Cudnn(standin)


@pytest.fixture
def make(standin: Standin, cudnn: Cudnn) -> Iterator[Callable[..., Work]]:
    cudnn.standin = standin  # type: ignore[attr-defined]
    works: list[Work] = []

    def make(*arguments: Any, **options: Any) -> Work:
        works.append(Work(cudnn, *arguments, **options))
        return works[-1]

    yield make
    for work in works:
        standin.destroy_stream(work.stream)


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("launch", [launch for launch in LAUNCHES if launch not in LEAVING])
@pytest.mark.parametrize("workspace", [0, WORKSPACE])
def test_every_launch_computes_the_same(
    standin: Standin, make: Callable[..., Work], launch: str, places: str, workspace: int
) -> None:
    work = make(launch, workspace)
    for _ in range(2):
        work.place(*PLACES[places])
        assert work.execute() == 0
        assert work.is_done()
    work.place(*PLACES[places])
    graph = work.capture()
    assert not any(map(any, work.outputs()))
    executable = standin.instantiate(graph)
    standin.destroy_graph(graph)
    for _ in range(2):
        standin.launch(executable, work.stream)
        assert work.is_done()
        work.place(*PLACES[places])
    standin.destroy_exec(executable)
    assert standin.violations() == 0


@pytest.mark.parametrize("launch", LEAVING)
def test_what_leaves_its_stream_runs_in_a_capture(
    standin: Standin, make: Callable[..., Work], launch: str
) -> None:
    work = make(launch)
    assert work.execute() == 0
    assert work.is_done()
    work.place(*PLACES["pages"])
    work.write(0, bytes(WORKSPACE))
    for uid in OUTPUTS:
        work.write(uid, struct.pack("d", 3.0))
    graph = work.capture()
    first = [array[0] for array in work.outputs()]
    assert first == {"legacy": [3.0, 6.0, 9.0], "legacy_memset": [3.0] * 3}[launch]
    filled = ctypes.string_at(work.addresses[0], 1)
    assert filled == {"legacy": b"\0", "legacy_memset": b"\xa5"}[launch]
    assert len(standin.graph_nodes(graph)) == {"legacy": 2, "legacy_memset": 1}[launch]
    standin.destroy_graph(graph)
    blocking = standin.stream(blocking=True)
    work.use_stream(blocking)
    standin.begin_capture(blocking)
    assert work.execute() != 0, "the legacy stream would wait for the capture"
    assert standin.end_capture(blocking) == 901
    standin.destroy_stream(blocking)


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("plain", [(KERNEL, [])]),
        (
            "split",
            [(MEMSET, []), (KERNEL, [0]), (KERNEL, [1]), (KERNEL, [2]), (KERNEL, [3])],
        ),
        ("fork", [(KERNEL, []), (KERNEL, [0]), (KERNEL, [0]), (KERNEL, [1, 2])]),
        ("host", [(KERNEL, []), (HOST, [0])]),
        ("event", [(KERNEL, []), (EVENT, [0])]),
        ("alloc", [(KERNEL, []), (ALLOC, [0])]),
    ],
)
def test_shape_of_a_capture(
    standin: Standin, make: Callable[..., Work], launch: str, expected: list[Any]
) -> None:
    assert shape(standin.graph_nodes(make(launch).capture())) == expected


def test_parameters_of_a_capture(standin: Standin, make: Callable[..., Work]) -> None:
    work = make("plain")
    [node] = standin.graph_nodes(work.capture())
    offsets = [offset for offset, size in node["parameters"] if size == 8]
    assert offsets == [0, 16, 24, 32, 48, 56, 64, 80], "4-byte parameters stand between"
    found = [int.from_bytes(node["bytes"][at : at + 8], "little") for at in offsets]
    assert found == [work.addresses[uid] for uid in Work.ORDER]
    assert len(node["bytes"]) % 8 == 5
    assert node["name"] == "standin_plain_whole"
    assert (node["grid"], node["block"]) == ((2, 1, 1), (128, 1, 1))
    assert not node["packed"]
    [packed] = standin.graph_nodes(make("packed").capture())
    assert packed["packed"]
    assert packed["parameters"] == node["parameters"]
    [described] = standin.graph_nodes(make("descriptor").capture())
    assert [size for _, size in described["parameters"]].count(128) == 8
    assert all(offset % 64 == 0 for offset, size in described["parameters"] if size == 128)


def test_split_has_attributes_and_a_programmatic_edge(
    standin: Standin, make: Callable[..., Work]
) -> None:
    work = make("split")
    stream = standin.stream(priority=-3)
    work.use_stream(stream)
    nodes = standin.graph_nodes(work.capture(stream))
    assert [data for node in nodes for _, data in node["after"]] == [
        PLAIN_EDGE,
        PROGRAMMATIC_EDGE,
        PLAIN_EDGE,
        PLAIN_EDGE,
    ]
    assert {struct.unpack_from("3I", node["attributes"][4]) for node in nodes[1:]} == {(2, 1, 1)}
    assert {struct.unpack_from("i", node["attributes"][8]) for node in nodes[1:]} == {(-3,)}
    assert sorted(nodes[1]["attributes"]) == [1, 2, 4, 5, 8, 9, 10, 11, 13, 14]
    fill = nodes[0]["params"]
    assert (fill.target, fill.value, fill.element_bytes) == (work.addresses[0], 0x5A, 1)
    assert (fill.width, fill.height) == (WORKSPACE, 1)
    work.use_stream(work.stream)
    standin.destroy_stream(stream)


@pytest.mark.parametrize("launch", ["host", "event", "alloc", "first", "swapped", "pages"])
def test_what_alignment_does_not_show(
    standin: Standin, make: Callable[..., Work], launch: str
) -> None:
    work = make(launch)
    before = payload(standin, work)
    after = payload(standin, work)
    assert len(before) == (1 if launch in ("swapped", "pages") else 2)
    assert len(after) == len(before) - (launch == "first")
    if launch in ("swapped", "pages"):
        work.place(*PLACES["reversed" if launch == "swapped" else "16"])
        assert payload(standin, work) != after


@pytest.mark.parametrize("launch", LAUNCHES)
def test_which_launches_depend_on_addresses_alone(
    standin: Standin, make: Callable[..., Work], launch: str
) -> None:
    work = make(launch)
    work.execute()
    captures = []
    for shifts in (
        [0] * 8,
        [4096, 4096, 0, 4096, 0, 0, 4096, 0],
        [16, 48, 80, 16, 48, 80, 112, 16],
    ):
        work.place(shifts)
        captures.append((payload(standin, work), dict(work.addresses)))
    (a, old), *others = captures
    simple = all(moved(a, old, new) == nodes for nodes, new in others)
    recordable = launch in ("plain", "packed", "split", "fork", "descriptor", "first")
    same_here = launch in ("host", "event", "alloc", "swapped", *LEAVING)
    assert simple == (recordable or same_here)


RECORDABLE = ["plain", "packed", "split", "fork", "descriptor", "first"]


@pytest.mark.parametrize("launch", RECORDABLE)
def test_rebuilt_and_patched(standin: Standin, make: Callable[..., Work], launch: str) -> None:
    work = make(launch)
    assert work.execute() == 0
    work.place([0] * 8)
    rebuilt = Rebuilt(standin, work)
    assert rebuilt.launch() == 0
    assert work.is_done()
    old = work.addresses
    work.place([16, 48, 4096, 32, 64, 80, 96, 1024])
    rebuilt.move(old)
    assert rebuilt.launch() == 0
    assert work.is_done()
    assert standin.violations() == 0
    rebuilt.close()


def test_each_word_matters(standin: Standin, make: Callable[..., Work]) -> None:
    """A wrong word gives another result, or an error, but never passes unseen."""
    work = make("plain")
    rebuilt = Rebuilt(standin, work)
    [node] = rebuilt.nodes
    *others, (body, size) = node["parameters"]
    entries = body + 56
    names = {offset: "pointer" if size == 8 else "constant" for offset, size in others}
    body_names = ["magic", "launch", "count", "", "fill bytes", "", "fill", "entries"]
    body_names += ["word", "", "page", "blocks", "digest", "digest"]
    names |= {body + 4 * i: name for i, name in enumerate(body_names) if name}
    for entry in range((size - 56 - 5) // 32):
        at = entries + 32 * entry
        [role] = struct.unpack_from("I", node["bytes"], at)
        is_scalar = role == 3
        names[at] = "role"
        names |= {at + 4: "type", at + 24: "scalar"} if is_scalar else {at + 8: "index"}
        names[at + 22] = "weight"
    names |= {body + size - n: "tail" for n in (5, 4, 3, 2, 1)}
    unseen = []
    for at, name in names.items():
        content = bytearray(node["bytes"])
        content[at] ^= 0x08
        work.place([0] * 8)
        assert rebuilt.set(0, rebuilt.params(node, bytes(content))) == 0
        if rebuilt.launch() == 0 and work.is_done():
            unseen.append(name)
    assert not unseen
    rebuilt.close()


@pytest.mark.parametrize("launch", ["parity", "hash", "high32", "tail", "grid", "function"])
def test_mischief_is_not_survived(standin: Standin, make: Callable[..., Work], launch: str) -> None:
    work = make(launch)
    rebuilt = Rebuilt(standin, work)
    old = work.addresses
    work.place([4096 + 16, 32, 48, 64, 80, 96, 112, 128])
    rebuilt.move(old)
    assert rebuilt.launch() == 0
    assert all(value != value for output in work.outputs() for value in output), "all NaN"
    rebuilt.close()


def test_swapped_order_must_be_kept(standin: Standin, make: Callable[..., Work]) -> None:
    work = make("swapped")
    rebuilt = Rebuilt(standin, work)
    old = work.addresses
    work.place(*PLACES["reversed"])
    rebuilt.move(old)
    assert rebuilt.launch() == 0
    assert not work.is_done()
    rebuilt.close()


@pytest.mark.parametrize("launch", ["split", "fork"])
def test_lost_edges_show(standin: Standin, make: Callable[..., Work], launch: str) -> None:
    work = make(launch)
    connect, Rebuilt.connect = Rebuilt.connect, lambda *_: 0  # type: ignore[method-assign]
    try:
        rebuilt = Rebuilt(standin, work)
    finally:
        Rebuilt.connect = connect  # type: ignore[method-assign]
    assert rebuilt.launch() == 0
    assert not work.is_done()
    rebuilt.close()


def test_dead_functions(standin: Standin, make: Callable[..., Work]) -> None:
    functions = standin.live("function")
    work = make("function")
    assert standin.live("function") == functions + 2
    rebuilt = Rebuilt(standin, work)
    params = rebuilt.params(rebuilt.nodes[0])
    work.cudnn.destroy(work.plan)
    assert standin.live("function") == functions
    assert rebuilt.launch() == 400
    assert rebuilt.set(0, params) == 400
    assert standin.driver.cuFuncGetName(ctypes.byref(ctypes.c_char_p()), pointer(params.function))
    assert standin.violations("destroyed") == standin.violations() == 3
    rebuilt.close()


def test_bad_addresses_are_caught(standin: Standin, make: Callable[..., Work]) -> None:
    work = make("plain")
    rebuilt = Rebuilt(standin, work)
    [node] = rebuilt.nodes
    freed = standin.alloc(WORKSPACE)
    small = standin.alloc(8)
    standin.free(freed)
    wild = (0, 8, 1 << 47, freed, small, work.base + 3)
    for count, address in enumerate(wild, 1):
        content = node["bytes"].replace(
            struct.pack("Q", work.addresses[11]), struct.pack("Q", address)
        )
        assert rebuilt.set(0, rebuilt.params(node, content)) == 0
        assert rebuilt.launch() == 700
        assert standin.violations("memory") == count
    standin.free(small)
    rebuilt.close()
