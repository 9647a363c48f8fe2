"""The folder of compiled modules: many processes, damaged files, folders that cannot be used."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from cudnn_bindgen.codegen import compile as compiling
from cudnn_bindgen.codegen.compile import CompileError, extension_path
from cudnn_bindgen.frontend import file_cache
from cudnn_bindgen.frontend.accelerating import module_key
from cudnn_bindgen.frontend.accelerating.errors import AccelerateWarning
from cudnn_bindgen.frontend.accelerating.module_cache import ModuleCache
from cudnn_bindgen.frontend.file_cache import CacheError

NAME = f"graph_{'0' * 40}"


@pytest.fixture(autouse=True)
def substitute(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder in place of one that cannot be used, for each test."""
    monkeypatch.setattr(ModuleCache, "_substitute", None)
    yield
    if ModuleCache._substitute is not None:
        ModuleCache._substitute.cleanup()


@pytest.fixture
def cache(tmp_path: Path) -> ModuleCache:
    return ModuleCache(tmp_path / "modules")


class Build:
    """Makes a file, or fails to; counts."""

    def __init__(self, content: bytes = b"module", error: Exception | None = None) -> None:
        self.content = content
        self.error = error
        self.count = 0

    def __call__(self, folder: Path) -> Path:
        assert not [*folder.iterdir()]
        self.count += 1
        path = folder / "built"
        path.write_bytes(self.content)
        if self.error is not None:
            raise self.error
        return path


def name(number: int) -> str:
    return f"graph_{number:040x}"


def stored(cache: ModuleCache) -> set[str]:
    """The names of the modules that are there; nothing may be half there."""
    files = {path.name for path in cache.folder.iterdir() if not path.name.endswith(".lock")}
    found = {file.partition(".")[0] for file in files}
    assert len(files) == 2 * len(found), files
    return found


def test_a_module_is_built_once(cache: ModuleCache) -> None:
    build = Build()
    for _ in range(3):
        assert cache.use_built(NAME, build, Path.read_bytes) == b"module"
    assert build.count == 1
    assert stored(cache) == {NAME}
    assert cache.use_built(name(1), Build(b"other"), Path.read_bytes) == b"other"
    assert cache.use_built(NAME, build, Path.read_bytes) == b"module"


