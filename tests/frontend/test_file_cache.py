"""What a folder of files does beyond test_module_cache.py, which drives the same class."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from cudnn_bindgen.codegen.output import write_whole
from cudnn_bindgen.frontend import file_cache
from cudnn_bindgen.frontend.file_cache import CacheError, CacheWarning, FileCache, RejectedError

NAME = f"text_{'0' * 40}"


class Texts(FileCache):
    kind = "texts"
    prefix = "text_"
    what = "texts"
    instead = "writing"

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.txt"


class Others(Texts):
    kind = "others"


@pytest.fixture(autouse=True)
def substitutes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for kind in (Texts, Others):
        monkeypatch.setattr(kind, "_substitute", None)
    yield
    for kind in (Texts, Others):
        if kind._substitute is not None:
            kind._substitute.cleanup()


class Make:
    """Writes a text; counts."""

    def __init__(self, content: bytes = b"text") -> None:
        self.content = content
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        return self.content


def refuse_to_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_whole(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_cache, "write_whole", write_whole)


def test_each_kind_has_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", str(tmp_path))
    assert (Texts().folder, Others().folder) == (tmp_path / "texts", tmp_path / "others")
    assert Texts().use(NAME, Make(), Path.read_bytes) == b"text"
    assert Others().use(NAME, Make(b"other"), Path.read_bytes) == b"other"
    assert Texts().use(NAME, Make(b"never"), Path.read_bytes) == b"text"


def test_what_is_rejected_is_made_again(tmp_path: Path) -> None:
    def load(path: Path) -> bytes:
        if path.read_bytes() == b"old":
            raise RejectedError
        return path.read_bytes()

    cache, make = Texts(tmp_path), Make(b"new")
    cache.use(NAME, Make(b"old"), Path.read_bytes)
    assert cache.use(NAME, make, load) == cache.use(NAME, make, load) == b"new"
    assert make.count == 1
    with pytest.raises(RejectedError):  # by whoever made it: that is no damage
        Texts(tmp_path / "other").use(NAME, Make(b"old"), load)


def test_what_is_rejected_in_a_folder_that_is_only_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def load(path: Path) -> bytes:
        if path.parent == tmp_path:
            raise RejectedError
        return path.read_bytes()

    Texts(tmp_path).use(NAME, Make(b"old"), Path.read_bytes)
    acquire = FileLock.acquire

    def refuse(lock: FileLock, *arguments: object, **options: object) -> object:
        if Path(lock.lock_file).parent == tmp_path:
            raise OSError(errno.EROFS, "Read-only file system")
        return acquire(lock)

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with pytest.warns(CacheWarning, match="the cache for texts.*writing for this process only"):
        assert Texts(tmp_path).use(NAME, Make(b"new"), load) == b"new"
    assert (tmp_path / f"{NAME}.txt").read_bytes() == b"old"


def test_what_there_is_no_space_for_is_made_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(path: Path, *rest: Any) -> None:
        if path.parent == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, *rest)

    monkeypatch.setattr(file_cache, "write_whole", full)
    make = Make()
    with pytest.warns(CacheWarning, match="No space left"):
        assert Texts(tmp_path).use(NAME, make, Path.read_bytes) == b"text"
    assert make.count == 1


@pytest.mark.parametrize("chosen", [None, "~/cache"])
def test_a_user_without_a_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str | None
) -> None:
    """As in a container that runs as a number: no HOME, and no entry in the list of users."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "CUDNN_BINDGEN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDNN_BINDGEN_CACHE", chosen)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.warns(CacheWarning, match=r"texts, ~/.*: there is no home folder; writing for"):
        assert Texts().use(NAME, Make(), Path.read_bytes) == b"text"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("CUDNN_BINDGEN_CACHE", str(tmp_path))
    assert Texts().use(NAME, Make(), Path.read_bytes) == b"text"
    assert list(tmp_path.iterdir()) == [tmp_path / "texts"]


def test_no_folder_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none(*arguments: object, **options: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    (tmp_path / "texts").write_text("not a folder")
    monkeypatch.setattr(file_cache.tempfile, "TemporaryDirectory", none)
    with pytest.raises(CacheError, match="No usable temporary directory"):
        Texts(tmp_path / "texts").use(NAME, Make(), Path.read_bytes)


def test_the_folder_in_its_place_is_full_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refuse_to_store(monkeypatch)
    with (
        pytest.warns(CacheWarning, match="No space left"),
        pytest.raises(CacheError, match="No space left"),
    ):
        Texts(tmp_path).use(NAME, Make(), Path.read_bytes)
