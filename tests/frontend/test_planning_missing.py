"""A plan for a device that nobody made one for: made once, kept, checked; no GPU needed."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support.documents import (
    TESTS,
    Document,
    add_graph,
    document,
    node,
    plan_document,
    scalar,
    tensor,
    to_json,
    to_ubjson,
)
from support.plan_process import DEVICE, Planning, backend

from cudnn_bindgen.codegen.bind.bundle import Key, write_bundle
from cudnn_bindgen.codegen.errors import GraphFormatError, PlanError
from cudnn_bindgen.codegen.model.fingerprint import fingerprint
from cudnn_bindgen.codegen.output import write_whole
from cudnn_bindgen.codegen.read.graph import read_graph
from cudnn_bindgen.frontend import file_cache
from cudnn_bindgen.frontend.file_cache import ENVIRONMENT, CacheWarning
from cudnn_bindgen.frontend.planning import frontend as loading
from cudnn_bindgen.frontend.planning import plan_cache
from cudnn_bindgen.frontend.planning.make_plan import read_input
from cudnn_bindgen.frontend.planning.missing import plan_maker
from cudnn_bindgen.frontend.planning.options import HEURISTICS, PlanOptions
from cudnn_bindgen.frontend.planning.plan_cache import PlanCache, plan_name

PROGRAM = TESTS / "support" / "plan_process.py"
UIDS = [1, 2, 3]


def graph(**names: str) -> Document:
    """Return the graph of documents.py whose node the fake has a method for."""
    raw = add_graph(**names)
    raw["nodes"][0] |= {"mode": "ADD", "name": "sum"}
    return raw


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of plans, which is not there yet."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "cache"))
    monkeypatch.setattr(PlanCache, "_substitute", None)
    yield tmp_path / "cache" / "plans"
    if PlanCache._substitute is not None:
        PlanCache._substitute.cleanup()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Planning:
    return use(monkeypatch, Planning(graph()))


def use(monkeypatch: pytest.MonkeyPatch, fake: Planning) -> Planning:
    monkeypatch.setitem(sys.modules, "cudnn", fake)
    return fake


def plan_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("plan_*.plan"))


def test_a_plan_is_made_once(fake: Planning, cache: Path) -> None:
    make = plan_maker(to_json(graph()), UIDS)
    assert fake.planned == 0 and not cache.exists()
    parts = make(*DEVICE)
    assert parts.fingerprint == fingerprint(read_graph(to_json(graph())))
    assert (parts.sm, parts.sm_count, parts.cudnn_version) == DEVICE
    assert parts.uids == (1, 2, 3)
    assert make(*DEVICE) == plan_maker(to_json(graph()), UIDS)(*DEVICE) == parts
    assert fake.planned == 1
    (file,) = plan_files(cache)
    assert json.loads(parts.text) == json.loads(backend(*DEVICE))
    # A plan file as any other.
    assert read_graph(file.read_bytes()).plan is not None


def test_a_cached_plan_is_taken_without_loading_the_frontend(
    fake: Planning, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = plan_maker(to_json(graph()), UIDS)(*DEVICE)
    monkeypatch.delitem(sys.modules, "cudnn")
    monkeypatch.setattr(loading.importlib.metadata, "version", lambda name: fake.__version__)
    monkeypatch.setattr(loading.importlib, "import_module", lambda name: pytest.fail("loaded"))
    assert plan_maker(to_json(graph()), UIDS)(*DEVICE) == parts


@pytest.mark.parametrize("kind", ["structure", "path", "plan", "bundle"])
def test_what_it_can_be_made_of(fake: Planning, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "g.json"
    path.write_bytes(to_json(graph()))
    old = to_ubjson(plan_document(graph(), cudnn_backend_data=backend(80, 108, 90800)))
    sources: dict[str, Any] = {
        "structure": to_json(graph()),
        "path": path,
        "plan": old,
        "bundle": write_bundle([("a.plan", old)]),
    }
    assert plan_maker(sources[kind], UIDS)(*DEVICE).sm == 90
    assert fake.planned == 1


def test_sources_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(GraphFormatError):
        plan_maker(b"{}", UIDS)
    with pytest.raises(FileNotFoundError):
        plan_maker(tmp_path / "none.json", UIDS)


def test_one_graph_in_several_forms_shares_a_plan(fake: Planning, cache: Path) -> None:
    raw = graph()
    raw["tensors"].reverse()
    raw |= {"gid": 77, "cudnn_backend_version": "9.99.0", "cudnn_frontend_version": 1}
    plan_maker(to_json(graph()), UIDS)(*DEVICE)
    plan_maker(to_json(raw), reversed(UIDS))(*DEVICE)
    plan_maker(to_ubjson(plan_document(graph())), UIDS)(*DEVICE)
    assert fake.planned == 1 and len(plan_files(cache)) == 1


def test_whatever_decides_a_plan_decides_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    structure, key = read_input(to_json(graph())), Key(*DEVICE)
    bound = frozenset(UIDS)
    other = read_input(to_json(graph(a="first")))
    names = [
        plan_name(structure, bound, HEURISTICS, key, "1.32.0"),
        plan_name(other, bound, HEURISTICS, key, "1.32.0"),
        plan_name(structure, frozenset({1, 2}), HEURISTICS, key, "1.32.0"),
        plan_name(structure, bound, PlanOptions(("B",)), key, "1.32.0"),
        plan_name(structure, bound, PlanOptions(max_workspace=0), key, "1.32.0"),
        plan_name(structure, bound, HEURISTICS, replace(key, sm=100), "1.32.0"),
        plan_name(structure, bound, HEURISTICS, replace(key, sm_count=114), "1.32.0"),
        plan_name(structure, bound, HEURISTICS, replace(key, cudnn_version=92700), "1.32.0"),
        plan_name(structure, bound, HEURISTICS, key, "1.33.0"),
    ]
    monkeypatch.setattr(plan_cache.cudnn_bindgen, "__version__", "9.9.9")
    names.append(plan_name(structure, bound, HEURISTICS, key, "1.32.0"))
    assert len({*names}) == len(names)


# Another device than the frontend's


@pytest.mark.parametrize(
    ("device", "asked"),
    [((80, 132, 91900), DEVICE), ((90, 114, 91900), DEVICE), (DEVICE, (90, 114, 91900))],
)
def test_a_plan_for_another_device_is_none(
    fake: Planning,
    cache: Path,
    device: tuple[int, int, int],
    asked: tuple[int, int, int],
) -> None:
    fake.device = device
    with pytest.raises(PlanError, match=r"expected a plan for SM 90 with 1.* got one for SM"):
        plan_maker(to_json(graph()), UIDS)(*asked)
    assert plan_files(cache) == []


def test_a_frontend_that_does_not_tell_the_count(fake: Planning) -> None:
    fake.device = (90, 0, 91900)
    assert plan_maker(to_json(graph()), UIDS)(*DEVICE).sm_count == 0


def test_a_frontend_that_calls_another_cudnn(fake: Planning, cache: Path) -> None:
    """Before anything is planned: it would be done for nothing on each call."""
    fake.cudnn = 92700
    with pytest.raises(PlanError) as caught:
        plan_maker(to_json(graph()), UIDS)(*DEVICE)
    assert caught.value.problem == (
        "expected a frontend that calls cuDNN 9.19.0, as the runtime does, got one that calls "
        "9.27.0"
    )
    assert "LD_LIBRARY_PATH" in caught.value.hint
    assert fake.planned == 0 and plan_files(cache) == []
    fake.cudnn, fake.device = 91900, (90, 132, 92700)  # it says so, and plans with another
    with pytest.raises(PlanError, match=r"got one for SM 90 .* under cuDNN 9\.27\.0"):
        plan_maker(to_json(graph()), UIDS)(*DEVICE)


# What cannot be planned


def test_no_frontend(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> Any:
        raise ImportError("No module named 'cudnn'")

    def no_package(name: str) -> str:
        raise loading.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.delitem(sys.modules, "cudnn", raising=False)
    monkeypatch.setattr(loading.importlib, "import_module", none)
    monkeypatch.setattr(loading.importlib.metadata, "version", no_package)
    make = plan_maker(to_json(graph()), UIDS)  # only asked for when a plan is missing
    with pytest.raises(PlanError, match=r"pip install 'cudnn-bindgen\[plan\]'"):
        make(*DEVICE)


def with_scalars() -> Document:
    multiply = node("POINTWISE", {"IN_0": 1, "IN_1": 2}, {"OUT_0": 3}, name="m", mode="ADD")
    more = node("POINTWISE", {"IN_0": 3, "IN_1": 4}, {"OUT_0": 5}, name="n", mode="ADD")
    scalars = [scalar(2, "alpha"), scalar(4, "n::IN_1")]
    return document([multiply, more], [tensor(1), *scalars, tensor(3), tensor(5)])


def test_constants_of_compile_time_are_named(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    fake = use(monkeypatch, Planning(with_scalars()))
    with pytest.raises(PlanError) as caught:
        plan_maker(to_json(with_scalars()), [1, 3, 5])(*DEVICE)
    assert '"alpha", "n::IN_1"' in caught.value.problem
    assert "cudnn-bindgen plan --const" in caught.value.hint
    assert fake.planned == 0 and not cache.exists()
    # A plan says itself which scalars callers pass.
    plan = to_ubjson(plan_document(with_scalars(), variant_pack_uids=[1, 2, 3, 5]))
    with pytest.raises(PlanError, match=r'the values of "n::IN_1", got'):
        plan_maker(plan, [1, 2, 3, 5])(*DEVICE)


def test_what_callers_bind_is_no_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is called: a module of structure only asks callers for it."""
    use(monkeypatch, Planning(with_scalars()))
    parts = plan_maker(to_json(with_scalars()), [1, 2, 3, 4, 5])(*DEVICE)
    assert parts.uids == (1, 2, 3, 4, 5)