@pytest.mark.parametrize("error", [CompileError("no"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(cache: ModuleCache, error: Exception) -> None:
    with pytest.raises(type(error)):
        cache.use_built(NAME, Build(error=error), Path.read_bytes)
    assert stored(cache) == set()
    assert cache.use_built(NAME, Build(b"right"), Path.read_bytes) == b"right"


def test_loading_that_fails_is_the_callers(cache: ModuleCache) -> None:
    def load(path: Path) -> None:
        raise ImportError(path.name)

    with pytest.raises(ImportError):
        cache.use_built(NAME, Build(), load)
    assert cache.use_built(NAME, Build(b"never"), Path.read_bytes) == b"module"


# Files that are not what they were


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change(path: Path) -> None:
    path.write_bytes(b"X" + path.read_bytes()[1:])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("damage", [cut, change, empty, text, Path.unlink])
@pytest.mark.parametrize("which", ["module", "digest"])
def test_a_damaged_file_is_built_again(
    cache: ModuleCache, which: str, damage: Callable[[Path], None]
) -> None:
    cache.use_built(NAME, Build(), Path.read_bytes)
    path = extension_path(cache.folder, NAME)
    damage(path if which == "module" else cache.folder / f"{NAME}.sha256")
    build = Build()
    assert cache.use_built(NAME, build, Path.read_bytes) == b"module"
    assert build.count == 1
    assert cache.use_built(NAME, build, Path.read_bytes) == b"module"
    assert build.count == 1


# Folders that cannot be used


def no_space(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_whole(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_cache, "write_whole", write_whole)


def no_space_at_the_end(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if target.parent == cache.folder and target.suffix == ".so":
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)


def read_only(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root writes to a folder whatever its mode is, so the calls are made to fail.
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(FileLock, "acquire", refuse)


def a_file(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.folder.write_text("not a folder")


def no_locks(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(FileLock, "acquire", refuse)


def a_folder_in_the_way(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    (extension_path(cache.folder, NAME) / "x").mkdir(parents=True)


UNUSABLE = [no_space, no_space_at_the_end, read_only, a_file, no_locks, a_folder_in_the_way]


@pytest.mark.parametrize("make", UNUSABLE, ids=lambda make: make.__name__)
def test_another_folder_takes_the_place_of_one_that_cannot_be_used(
    cache: ModuleCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., None],
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    class Elsewhere:
        folder = elsewhere

        def use(self, name: str, make: Callable[[], bytes], load: Callable[[Path], bytes]) -> bytes:
            (elsewhere / "built").write_bytes(make())
            return load(elsewhere / "built")

    monkeypatch.setattr(ModuleCache, "_replacement", Elsewhere)
    make(cache, monkeypatch)
    with pytest.warns(AccelerateWarning, match=r"cannot use the cache .*CUDNN_BINDGEN_CACHE"):
        assert cache.use_built(NAME, Build(), Path.read_bytes) == b"module"
    assert (elsewhere / "built").exists()
    assert not [*tmp_path.rglob("*.new")]


def test_the_substitute_lives_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "modules").write_text("not a folder")
    cache, build = ModuleCache(tmp_path / "modules"), Build()
    for _ in range(2):
        with pytest.warns(AccelerateWarning):
            assert cache.use_built(NAME, build, Path.read_bytes) == b"module"
    assert build.count == 1


def test_no_folder_can_be_used(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    read_only(cache, monkeypatch)
    with (
        pytest.warns(AccelerateWarning),
        pytest.raises(CacheError, match="Read-only file system"),
    ):
        cache.use_built(NAME, Build(), Path.read_bytes)


def test_what_is_in_a_read_only_folder_is_used(
    cache: ModuleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.use_built(NAME, Build(), Path.read_bytes)
    read_only(cache, monkeypatch)
    assert cache.use_built(NAME, Build(b"never"), Path.read_bytes) == b"module"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_of_somebody_else(cache: ModuleCache) -> None:
    cache.folder.mkdir(mode=0o500)
    with pytest.warns(AccelerateWarning):
        assert cache.use_built(NAME, Build(), Path.read_bytes) == b"module"
    cache.folder.chmod(0o700)


def test_whoever_hangs_with_the_lock_stops_nobody(cache: ModuleCache) -> None:
    cache.use_built(NAME, Build(), Path.read_bytes)
    impatient = ModuleCache(cache.folder, lock_seconds=0.1)
    with FileLock(cache.folder / ".00.lock"):
        assert impatient.use_built(NAME, Build(b"never"), Path.read_bytes) == b"module"
        with pytest.warns(AccelerateWarning, match="could not be acquired"):
            assert impatient.use_built(name(0x100), Build(b"own"), Path.read_bytes) == b"own"


# Bounds


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = ModuleCache(tmp_path, max_bytes=300)
    for number in range(3):
        cache.use_built(name(number), Build(b"x" * 100), Path.read_bytes)
        path = extension_path(cache.folder, name(number))
        os.utime(path, (number, number))  # long ago
    cache.use_built(name(0), Build(b"never"), Path.read_bytes)  # used now
    cache.use_built(name(3), Build(b"x" * 100), Path.read_bytes)
    assert stored(cache) == {name(0), name(2), name(3)}
    cache.use_built(name(4), Build(b"x" * 1000), Path.read_bytes)  # alone it is too large
    assert stored(cache) == {name(4)}


def test_nothing_is_removed_under_who_holds_its_lock(tmp_path: Path) -> None:
    cache = ModuleCache(tmp_path, max_bytes=250)
    for number in range(2):
        cache.use_built(name(number), Build(b"x" * 100), Path.read_bytes)
        os.utime(extension_path(cache.folder, name(number)), (number, number))
    with FileLock(cache.folder / ".00.lock"):
        cache.use_built(name(2), Build(b"x" * 100), Path.read_bytes)
        assert stored(cache) == {name(0), name(2)}


def test_what_killed_processes_left_is_removed(cache: ModuleCache) -> None:
    cache.folder.mkdir()
    old, fresh = cache.folder / ".graph_1.so.a.new", cache.folder / ".graph_2.so.b.new"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.use_built(NAME, Build(), Path.read_bytes)
    assert not old.exists()
    assert fresh.exists()  # somebody may be writing it


# Many at once

PROCESS = """
import sys, time
from pathlib import Path
from cudnn_bindgen.frontend.accelerating.module_cache import ModuleCache

folder, log, start = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def build(scratch):
    with log.open("a") as file:
        file.write("built\\n")
    time.sleep(0.5)
    (scratch / "x").write_bytes(b"m" * 100_000)
    return scratch / "x"

time.sleep(max(0, start - time.time()))
for number in range(3):
    loaded = ModuleCache(folder).use_built(f"graph_{number:040x}", build, Path.read_bytes)
    assert loaded == b"m" * 100_000
"""


def test_processes_that_start_at_once_build_once(tmp_path: Path) -> None:
    log, start = tmp_path / "log", str(time.time() + 2)
    command = [sys.executable, "-W", "error", "-c", PROCESS, str(tmp_path / "modules"), str(log)]
    started = [subprocess.Popen([*command, start]) for _ in range(6)]
    assert [process.wait(60) for process in started] == [0] * 6
    assert log.read_text() == "built\n" * 3


def test_threads_build_once(cache: ModuleCache) -> None:
    build, results = Build(), []
    threads = [
        threading.Thread(
            target=lambda: results.append(cache.use_built(NAME, build, Path.read_bytes))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [b"module"] * 8
    assert build.count == 1


# Names


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", str(tmp_path))
    assert ModuleCache().folder == tmp_path / "modules"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", "here")
    assert ModuleCache().folder == tmp_path / "here" / "modules"
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert ModuleCache().folder == tmp_path / "xdg" / "cudnn-bindgen" / "modules"


def test_whatever_decides_the_binary_decides_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [module_key.module_name("text"), module_key.module_name("text ")]
    assert module_key.module_name("text") == names[0]
    changes: list[tuple[object, str, object]] = [
        (module_key.cudnn_bindgen, "__version__", "9.9.9"),
        (module_key, "RUNTIME_ABI", 4711),
        (module_key, "runtime_digest", lambda: "other"),
        (compiling, "FLAGS", ("-O0",)),
        (compiling.sys, "version", "4.0"),
        (compiling.importlib.metadata, "version", lambda package: "1"),
        (compiling, "_compiler_version", lambda command: "other"),
    ]
    for owner, attribute, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(owner, attribute, value)
            names.append(module_key.module_name("text"))
    for variable in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "g++ -O1")
            names.append(module_key.module_name("text"))
    assert len({*names}) == len(names)
    assert all(len(one) == len(NAME) and one.isidentifier() for one in names)


def test_a_compiler_that_is_missing_has_a_name_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("no-such-compiler", "", '"'):
        monkeypatch.setenv("CXX", missing)
        assert module_key.module_name("text").isidentifier()


def test_the_digest_is_of_the_content(cache: ModuleCache) -> None:
    cache.use_built(NAME, Build(), Path.read_bytes)
    written = (cache.folder / f"{NAME}.sha256").read_text()
    assert written == hashlib.sha256(b"module").hexdigest()
