"""Overrides in the stand-in for libcudnn.so.9: what they change, what is refused, what is seen."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from support.launching import Rebuilt, payload
from support.standin import LAUNCHES, Declared, Overridable, Standin, expected_outputs, plan_text
from support.standin.overrides import Override
from support.test_standin import Cudnn, pointer

VERSION = 92700
BAD_PARAM, DUPLICATED, WRONG_TYPE = 2000, 2009, 2010
NOT_SUPPORTED, INVALID_SHAPE = 3000, 3014
ROOM = 64
"""Elements of each array."""

A, B, C = 1, 2, 3
OVERRIDABLE = Overridable(
    {
        A: Declared([1, 12, 4], [48, 4, 1], fixed=[2], steady=[1]),
        B: Declared([1, 4, 8], [32, 8, 1]),
        C: Declared([1, 12, 8], [96, 8, 1]),
    },
    sized_by=(A, 1),
    growth=16,
    workspace=100,
)


def with_m(m: int) -> dict[int, Override]:
    return {A: ([1, m, 4], [4 * m, 4, 1]), C: ([1, m, 8], [8 * m, 8, 1])}


class Work:
    """A plan with two inputs and an output whose shapes may be overridden."""

    def __init__(self, cudnn: Cudnn, launch: str = "plain", **text: Any) -> None:
        self.cudnn, self.standin = cudnn, cudnn.standin
        self.handle = cudnn.handle()
        self.stream = self.standin.stream()
        assert cudnn.library.cudnnSetStream(pointer(self.handle), pointer(self.stream)) == 0
        options: dict[str, Any] = {"overridable": OVERRIDABLE, "version": VERSION, "workspace": 100}
        options |= text
        text_ = plan_text(inputs=[A, B], outputs=[C], count=12, launch=launch, **options)
        self.plan = cudnn.plan(self.handle, text_)
        self.values = {uid: [uid + 0.25 * i for i in range(ROOM)] for uid in (A, B)}
        self.operands: dict[int, int | None] = {
            uid: cudnn.array("d", values) for uid, values in self.values.items()
        }
        self.operands[C] = cudnn.array("d", [0.0] * ROOM)
        self.workspace = self.standin.alloc(4096)
        self.overrides: Mapping[int, Override] = {}

    def pack(self, overrides: Mapping[int, Override], *, operands: bool = True) -> int:
        """Return a finalized pack; its lists live as long as this object."""
        cudnn = self.cudnn
        pack = cudnn.descriptor(16)
        if operands:
            n = len(self.operands)
            assert cudnn.set(pack, 1000, 3, n, (ctypes.c_int64 * n)(*self.operands)) == 0
            values = (ctypes.c_void_p * n)(*self.operands.values())
            assert cudnn.set(pack, 1001, 6, n, values) == 0
            assert cudnn.set(pack, 1003, 6, 1, ctypes.byref(pointer(self.workspace))) == 0
        self.lists = []
        if overrides:
            n = len(overrides)
            assert cudnn.set(pack, 1010, 3, n, (ctypes.c_int64 * n)(*overrides)) == 0
            for name, items in zip(
                (1011, 1012), zip(*overrides.values(), strict=True), strict=True
            ):
                self.lists.append(self.standin.make_lists(items))
                assert cudnn.set(pack, name, 6, 1, pointer(self.lists[-1])) == 0
        assert cudnn.finalize(pack) == 0
        return pack

    def execute(self, overrides: Mapping[int, Override] | None = None) -> int:
        self.overrides = overrides or self.overrides
        ctypes.memset(self.operands[C] or 0, 0, 8 * ROOM)
        ctypes.memset(self.workspace, 0, 4096)
        pack = self.pack(self.overrides)
        status = self.cudnn.execute(self.handle, self.plan, pack)
        self.cudnn.destroy(pack)
        for lists in self.lists:
            self.standin.free_lists(lists)
        return status

    def capture(self) -> int:
        """Return the graph of one execution."""
        self.standin.begin_capture(self.stream)
        assert self.execute() == 0
        status, graph = self.standin.end_capture_graph(self.stream)
        assert status == 0
        return graph

    def workspace_size(self, overrides: Mapping[int, Override], operands: bool = False) -> int:
        pack = self.pack(overrides, operands=operands)
        size = ctypes.c_size_t()
        query = self.cudnn.library.cudnnGetExecutionPlanWorkspaceSize
        arguments = map(pointer, (self.handle, self.plan, pack))
        status = int(query(*arguments, ctypes.byref(size)))
        self.cudnn.destroy(pack)
        for lists in self.lists:
            self.standin.free_lists(lists)
        return int(size.value) if status == 0 else -status

    def is_done(self, overrides: Mapping[int, Override]) -> bool:
        """Whether output and workspace are what a call with these overrides leaves, no more."""
        count = OVERRIDABLE.count_of(overrides)
        inputs = [values[:count] for values in self.values.values()]
        [expected] = expected_outputs(inputs, [], [], 1, digest=OVERRIDABLE.digest_of(overrides))
        output = list((ctypes.c_double * ROOM).from_address(self.operands[C] or 0))
        size = OVERRIDABLE.workspace_of(overrides)
        filled = ctypes.string_at(self.workspace, 4096)
        left = output == expected + [0.0] * (ROOM - count)
        return left and filled == b"\xa5" * size + bytes(4096 - size)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Standin:
    return Standin.load(tmp_path_factory.mktemp("standin"))


@pytest.fixture
def standin(library: Standin) -> Iterator[Standin]:
    library.reset()
    library.set_version(VERSION)
    with library.forgetting(), library.context():
        yield library
    library.reset()


@pytest.fixture
def cudnn(standin: Standin) -> Cudnn:
    made = Cudnn(standin)
    made.standin = standin  # type: ignore[attr-defined]
    return made


@pytest.fixture
def work(cudnn: Cudnn) -> Work:
    return Work(cudnn)


# What overrides change


@pytest.mark.parametrize("m", [2, 5, 12, 13, 40, 64, 0])
def test_count_values_and_workspace_follow(standin: Standin, work: Work, m: int) -> None:
    assert work.execute(with_m(m)) == 0
    assert work.is_done(with_m(m))
    assert not work.is_done({})
    assert standin.violations() == 0


def test_none_is_as_declared(standin: Standin, work: Work) -> None:
    assert work.execute() == 0
    assert work.is_done({})
    declared = {uid: (one.dim, one.stride) for uid, one in OVERRIDABLE.declared.items()}
    assert OVERRIDABLE.digest_of(declared) == OVERRIDABLE.digest_of({})
    assert standin.violations() == 0


@pytest.mark.parametrize("uid", [A, B, C])
@pytest.mark.parametrize("kind", ["dim", "stride"])
def test_each_number_shows(standin: Standin, work: Work, uid: int, kind: str) -> None:
    base = with_m(6) | {B: ([1, 4, 8], [32, 8, 1])}
    for axis in range(3):
        if (uid, kind, axis) in [(A, "dim", 1), (A, "dim", 2)]:
            continue  # the count, and a dim that is fixed
        dim, stride = (list(numbers) for numbers in base[uid])
        (dim if kind == "dim" else stride)[axis] += 1
        assert work.execute(base | {uid: (dim, stride)}) == 0
        assert not work.is_done(base)
        assert work.is_done(base | {uid: (dim, stride)})


def test_the_log_tells_them(standin: Standin, work: Work) -> None:
    assert work.execute(with_m(5)) == 0
    assert standin.log("override") == ["override 1 1,5,4 20,4,1", "override 3 1,5,8 40,8,1"]


# Captures


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_replay_keeps_the_overrides_of_its_capture(
    standin: Standin, cudnn: Cudnn, launch: str
) -> None:
    work = Work(cudnn, launch)
    assert work.execute(with_m(7)) == 0
    assert work.is_done(with_m(7))
    graph = work.capture()
    assert work.execute(with_m(30)) == 0
    assert work.is_done(with_m(30))
    ctypes.memset(work.operands[C] or 0, 0, 8 * ROOM)
    ctypes.memset(work.workspace, 0, 4096)
    standin.replay(graph, work.stream)
    assert work.is_done(with_m(7))
    assert not work.is_done(with_m(30))
    assert standin.violations() == 0


def test_captures_differ_in_grid_and_bytes(standin: Standin, work: Work) -> None:
    captured = []
    for overrides in (with_m(7), with_m(9), with_m(9) | {B: ([1, 4, 8], [32, 1, 4])}):
        work.overrides = overrides
        [node] = payload(standin, work)  # type: ignore[arg-type]
        captured.append(node)
    (*_, grid_7, bytes_7), (*_, grid_9, bytes_9), (*_, grid_b, bytes_b) = captured
    assert (grid_7, grid_9, grid_b) == ((2, 1, 1), (3, 1, 1), (3, 1, 1))
    assert len({bytes_7, bytes_9, bytes_b}) == 3


def test_a_stale_record_is_wrong(standin: Standin, work: Work) -> None:
    work.overrides = with_m(8)
    record = Rebuilt(standin, work)  # type: ignore[arg-type]
    for overrides in (with_m(8), with_m(6), with_m(20)):
        ctypes.memset(work.operands[C] or 0, 0, 8 * ROOM)
        ctypes.memset(work.workspace, 0, 4096)
        assert record.launch() == 0
        assert work.is_done(overrides) == (overrides == with_m(8))
    record.close()


# Workspace


def test_workspace_query(standin: Standin, work: Work) -> None:
    for overrides in ({}, with_m(3), with_m(64)):
        for operands in (False, True):
            expected = OVERRIDABLE.workspace_of(overrides)
            assert work.workspace_size(overrides, operands) == expected
    sizes = [OVERRIDABLE.workspace_of(with_m(m)) for m in range(2, 64)]
    assert sizes != sorted(sizes), "less may need more"
    assert standin.log("cudnnGetExecutionPlanWorkspaceSize")[-1].split()[1:] == [
        hex(work.plan),
        str(expected),
    ]
    assert standin.calls("cudnnGetExecutionPlanWorkspaceSize") == 6
    assert standin.violations() == 0


def test_workspace_query_of_an_old_version(standin: Standin, work: Work) -> None:
    standin.set_version(92200)
    assert work.workspace_size(with_m(3)) == -NOT_SUPPORTED
    assert standin.violations("absent") == standin.violations() == 1


def test_a_workspace_for_other_overrides_is_overrun(standin: Standin, work: Work) -> None:
    standin.free(work.workspace)
    work.workspace = standin.alloc(OVERRIDABLE.workspace_of(with_m(5)))
    pack = work.pack(with_m(50))
    assert work.cudnn.execute(work.handle, work.plan, pack) == BAD_PARAM
    assert "workspace" in work.cudnn.last_error()
    assert standin.violations("memory") == 1


# What is refused


@pytest.mark.parametrize(
    ("overrides", "status", "message"),
    [
        ({9: ([1], [1])}, BAD_PARAM, "uid 9: not in the plan"),
        ({A: ([1, 5], [5, 1])}, BAD_PARAM, "uid 1: 2 shapes, but its rank is 3"),
        ({A: ([1, 5, 4], [5, 1])}, BAD_PARAM, "uid 1: 2 strides, but its rank is 3"),
        ({A: ([1, -5, 4], [20, 4, 1])}, BAD_PARAM, "uid 1: dim 1 is -5"),
        ({A: ([1, 5, 3], [15, 3, 1])}, INVALID_SHAPE, "dim 2 is 3, but it was compiled for 4"),
        ({A: ([1, 1, 4], [4, 4, 1])}, INVALID_SHAPE, "compiled for 12, 1 crosses 1"),
    ],
)
def test_refused(
    standin: Standin, work: Work, overrides: dict[int, Override], status: int, message: str
) -> None:
    assert work.execute(overrides) == status
    assert message in work.cudnn.last_error()
    assert work.workspace_size(overrides) == -status
    assert work.execute(with_m(5)) == 0
    assert work.is_done(with_m(5))
    assert standin.violations() == 0


def test_crossing_one_from_below(standin: Standin, cudnn: Cudnn) -> None:
    decode = Overridable({A: Declared([1, 1], [1, 1], steady=[1])}, sized_by=(A, 1))
    work = Work(cudnn, overridable=decode)
    assert work.execute({A: ([4, 1], [1, 1])}) == 0
    assert work.execute({A: ([1, 2], [2, 1])}) == INVALID_SHAPE


def test_not_in_the_pack(standin: Standin, cudnn: Cudnn) -> None:
    work = Work(cudnn)
    del work.operands[B]
    assert work.execute({B: ([1, 4, 8], [32, 8, 1])}) == BAD_PARAM
    assert "uid 2: not in the variant pack" in cudnn.last_error()


def test_twice(standin: Standin, work: Work) -> None:
    pack = work.pack(with_m(5))
    twice = work.cudnn.descriptor(16)
    assert work.cudnn.set(twice, 1010, 3, 2, (ctypes.c_int64 * 2)(A, A)) == 0
    for name, lists in zip((1011, 1012), work.lists, strict=True):
        assert work.cudnn.set(twice, name, 6, 1, pointer(lists)) == 0
    assert work.cudnn.finalize(twice) == 0
    assert work.cudnn.execute(work.handle, work.plan, twice) == DUPLICATED
    assert work.cudnn.execute(work.handle, work.plan, pack) == 0


def test_a_plan_that_was_not_built_for_them(standin: Standin, cudnn: Cudnn) -> None:
    work = Work(cudnn, overridable=None)
    assert work.execute() == 0
    assert work.execute(with_m(5)) == NOT_SUPPORTED
    assert "not built for override shapes" in cudnn.last_error()


def test_versions(standin: Standin, cudnn: Cudnn) -> None:
    handle = cudnn.handle()
    standin.set_version(92000)
    text = plan_text(inputs=[A], outputs=[C], overridable=OVERRIDABLE, version=92000)
    cudnn.plan(handle, text, expected=NOT_SUPPORTED)
    assert "need cuDNN 9.21" in cudnn.last_error()
    pack = cudnn.descriptor(16)
    uids = (ctypes.c_int64 * 1)(A)
    assert cudnn.set(pack, 1010, 3, 1, uids) == 0
    standin.set_version(91700)
    assert cudnn.set(pack, 1010, 3, 1, uids) == BAD_PARAM


@pytest.mark.parametrize("missing", [1010, 1011, 1012])
def test_lengths_must_agree(standin: Standin, cudnn: Cudnn, missing: int) -> None:
    pack = cudnn.descriptor(16)
    with standin.lists([[1], [2]]) as two, standin.lists([[1]]) as one:
        if missing != 1010:
            assert cudnn.set(pack, 1010, 3, 2, (ctypes.c_int64 * 2)(A, B)) == 0
        for name in (1011, 1012):
            assert cudnn.set(pack, name, 6, 1, pointer(one if name == missing else two)) == 0
        assert cudnn.finalize(pack) == BAD_PARAM
    assert "override uids, but" in cudnn.last_error()


def test_attributes(standin: Standin, cudnn: Cudnn) -> None:
    pack = cudnn.descriptor(16)
    with standin.lists([[1]]) as lists:
        assert cudnn.set(pack, 1010, 6, 1, pointer(lists)) == WRONG_TYPE
        assert cudnn.set(pack, 1010, 3, 0, pointer(lists)) == BAD_PARAM
        for name in (1011, 1012):
            assert cudnn.set(pack, name, 3, 1, pointer(lists)) == WRONG_TYPE
            assert cudnn.set(pack, name, 6, 2, pointer(lists)) == BAD_PARAM
            assert cudnn.set(pack, name, 6, 1, pointer(lists)) == 0
            assert cudnn.set(pack, name, 6, 1, pointer(lists)) == 0, "again"
    assert standin.violations() == 0


# What is seen


def test_no_vector_there(standin: Standin, cudnn: Cudnn) -> None:
    pack = cudnn.descriptor(16)
    with standin.lists([[1, 2], [3, 4]]) as lists:
        to_it = cudnn.bytes(struct.pack("QQQ", lists, 5, 7))
        assert cudnn.set(pack, 1011, 6, 1, pointer(to_it)) == BAD_PARAM, "the address of a pointer"
        assert cudnn.set(pack, 1011, 6, 1, pointer(lists + 4)) == BAD_PARAM
        inner = ctypes.c_uint64.from_address(lists).value
        assert cudnn.set(pack, 1011, 6, 1, pointer(inner)) == BAD_PARAM, "an inner vector"
    assert standin.violations("overrides") == standin.violations() == 3
    assert "no vector of vectors" in cudnn.last_error()
    assert cudnn.set(pack, 1011, 6, 1, pointer(1 << 46)) == BAD_PARAM
    assert standin.violations("memory") == 1


Change = Callable[[Standin, int], None]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "change",
    [lambda s, lists: s.set_list_item(lists, 0, 1, 6), lambda s, lists: s.free_lists(lists)],
    ids=["changed", "freed"],
)
def test_lists_must_stay(standin: Standin, work: Work, change: Change, which: int) -> None:
    pack = work.pack(with_m(5))
    change(standin, work.lists[which])
    ctypes.memset(work.operands[C] or 0, 0, 8 * ROOM)
    ctypes.memset(work.workspace, 0, 4096)
    assert work.cudnn.execute(work.handle, work.plan, pack) == 0
    assert work.is_done(with_m(5)), "cuDNN took a copy"
    assert standin.violations("overrides") == standin.violations() == 1


def test_lists_are_free_again_after_execution(standin: Standin, work: Work) -> None:
    pack = work.pack(with_m(5))
    assert work.cudnn.execute(work.handle, work.plan, pack) == 0
    for lists in work.lists:
        standin.set_list_item(lists, 0, 1, 6)
        standin.free_lists(lists)
    work.cudnn.destroy(pack)
    assert standin.violations() == 0


def test_failures_can_be_asked_for(standin: Standin, work: Work) -> None:
    standin.fail("cudnnGetExecutionPlanWorkspaceSize", status=4000)
    assert work.workspace_size(with_m(5)) == -4000
    assert work.workspace_size(with_m(5)) == OVERRIDABLE.workspace_of(with_m(5))