def test_what_cudnn_says_is_told(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    fake = use(monkeypatch, Planning(graph(), refuses={"build_operation_graph": "no engine"}))
    for _ in range(2):
        with pytest.raises(PlanError, match=r"cuDNN does not take the graph: .*no engine"):
            plan_maker(to_json(graph()), UIDS)(*DEVICE)
    assert plan_files(cache) == []
    fake.refuses.clear()  # the next call works
    assert plan_maker(to_json(graph()), UIDS)(*DEVICE).sm == 90


def test_a_plan_that_binds_something_else(fake: Planning, cache: Path) -> None:
    fake.fields = {"variant_pack_uids": [1, 3]}
    with pytest.raises(PlanError, match="a plan that binds 1, 2, 3, got one that binds 1, 3"):
        plan_maker(to_json(graph()), UIDS)(*DEVICE)
    assert plan_files(cache) == []


# What lies in the cache


def rewrite(path: Path, content: bytes, *, is_signed: bool) -> None:
    path.write_bytes(content)
    if is_signed:
        digest = path.with_suffix(".sha256")
        assert digest.exists()
        digest.write_text(hashlib.sha256(content).hexdigest())


def for_device(sm: int, sm_count: int, version: int) -> bytes:
    text = backend(sm, sm_count, version)
    return to_ubjson(plan_document(graph(), cudnn_backend_data=text))


def of_another_graph() -> bytes:
    raw = copy.deepcopy(graph())
    for item in raw["tensors"]:
        item["dim"] = [2, 3]
    return to_ubjson(plan_document(raw, cudnn_backend_data=backend(*DEVICE)))


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "one byte": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "another engine": lambda data: data.replace(b'"engineId": 2', b'"engineId": x'),
    "another SM": lambda data: for_device(80, 132, 91900),
    "another SM count": lambda data: for_device(90, 114, 91900),
    "another cuDNN": lambda data: for_device(90, 132, 92700),
    "another graph": lambda data: of_another_graph(),
    "structure only": lambda data: to_json(graph()),
    "bound otherwise": lambda data: to_ubjson(
        plan_document(graph(), cudnn_backend_data=backend(*DEVICE), variant_pack_uids=[1, 3])
    ),
    "a bundle": lambda data: write_bundle([("a.plan", data)]),
    "nonsense": lambda data: b"\xff\xfe nonsense",
}


