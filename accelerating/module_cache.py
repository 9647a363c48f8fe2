"""Compiled modules on disk, shared by processes: found by name, stored whole or not at all.

A module is a file and its digest beside it. Whoever builds, loads or removes one holds a lock, so
that many processes which start at once build a module once, and none is removed under a reader.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock
from platformdirs import user_cache_path

from cudnn_bindgen.accelerating.errors import AccelerateError, AccelerateWarning
from cudnn_bindgen.codegen.compile import extension_path

ENVIRONMENT = "CUDNN_BINDGEN_CACHE"

# A module takes some 200 KB, so this is for hundreds of graphs.
MAX_BYTES = 256 * 2**20
# Longer than any build takes: whoever holds a lock for so long hangs.
LOCK_SECONDS = 600.0
# Unfinished files of processes that were killed.
_STALE_SECONDS = 24 * 3600

Loaded = TypeVar("Loaded")

_substituting = threading.Lock()


class _UnusableError(Exception):
    """The folder cannot be used, for the reason that is the cause."""


def cache_folder() -> Path:
    """Return the folder for modules: below ``CUDNN_BINDGEN_CACHE``, or the user's for caches."""
    chosen = os.environ.get(ENVIRONMENT)
    base = Path(chosen).expanduser() if chosen else user_cache_path("cudnn-bindgen", False)
    return base.absolute() / "modules"


class ModuleCache:
    """A folder of compiled modules, of at most `max_bytes` together."""

    _substitute: tempfile.TemporaryDirectory[str] | None = None

    def __init__(
        self, folder: Path, max_bytes: int = MAX_BYTES, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.lock_seconds = lock_seconds

    def use(
        self, name: str, build: Callable[[Path], Path], load: Callable[[Path], Loaded]
    ) -> Loaded:
        """Return what `load` makes of a module's file, which `build` makes if there is none.

        `build` gets an empty folder and returns a file in it. What either raises is raised here,
        and leaves nothing in the cache. Where the folder cannot be used another one takes its
        place for as long as the process lives, with a warning.

        Raises
        ------
        AccelerateError, OSError
            There is no other folder either.
        """
        try:
            with self._locked(name):
                result = self._use(name, build, load)
                with suppress(OSError):
                    self._remove_oldest(name)
                return result
        except _UnusableError as error:
            reason = error.__cause__
        # Perhaps it is there, in a folder that is only read: in the image of a container.
        found = self._find(name)
        if found is not None:
            with suppress(ImportError):  # removed under our feet
                return load(found)
        replacement = self._replacement()
        if replacement.folder == self.folder:
            raise AccelerateError(f"cannot use {self.folder}: {reason}")
        warnings.warn(
            f"cannot use the cache for compiled graphs, {self.folder}: {reason}; compiling for "
            f"this process only. {ENVIRONMENT} names another folder",
            AccelerateWarning,
            stacklevel=2,
        )
        return replacement.use(name, build, load)

    def _use(
        self, name: str, build: Callable[[Path], Path], load: Callable[[Path], Loaded]
    ) -> Loaded:
        found = self._find(name)
        if found is None:
            # Not in the cache's folder: a compiler that fails leaves nothing there.
            with tempfile.TemporaryDirectory(prefix="cudnn-bindgen-") as scratch:
                found = self._store(name, build(Path(scratch)).read_bytes())
        with suppress(OSError):
            os.utime(found)  # used now
        return load(found)

    def _find(self, name: str) -> Path | None:
        path = extension_path(self.folder, name)
        try:
            content, digest = path.read_bytes(), self._digest_path(name).read_text()
        except (OSError, UnicodeDecodeError):
            return None
        # A file that was cut short would crash the process that loads it.
        return path if hashlib.sha256(content).hexdigest() == digest else None

    def _store(self, name: str, content: bytes) -> Path:
        path = extension_path(self.folder, name)
        digest = hashlib.sha256(content).hexdigest()
        try:
            # In this order: with the digest alone, or with that of another file, nothing is found.
            self._write(self._digest_path(name), digest.encode(), 0o644)
            self._write(path, content, 0o755)
        except OSError as error:
            raise _UnusableError from error
        return path

    def _write(self, path: Path, content: bytes, mode: int) -> None:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=self.folder)
        staged = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            staged.chmod(mode)
            staged.replace(path)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise

    def _digest_path(self, name: str) -> Path:
        return self.folder / f"{name}.sha256"

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        try:
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
        # few, and several modules share one.
        return FileLock(self.folder / f".{name[-2:]}.lock", timeout=seconds)

    def _remove_oldest(self, used: str) -> None:
        """Remove what was not used for longest, but nothing that somebody holds the lock of."""
        modules = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                status = path.stat()
                if path.name.startswith("graph_") and not path.name.endswith(".sha256"):
                    modules.append((status.st_mtime_ns, status.st_size, path))
                elif path.suffix == ".new" and status.st_mtime < time.time() - _STALE_SECONDS:
                    path.unlink()
        total = sum(size for _, size, _ in modules)
        for _, size, path in sorted(modules):
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
    def _replacement(cls) -> ModuleCache:
        with _substituting:
            if cls._substitute is None:
                cls._substitute = tempfile.TemporaryDirectory(prefix="cudnn-bindgen-modules-")
        return ModuleCache(Path(cls._substitute.name))
