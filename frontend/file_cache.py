"""Files on disk, shared by processes: found by name, stored whole or not at all.

A name stands for all that decides the content, so that a file never changes. Beside each lies its
digest. Whoever makes, loads or removes one holds a lock, so that many processes which start at once
make it once, and none is removed under a reader.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar

from filelock import FileLock
from platformdirs import user_cache_path

from cudnn_bindgen.codegen.output import write_whole

ENVIRONMENT = "CUDNN_BINDGEN_CACHE"

MAX_BYTES = 256 * 2**20
# Longer than making anything takes: whoever holds a lock for so long hangs.
LOCK_SECONDS = 600.0
# Unfinished files of processes that were killed.
_STALE_SECONDS = 24 * 3600

Loaded = TypeVar("Loaded")
Make = Callable[[], bytes]

_substituting = threading.Lock()


class CacheError(OSError):
    """Neither the folder nor another one in its place can be used."""


class CacheWarning(UserWarning):
    """The folder cannot be used: what could be shared is made for one process."""


class RejectedError(Exception):
    """Raised by `load`: the file is not what its name says; the cache makes it again."""


class _UnusableError(Exception):
    """The folder cannot be used, for the reason that is the cause."""


class FileCache(ABC):
    """A folder of files of one kind, of at most `max_bytes` together.

    A subclass says what they are: `kind` is the folder's name, `prefix` what the names of files
    begin with, `mode` their permissions; `warning`, `what` and `instead` are for the warning.
    """

    kind: ClassVar[str]
    prefix: ClassVar[str]
    mode: ClassVar[int] = 0o644
    warning: ClassVar[type[Warning]] = CacheWarning
    what: ClassVar[str]
    instead: ClassVar[str]

    _substitute: ClassVar[tempfile.TemporaryDirectory[str] | None] = None

    def __init__(
        self,
        folder: Path | None = None,
        max_bytes: int = MAX_BYTES,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.folder = self.default_folder() if folder is None else folder
        self.max_bytes = max_bytes
        self.lock_seconds = lock_seconds

    @classmethod
    def default_folder(cls) -> Path:
        """Return the folder: below ``CUDNN_BINDGEN_CACHE``, or the user's for caches.

        It begins with ``~`` where nobody knows the user's home, and cannot be used then.
        """
        chosen = os.environ.get(ENVIRONMENT)
        try:
            base = Path(chosen).expanduser() if chosen else user_cache_path("cudnn-bindgen", False)
        except RuntimeError:  # neither HOME nor an entry in the list of users
            base = Path(chosen or "~/.cache/cudnn-bindgen")
        return (base if _is_homeless(base) else base.absolute()) / cls.kind

    @abstractmethod
    def path(self, name: str) -> Path:
        """Return where the file of that name lies; the name is what stands before the dot."""

    def use(self, name: str, make: Make, load: Callable[[Path], Loaded]) -> Loaded:
        """Return what `load` makes of a file, whose content `make` returns if there is none.

        What either raises is raised here, and leaves nothing in the cache; but a file that `load`
        rejects is made again. Where the folder cannot be used another one takes its place for as
        long as the process lives, with a warning.

        Raises
        ------
        CacheError
            There is no other folder either.
        """
        made: list[bytes] = []

        def once() -> bytes:
            if not made:  # what there was no space for
                made.append(make())
            return made[0]

        try:
            with self._locked(name):
                result = self._use(name, once, load)
                with suppress(OSError):
                    self._remove_oldest(name)
                return result
        except _UnusableError as error:
            reason = error.__cause__
        # Perhaps it is there, in a folder that is only read: in the image of a container.
        found = self._find(name)
        if found is not None:
            with suppress(ImportError, OSError, RejectedError):  # removed under our feet
                return load(found)
        replacement = self._replacement()
        if replacement.folder == self.folder:
            raise CacheError(f"cannot use {self.folder}: {reason}")
        warnings.warn(
            f"cannot use the cache for {self.what}, {self.folder}: {reason}; {self.instead} for "
            f"this process only. {ENVIRONMENT} names another folder",
            self.warning,
            stacklevel=2,
        )
        return replacement.use(name, once, load)

    def _use(self, name: str, make: Make, load: Callable[[Path], Loaded]) -> Loaded:
        found = self._find(name)
        if found is not None:
            with suppress(OSError):
                os.utime(found)  # used now
            with suppress(RejectedError):
                return load(found)
        return load(self._store(name, make()))

    def _find(self, name: str) -> Path | None:
        path = self.path(name)
        try:
            content, digest = path.read_bytes(), self._digest_path(name).read_text()
        except (OSError, UnicodeDecodeError):
            return None
        # A module that was cut short would crash the process that loads it.
        return path if hashlib.sha256(content).hexdigest() == digest else None

    def _store(self, name: str, content: bytes) -> Path:
        path = self.path(name)
        digest = hashlib.sha256(content).hexdigest()
        try:
            # In this order: with the digest alone, or with that of another file, nothing is found.
            write_whole(self._digest_path(name), digest.encode(), 0o644)
            write_whole(path, content, self.mode)
        except OSError as error:
            raise _UnusableError from error
        return path

    def _digest_path(self, name: str) -> Path:
        return self.folder / f"{name}.sha256"

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        try:
            if _is_homeless(self.folder):
                raise FileNotFoundError("there is no home folder")
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = self._lock(name, self.lock_seconds)
            lock.acquire()
        except (OSError, NotImplementedError) as error:  # Timeout is an OSError
            raise _UnusableError from error
        try:
            yield
        finally:
            lock.release()

    def _lock(self, name: str, seconds: float) -> FileLock:
        # Lock files are never removed, which would let two processes hold one lock: so they are
        # few, and several files share one.
        return FileLock(self.folder / f".{name[-2:]}.lock", timeout=seconds)

    def _remove_oldest(self, used: str) -> None:
        """Remove what was not used for longest, but nothing that somebody holds the lock of."""
        files = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                if path.name.startswith(self.prefix) and not path.name.endswith(".sha256"):
                    files.append((status.st_mtime_ns, status.st_size, path))
                elif path.suffix == ".new" and status.st_mtime < time.time() - _STALE_SECONDS:
                    path.unlink()
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            name = path.name.partition(".")[0]
            if total <= self.max_bytes:
                return
            if name == used:
                continue
            # In use, or gone already.
            with suppress(OSError, NotImplementedError), self._lock(name, 0):
                path.unlink()
                self._digest_path(name).unlink(missing_ok=True)
                total -= size

    @classmethod
    def _replacement(cls) -> FileCache:
        try:
            with _substituting:
                if cls._substitute is None:
                    cls._substitute = tempfile.TemporaryDirectory(
                        prefix=f"cudnn-bindgen-{cls.kind}-"
                    )
        except OSError as error:
            raise CacheError(f"cannot use a temporary folder: {error}") from error
        return cls(Path(cls._substitute.name))


def _is_homeless(path: Path) -> bool:
    return str(path).startswith("~")