@pytest.mark.parametrize("is_signed", [False, True], ids=["digest of old", "digest of new"])
@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_plan_that_is_not_what_it_was_is_made_again(
    fake: Planning, cache: Path, damage: Callable[[bytes], bytes], is_signed: bool
) -> None:
    make = plan_maker(to_json(graph()), UIDS)
    parts = make(*DEVICE)
    (path,) = plan_files(cache)
    good = path.read_bytes()
    rewrite(path, damage(good), is_signed=is_signed)
    assert make(*DEVICE) == parts
    assert fake.planned == 2
    assert make(*DEVICE) == parts
    assert fake.planned == 2 and path.read_bytes() == good


# Folders that cannot be used


def read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root writes to a folder whatever its mode is, so the calls are made to fail.
    acquire = FileLock.acquire

    def refuse(lock: FileLock, *arguments: Any, **options: Any) -> Any:
        if Path(lock.lock_file).parent == folder:
            raise OSError(errno.EROFS, "Read-only file system")
        return acquire(lock, *arguments, **options)

    monkeypatch.setattr(FileLock, "acquire", refuse)


def full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *rest: Any) -> None:
        if path.parent == folder:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, *rest)

    monkeypatch.setattr(file_cache, "write_whole", refuse)


def full_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_cache, "write_whole", refuse)


@pytest.mark.parametrize("make_so", [read_only, full, full_everywhere])
def test_without_a_folder_it_is_planned_for_this_process(
    fake: Planning, cache: Path, monkeypatch: pytest.MonkeyPatch, make_so: Callable[..., None]
) -> None:
    make_so(cache, monkeypatch)
    with pytest.warns(CacheWarning, match="the cache for plans.*; planning for this process only"):
        parts = plan_maker(to_json(graph()), UIDS)(*DEVICE)
    assert parts.sm == 90 and fake.planned == 1
    assert plan_files(cache) == []


def test_a_plan_in_a_folder_that_is_only_read_is_used(
    fake: Planning, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = plan_maker(to_json(graph()), UIDS)
    parts = make(*DEVICE)
    read_only(cache, monkeypatch)
    assert make(*DEVICE) == parts  # warnings are errors here
    assert fake.planned == 1


def test_a_wrong_plan_in_a_folder_that_is_only_read(
    fake: Planning, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = plan_maker(to_json(graph()), UIDS)
    parts = make(*DEVICE)
    (path,) = plan_files(cache)
    rewrite(path, for_device(80, 132, 91900), is_signed=True)
    read_only(cache, monkeypatch)
    with pytest.warns(CacheWarning, match="Read-only"):
        assert make(*DEVICE) == parts
    assert fake.planned == 2


def test_the_folder_is_bounded(
    fake: Planning, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlanCache.__init__, "__defaults__", (None, 1, 600.0))
    for version in (91900, 91901):
        fake.device = (90, 132, version)
        plan_maker(to_json(graph()), UIDS)(*fake.device)
    assert len(plan_files(cache)) == 1  # the one that was used last, too large as it is


# Processes


def start(cache: Path, path: Path, log: Path, at: float, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(PROGRAM), str(path), str(log)]
    return subprocess.Popen(
        [*command, str(at), str(seconds)],
        env=os.environ | {ENVIRONMENT: str(cache.parent), "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "g.json"
    path.write_bytes(to_json(graph()))
    return path


def test_of_processes_that_start_at_once_one_plans(cache: Path, file: Path, tmp_path: Path) -> None:
    log, at = tmp_path / "log", time.time() + 5
    started = [start(cache, file, log, at, 0.5) for _ in range(16)]
    assert len({finish(process) for process in started}) == 1
    assert log.read_text() == "planned\n"
    assert len(plan_files(cache)) == 1


def test_a_process_that_is_killed_while_it_plans(cache: Path, file: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = start(cache, file, log, 0, 600)
    while not log.exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    waiting = start(cache, file, log, 0, 0)
    time.sleep(0.5)
    assert waiting.poll() is None  # for the one that plans
    first.kill()
    first.communicate()
    finish(waiting)
    assert log.read_text() == "planned\n" * 2
    assert len(plan_files(cache)) == 1
    assert not [*cache.glob("*.new")]
